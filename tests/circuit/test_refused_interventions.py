"""What cannot be meant is refused in one line, and what can be meant in two ways of writing is taken in both."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from readout.circuit import (
    FIRST,
    LABELS,
    QUERY,
    Add,
    Block,
    Edges,
    Edit,
    Heads,
    Intervention,
    Mean,
    Patch,
    Positions,
    Resample,
    Residual,
    Scale,
    Zero,
    ablate,
    given,
    intervene,
)
from readout.errors import InterventionError
from readout.models import LanguageModel, load_model
from readout.prompts import Prompt, PromptDistribution, tokenize

DISTRIBUTION = PromptDistribution("synthetic", classes=2, shots=2, queries=1, size=3, seed=1)
PROMPTS = DISTRIBUTION.prompts()
OTHERS = replace(DISTRIBUTION, seed=2).prompts()
ONE = ablate([(1, 2)])


@pytest.fixture(scope="module")
def model() -> LanguageModel:
    return load_model("tiny", device="cpu", self_test=False)


def edit(*pairs: tuple) -> list[Intervention]:
    return [Intervention.of("mine", *pairs)]


def test_heads_are_named_as_they_are_printed() -> None:
    named, numbered = ablate(["L2H1", "L1H3", "L1H0"]), ablate([(2, 1), (1, 3), (1, 0)])
    assert isinstance(named, Intervention)
    assert named.name == numbered.name == "L2H1+L1H3+L1H0"
    assert [one.site for one in named.edits] == [Heads(1, (3, 0)), Heads(2, (1,))]
    assert [one.site for one in numbered.edits] == [one.site for one in named.edits]


def test_watched_heads_are_named_too(model: LanguageModel) -> None:
    by_name = intervene(model, PROMPTS, [ONE], watch=["L1H2", "L2H0"])
    by_number = intervene(model, PROMPTS, [ONE], watch=np.array([[1, 2], [2, 0]]))
    assert by_name.watched == by_number.watched == ((1, 2), (2, 0))
    np.testing.assert_array_equal(by_name.gap(), by_number.gap())


def test_one_number_or_a_list_stands_for_a_tuple() -> None:
    assert Heads(1, 2) == Heads(1, [2]) == Heads(np.int64(1), np.array([2])) == Heads(1, (2,))
    assert Edges(1, 2) == Edges(1, (2,))
    assert Positions("label", 0) == Positions("label", [0]) == Positions("label", (0,))
    assert Positions("given", given=[[1], np.array([2, 3])]) == given([(1,), (2, 3)])
    assert Intervention("one edit", Edit(Residual(1), Zero())).edits[0].site == Residual(1)


WRITTEN_WRONGLY: dict[str, tuple[Callable[[], object], str]] = {
    "numbers for heads": (lambda: ablate([1, 2]), r"\(layer, head\) or by name.* got 1$"),
    "a pair for a list": (lambda: ablate((1, 2)), r"in a list such as \[\(1, 2\)\] or \['L1H2'\], got 1"),
    "one name for a list": (lambda: ablate("L1H2"), r"expected a list such as \[\(1, 2\)\] or \['L1H2'\], got 'L1H2'"),
    "a name that is none": (lambda: ablate(["1.2"]), "by name.* got '1.2'"),
    "three numbers": (lambda: ablate([(1, 2, 3)]), r"got \(1, 2, 3\)"),
    "a half head": (lambda: ablate([(1, 2.5)]), r"got \(1, 2.5\)"),
    "no head": (lambda: ablate([]), "there is none to ablate, give at least one"),
    "a head twice": (lambda: ablate([(1, 2), (1, 2)]), "name each once"),
    "a role for positions": (lambda: ablate([(1, 2)], "label"), "at: expected positions such as LABELS.* got 'label'"),
    "a role for keys": (lambda: Edges(1, (), QUERY, "label"), "keys: expected positions"),
    "a name for a layer": (lambda: Heads("L1"), "layer: expected one whole number, got 'L1'"),
    "layers": (lambda: Residual((1, 2)), r"layer: expected one whole number, got \(1, 2\)"),
    "a half number of heads": (lambda: Heads(1, 2.5), "heads: expected whole numbers such as .* got 2.5"),
    "a mask of heads": (lambda: Heads(1, (True, False)), "expected whole numbers"),
    "no demonstration": (lambda: Positions("label", ()), "name at least one"),
    "half a demonstration": (lambda: Positions("label", 0.5), "which demonstrations: expected whole numbers"),
    "the query's demonstrations": (lambda: Positions("query", "matching"), "not 'query'"),
    "positions of no prompt": (lambda: given([3, 5]), r"a list of positions for each prompt.* got \[3, 5\]"),
    "half a position": (lambda: given([[1.5]]), r"expected whole numbers such as .* got \[1.5\]"),
    "a seed below 0": (lambda: Resample(-1), "whole number of at least 0 as seed, got -1"),
    "prompts for their name": (lambda: Patch(OTHERS), r"name of a list in sources, such as Patch\('others'\)"),
    "a role to patch from": (lambda: Patch("others", "label"), "at: expected positions"),
    "a vector for edges": (lambda: Edit(Edges(1), Add(np.ones(3))), r"give Add\(strength=...\)"),
    "words as strength": (lambda: Edit(Residual(1), Scale("2")), "expected a finite number"),
    "no pairs": (lambda: Intervention.of("", Residual(1), Zero()), r"pairs \(where, what\) after the name"),
    "no name": (lambda: Intervention.of((Residual(1), Zero())), "a name first"),
    "pairs for edits": (lambda: Intervention("", [(Residual(1), Zero())]), r"Edit\(where, what\), got \(Residual"),
}


@pytest.mark.parametrize("case", WRITTEN_WRONGLY)
def test_what_is_written_wrongly_is_refused_in_one_line(case: str) -> None:
    write, message = WRITTEN_WRONGLY[case]
    with pytest.raises(InterventionError, match=message) as refused:
        write()
    assert "\n" not in str(refused.value)


def with_query_class(name: str) -> list[Prompt]:
    return [replace(one, query_class=name) for one in PROMPTS]


GIVEN_WRONGLY: dict[str, tuple[dict[str, object], str]] = {
    "one intervention": ({"interventions": ONE}, "put it in a list"),
    "edits": ({"interventions": [Edit(Heads(1), Zero())]}, r"what ablate\(...\) and Intervention.of.* got Edit"),
    "names": ({"interventions": "L1H2"}, "expected a list of what"),
    "one prompt": ({"prompts": PROMPTS[0]}, "prompts: .* got one prompt: put it in a list"),
    "a distribution": ({"prompts": DISTRIBUTION}, r"PromptDistribution\(...\).prompts\(\) gives it, got PromptDist"),
    "nothing among prompts": ({"prompts": [*PROMPTS, None]}, "got NoneType in it"),
    "a query without label": ({"prompts": with_query_class("none")}, "prompt 0 has no label for its query's class"),
    "no reference": ({"reference": []}, "reference: there is no prompt"),
    "one reference prompt": ({"reference": PROMPTS[0]}, "reference: .* put it in a list"),
    "a list of sources": ({"sources": OTHERS}, r"sources: expected lists of prompts by name.* got list"),
    "one source": ({"sources": {"others": OTHERS[0]}}, "sources 'others': .* put it in a list"),
    "a flat list to watch": ({"watch": (1, 2)}, r"watch: .* in a list such as \[\(1, 2\)\] or \['L1H2'\], got 1"),
    "a head to watch that is not there": ({"watch": [(1, -1)]}, "no head L1H-1 to watch"),
    "a name for a model": ({"model": "tiny"}, r"one that load_model\(...\) gives, got 'tiny'"),
    "half a token": ({"batch_tokens": 1.5}, "batch_tokens: expected a positive number, got 1.5"),
    "a layer below 0": ({"interventions": edit((Residual(-1), Zero()))}, "layers 0 to 3, asked for -1"),
    "a head below 0": ({"interventions": [ablate([(1, -1)])]}, r"heads 0 to 3, asked for \[-1\]"),
    "words for a vector": ({"interventions": edit((Residual(1), Add("abc")))}, "must be numbers, got 'abc'"),
    "a matrix for a vector": ({"interventions": edit((Residual(1), Add(np.ones((1, 64)))))}, r"the shape \(1, 64\)"),
    "positions of more prompts": (
        {"interventions": edit((Residual(1, given([[1]] * 4)), Zero()))},
        "given for 4 prompts and the prompts are 3",
    ),
    "positions nowhere": ({"interventions": edit((Residual(1, given([[]] * 3)), Zero()))}, "so nothing is edited"),
    "labels of no demonstration": (
        {"prompts": replace(DISTRIBUTION, shots=0).prompts(), "interventions": edit((Residual(1, LABELS), Zero()))},
        "no prompt has a position of the role 'label' .* so nothing is edited",
    ),
    "the mean over itself": ({"prompts": PROMPTS[:1]}, "the mean over one position of one prompt is the value"),
    "a vector that blows up": ({"interventions": edit((Residual(1), Scale(1e38)))}, "not finite: edit less strongly"),
}


@pytest.mark.parametrize("case", GIVEN_WRONGLY)
def test_what_is_given_wrongly_is_refused_in_one_line(model: LanguageModel, case: str) -> None:
    wrong, message = GIVEN_WRONGLY[case]
    options = {"model": model, "prompts": PROMPTS, "interventions": [ONE]} | wrong
    with pytest.raises(InterventionError, match=message) as refused:
        intervene(**options)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("method", ["resumed", "full"])
def test_a_row_of_attention_without_a_key_is_refused(model: LanguageModel, method: str) -> None:
    tokens = [range(len(one.token_ids)) for one in tokenize(PROMPTS, model.tokenizer)]
    whole_row = [(Edges(1, (), QUERY, given(tokens)), Block())]
    first_token = [(Edges(1, (2,), FIRST, FIRST), Block()), (Edges(0, (2,), QUERY, LABELS), Block())]
    for blocked in (whole_row, first_token):
        with pytest.raises(InterventionError, match=r"mine makes logits .* needs at least one key: block fewer"):
            intervene(model, PROMPTS, edit(*blocked), method=method)


def test_all_keys_but_one_may_be_blocked(model: LanguageModel) -> None:
    all_but_own = [range(one.query_position) for one in tokenize(PROMPTS, model.tokenizer)]
    outcome = intervene(model, PROMPTS, edit((Edges(1, (), QUERY, given(all_but_own)), Block())))
    assert np.isfinite(outcome.effect()).all()


def test_tokens_of_another_tokeniser_and_prompts_that_are_too_long_are_refused(model: LanguageModel) -> None:
    own = tokenize(PROMPTS, model.tokenizer)
    for ids in (own[0].token_ids + 10_000, own[0].token_ids[:0]):
        with pytest.raises(InterventionError, match="prompts: prompt 1 has no tokens, or other ones than the"):
            intervene(model, [own[0], replace(own[0], token_ids=ids)], [ONE])
    long = np.resize(own[0].token_ids, model.context_length + 1)
    with pytest.raises(InterventionError, match=f"prompt 0 has {len(long)} tokens and tiny reads at most"):
        intervene(model, [replace(own[0], token_ids=long)], [ONE])


def test_prompts_may_come_one_by_one(model: LanguageModel) -> None:
    listed = intervene(model, PROMPTS, [ONE]).effect()
    np.testing.assert_array_equal(intervene(model, iter(PROMPTS), iter([ONE])).effect(), listed)


def test_a_prompt_with_one_label_has_logits_but_no_logit_difference(model: LanguageModel) -> None:
    first = PROMPTS[0]
    shown = tuple(one for one in first.demonstrations if one.label == first.labels[0])
    one_label = replace(
        first,
        demonstrations=shown,
        query_class=first.label_classes[0],
        labels=first.labels[:1],
        label_classes=first.label_classes[:1],
    )
    outcome = intervene(model, [one_label], edit((Heads(1), Zero())))
    assert np.isfinite(outcome.edited.logits).all()
    with pytest.raises(InterventionError, match="no logit difference"):
        outcome.effect()


def test_a_mean_over_reference_prompts_edits_a_single_prompt(model: LanguageModel) -> None:
    assert np.abs(intervene(model, PROMPTS[:1], edit((Heads(1), Mean())), reference=OTHERS).effect()).max() > 1e-3
