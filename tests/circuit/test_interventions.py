"""Interventions from the kept pass equal full forward passes with the same edit."""

import numpy as np
import pytest
import torch
from families import FAMILIES, tiny

from readout.circuit import (
    CUES,
    FIRST,
    LABELS,
    QUERY,
    TEXTS,
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
    engine,
    given,
    intervene,
)
from readout.circuit.self_test import can_resume, deviation, made_up_prompts
from readout.errors import InterventionError
from readout.models import LanguageModel, load_model
from readout.prompts import PromptDistribution, tokenize

PROMPTS = PromptDistribution("synthetic", classes=3, shots=2, queries=2, size=3, seed=1).prompts()
OTHERS = PromptDistribution("synthetic", classes=3, shots=2, queries=2, size=3, seed=2).prompts()
WATCHED = [(1, 0), (2, 3), (3, 1)]
RNG = np.random.default_rng(0)
CASES = {
    "mean of a head at the query": ablate([(2, 1)]),
    "means of heads of two layers": ablate([(1, 1), (2, 2), (2, 3)]),
    "zero at the labels": ablate([(1, 1)], LABELS, Zero()),
    "resample at the texts": ablate([(1, 0)], TEXTS, Resample(1)),
    "patch of the residual stream": Intervention.of("", (Residual(2, LABELS), Patch("others"))),
    "patch from another role": Intervention.of(
        "", (Residual(1, Positions("label", "matching")), Patch("others", QUERY))
    ),
    "scale at the cues": Intervention.of("", (Heads(1, (2,), CUES), Scale(0.3))),
    "direction at the query": Intervention.of("", (Residual(3), Add(RNG.normal(size=64), 2.0))),
    "direction in a head": Intervention.of("", (Heads(2, (1,)), Add(RNG.normal(size=32)))),
    "mean of the residual stream": Intervention.of("", (Residual(1, LABELS), Mean())),
    "cut edges to own texts": Intervention.of("", (Edges(1, (0, 1), LABELS, TEXTS, "own"), Block())),
    "score added to edges": Intervention.of("", (Edges(0, (), LABELS, TEXTS, "another"), Add(strength=1.5))),
    "cut edges from the query": Intervention.of("", (Edges(2, (), QUERY, LABELS), Block())),
    "two edits of one place": Intervention.of("", (Residual(2), Scale(0.5)), (Residual(2), Add(RNG.normal(size=64)))),
    "one demonstration": Intervention.of("", (Heads(1, (), Positions("label", (2,))), Zero())),
    "first token": Intervention.of("", (Residual(1, FIRST), Zero())),
}


@pytest.fixture(scope="module")
def model() -> LanguageModel:
    return load_model("tiny", device="cpu", self_test=False)


@pytest.fixture(scope="module")
def both(model: LanguageModel) -> dict[str, engine.Outcome]:
    def run(method: engine.Method, normalise: bool = True) -> engine.Outcome:
        options = {"sources": {"others": OTHERS}, "watch": WATCHED, "method": method, "normalise": normalise}
        return intervene(model, PROMPTS, list(CASES.values()), **options)

    return {"resumed": run("resumed"), "full": run("full"), "labels alone": run("resumed", False)}


@pytest.mark.parametrize("case", CASES)
def test_a_resumed_pass_gives_the_labels_probabilities_of_the_full_pass(case: str, both) -> None:
    row = list(CASES).index(case)
    resumed, full = both["resumed"].log_probability()[row], both["full"].log_probability()[row]
    np.testing.assert_allclose(resumed, full, atol=2e-5)
    np.testing.assert_allclose(
        both["labels alone"].logit_difference()[row], both["full"].logit_difference()[row], atol=2e-5
    )


def test_watched_attention_is_that_of_the_full_pass(both) -> None:
    for side in ("edited", "unedited"):
        resumed, full = getattr(both["resumed"], side), getattr(both["full"], side)
        np.testing.assert_allclose(resumed.attention, full.attention, atol=1e-5)
        np.testing.assert_allclose(resumed.sink, full.sink, atol=1e-5)


def test_every_case_changes_something(both) -> None:
    moved = np.abs(both["full"].effect()).max(1)
    assert dict(zip(CASES, moved > 1e-4, strict=True)) == dict.fromkeys(CASES, True)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
def test_resumed_passes_are_exact_in_every_family_or_not_used(family: str) -> None:
    model = LanguageModel(tiny(family))
    if family == "gpt_bigcode":
        # It reshapes its result to the batch that it was called with, so rows cannot join: full passes are used.
        assert not can_resume(model)
        return
    assert deviation(model) < 5e-5
    model.can_share = False
    assert deviation(model) < 5e-5


def test_a_mean_is_taken_over_the_reference_and_by_role(model: LanguageModel) -> None:
    edited = ablate([(1, 0)], LABELS)
    kept = engine.keep_states(model, tokenize(OTHERS, model.tokenizer))
    rows = [
        kept.kept[1].outputs[row, places[prompt.label_positions], 0]
        for prompt, row, places in zip(kept.prompts, kept.rows, kept.places, strict=True)
    ]
    mean = torch.cat(rows).mean(0).numpy()
    by_hand = Intervention.of("", (Heads(1, (0,), LABELS), Zero()), (Heads(1, (0,), LABELS), Add(mean)))
    found = intervene(model, PROMPTS, [edited], reference=OTHERS).logit_difference()
    expected = intervene(model, PROMPTS, [by_hand]).logit_difference()
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_patching_every_label_of_the_last_possible_layer_from_itself_changes_nothing(model: LanguageModel) -> None:
    same = Intervention.of("", (Residual(3, LABELS), Patch("self")))
    outcome = intervene(model, PROMPTS, [same], sources={"self": PROMPTS})
    np.testing.assert_allclose(outcome.effect(), 0, atol=1e-5)


def test_an_edit_at_the_query_moves_only_its_own_prompt(model: LanguageModel) -> None:
    only = given([(len(tokenize([PROMPTS[0]], model.tokenizer)[0].token_ids) - 1,)] + [()] * (len(PROMPTS) - 1))
    moved = np.abs(intervene(model, PROMPTS, [Intervention.of("", (Residual(2, only), Zero()))]).effect()[0])
    assert moved[0] > 1e-3
    assert (moved[1:] == 0).all()


def test_chunks_of_prompts_give_what_one_chunk_gives(model: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [ablate([(1, 1)]), ablate([(2, 1)], LABELS, Resample(3))]
    whole = intervene(model, PROMPTS, cases).logit_difference()
    monkeypatch.setattr(engine, "KEPT_BYTES", 1)
    np.testing.assert_allclose(intervene(model, PROMPTS, cases).logit_difference(), whole, atol=1e-5)


def test_small_batches_give_what_large_ones_give(model: LanguageModel) -> None:
    cases = [ablate([head]) for head in model.heads] + [ablate([(1, 1)], LABELS)]
    whole = intervene(model, PROMPTS, cases).logit_difference()
    np.testing.assert_allclose(intervene(model, PROMPTS, cases, batch_tokens=7).logit_difference(), whole, atol=1e-5)


def test_prompts_of_different_lengths_and_numbers_of_labels_go_together(model: LanguageModel) -> None:
    mixed = [*PROMPTS[:2], *PromptDistribution("synthetic", classes=2, shots=1, queries=1, size=2, seed=4).prompts()]
    outcome = intervene(model, mixed, [ablate([(2, 1)], action=Zero())], watch=[(2, 1)])
    alone = [intervene(model, [one], [ablate([(2, 1)], action=Zero())]).logit_difference()[0, 0] for one in mixed]
    np.testing.assert_allclose(outcome.logit_difference()[0], alone, atol=1e-5)
    assert np.isnan(outcome.edited.logits[0, -1, 2])
    assert np.isnan(outcome.edited.attention[0, -1, 0, 2:]).all()


@pytest.mark.parametrize(
    ("intervention", "message"),
    [
        (ablate([(7, 0)]), "layers 0 to 3, asked for 7"),
        (ablate([(1, 9)]), r"heads 0 to 3, asked for \[9\]"),
        (Intervention.of("p", (Residual(1), Patch("nowhere"))), "give it in sources"),
        (Intervention.of("p", (Residual(1, Positions("label", (40,))), Zero())), "6 demonstrations"),
        (Intervention.of("p", (Residual(1, given([(1,)])), Zero())), "given for 1 prompt and the prompts are 6"),
        (Intervention.of("p", (Residual(1), Add(np.zeros(3)))), "must have 64 numbers"),
        (Intervention.of("p", (Residual(1), Add(np.full(64, np.nan)))), "must hold finite numbers"),
        (Intervention.of("p", (Residual(1, LABELS), Patch("others", TEXTS))), "equally many"),
    ],
)
def test_bad_interventions_are_refused(model: LanguageModel, intervention: Intervention, message: str) -> None:
    with pytest.raises(InterventionError, match=message):
        intervene(model, PROMPTS, [intervention], sources={"others": OTHERS})


def test_edits_that_make_no_sense_are_refused() -> None:
    with pytest.raises(InterventionError, match="can be blocked or have their score added to"):
        Edit(Edges(1), Zero())
    with pytest.raises(InterventionError, match="only attention edges can be blocked"):
        Edit(Heads(1), Block())
    with pytest.raises(InterventionError, match="needs a vector"):
        Edit(Residual(1), Add())
    with pytest.raises(InterventionError, match="role must be one of"):
        Positions("labels")


def test_sources_must_be_as_many_as_prompts(model: LanguageModel) -> None:
    with pytest.raises(InterventionError, match="one source for each prompt"):
        intervene(model, PROMPTS, [ablate([(1, 0)])], sources={"few": OTHERS[:1]})


@pytest.mark.parametrize(
    ("prompts", "interventions", "message"),
    [
        ([], [ablate([(1, 0)])], "prompts: there is no prompt, give at least one"),
        (PROMPTS, [], "no interventions: give at least one"),
        (["a text"], [ablate([(1, 0)])], "expected a list of prompts, as .* got str in it"),
    ],
)
def test_nothing_to_do_is_refused(model: LanguageModel, prompts: list, interventions: list, message: str) -> None:
    with pytest.raises(InterventionError, match=message):
        intervene(model, prompts, interventions)


def test_what_was_not_asked_for_is_refused(model: LanguageModel) -> None:
    outcome = intervene(model, PROMPTS[:2], [ablate([(1, 0)])])
    with pytest.raises(InterventionError, match=r"intervene\(..., normalise=True\)"):
        outcome.log_probability()
    with pytest.raises(InterventionError, match="no head was watched"):
        outcome.gap()


def test_tokenised_and_other_prompts_are_not_mixed(model: LanguageModel) -> None:
    mixed = [*tokenize(PROMPTS[:1], model.tokenizer), *PROMPTS[1:2]]
    with pytest.raises(InterventionError, match="give one kind"):
        intervene(model, mixed, [ablate([(1, 0)])])


def test_a_model_that_cannot_resume_is_run_fully(model: LanguageModel) -> None:
    bigcode = LanguageModel(tiny("gpt_bigcode"))
    outcome = intervene(bigcode, made_up_prompts(bigcode), [ablate([(1, 0)])], watch=[(1, 1)])
    assert np.abs(outcome.effect()).max() > 0
