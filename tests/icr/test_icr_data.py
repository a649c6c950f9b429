"""Data sets of in-context routing: names, templates, splits, overlap, hub columns by hand-made rows."""

import json
from pathlib import Path

import pytest

from readout.errors import PromptError, ReadoutError
from readout.icr.datasets import DATA_SETS, PAPER_TWELVE, data_set
from readout.icr.examples import Example, balanced, few_shot, load_split, sample, without_overlap
from readout.icr.queries import answer_ids
from readout.icr.study import StudySettings
from readout.models import LanguageModel

# One row of each of the paper's sets as the hub has it, and the prompt and answer that must come of it.
ROWS = {
    "agnews": ({"text": "t", "label": 3}, "News: t\nType:", "Technology"),
    "sst2": ({"sentence": "t", "label": 1}, "Review: t\nSentiment:", "positive"),
    "trec": ({"text": "t", "coarse_label": 3}, "Question: t\nAnswer Type:", "person"),
    "csqa": (
        {"question": "q", "choices": {"label": list("ABCDE"), "text": list("vwxyz")}, "answerKey": "C"},
        "Question: q\nA. v\nB. w\nC. x\nD. y\nE. z\nAnswer (A/B/C/D/E):", "C"),
    "piqa": ({"goal": "g", "sol1": "s", "sol2": "t", "label": 1}, "Goal: g\nA. s\nB. t\nAnswer (A/B):", "B"),
    "sst5": ({"text": "t", "label": 0}, "Sentence: t\nSentiment:", "terrible"),
    "mr": ({"text": "t", "label": 0}, "Review: t\nSentiment:", "negative"),
    "mrpc": (
        {"sentence1": "s", "sentence2": "t", "label": 1},
        "Sentence 1: s\nSentence 2: t\nA. Paraphrase\nB. Not paraphrase\nAnswer (A/B):", "A"),
    "cb": (
        {"premise": "p", "hypothesis": "h", "label": 2},
        "Premise: p\nHypothesis: h\nA. Entailment\nB. Contradiction\nC. Neutral\nAnswer (A/B/C):", "C"),
    "copa": (
        {"premise": "p.", "choice1": "s", "choice2": "t", "question": "effect", "label": 0},
        "p. What happened as a result?\nA. s\nB. t\nAnswer (A/B):", "A"),
    "creak": ({"sentence": "s", "label": "false"}, "Claim: s\nLabel (yes/no):", "no"),
    "ai2scie": (
        {"question": "q", "choices": {"label": ["1", "2", "3"], "text": list("xyz")}, "answerKey": "2"},
        "Question: q\nA. x\nB. y\nC. z\nAnswer (A/B/C):", "B"),
}  # fmt: skip


def test_all_twelve_of_the_paper_are_named() -> None:
    assert set(ROWS) == set(PAPER_TWELVE)
    assert len(PAPER_TWELVE) == 12


@pytest.mark.parametrize("name", ROWS)
def test_a_row_of_the_hub_becomes_the_papers_prompt(name: str, tmp_path: Path) -> None:
    """Through the same code as the hub: a local folder of data files with the hub's columns."""
    row, prompt, answer = ROWS[name]
    hub = data_set(name).hub
    folder = tmp_path / name
    folder.mkdir()
    for split in (hub.train, hub.test):
        (folder / f"{split}.jsonl").write_text(json.dumps(row) + "\n")
    split = load_split(name, tmp_path, "folder")
    for one in (split.train, split.test):
        assert [(own.prompt, own.options[own.answer]) for own in one] == [(prompt, answer)]


def test_a_set_that_cannot_be_read_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(PromptError, match="known are agnews"):
        load_split("imdb")
    with pytest.raises(PromptError, match="save the data set there"):
        load_split("csqa", tmp_path, "folder")
    with pytest.raises(PromptError, match="hub or a local folder"):
        load_split("csqa", source="staicc")
    (tmp_path / "cb").mkdir()
    (tmp_path / "cb" / "train.jsonl").write_text('{"premise": "p", "label": 0}\n')
    (tmp_path / "cb" / "validation.jsonl").write_text('{"premise": "p", "label": 0}\n')
    with pytest.raises(PromptError, match="hypothesis"):
        load_split("cb", tmp_path, "folder")


def test_splits_are_disjoint_and_always_the_same() -> None:
    split = load_split("synthetic1")
    parts = [{one.prompt for one in part} for part in (split.train, split.development, split.test)]
    assert not parts[0] & parts[1] | parts[0] & parts[2] | parts[1] & parts[2]
    assert sum(map(len, parts)) == 3 * 56
    load_split.__globals__["_load_split"].cache_clear()
    assert load_split("synthetic1") == split


def example(text: str, answer: int = 0) -> Example:
    return Example("sst2", text, f"Review: {text}\nSentiment:", ("negative", "positive"), answer)


def test_items_that_share_a_text_or_hold_a_phrase_of_one_in_use_are_left_out() -> None:
    used = [example("a gripping film"), example("dull")]
    tested = [
        example("A gripping film ."),
        example("it is a gripping film , truly"),
        example("a dull and slow film"),
        example("gripping"),
    ]
    assert without_overlap(tested, used) == tested[2:]
    assert without_overlap([example("a gripping")], used) == [example("a gripping")]
    assert without_overlap([example("gripping film here")], [example("so a gripping film here it is")]) == []


def test_balanced_draws_take_as_many_of_each_answer() -> None:
    pool = [example(f"text {i}", i % 2) for i in range(20)]
    drawn = balanced(pool, 3, 0)
    assert sorted(one.answer for one in drawn) == [0, 0, 0, 1, 1, 1]
    assert drawn != balanced(pool, 3, 1)
    with pytest.raises(PromptError, match="10 examples"):
        balanced(pool, 11, 0)


def test_a_sample_holds_enough_of_a_rare_answer() -> None:
    pool = [example(f"text {i}", int(i % 50 == 0)) for i in range(400)]
    drawn = sample(pool, 40, 3, 0)
    assert len(drawn) == len({one.text for one in drawn}) == 40
    assert sum(one.answer for one in drawn) == 3
    plain = sample(pool, 40, 0, 0)
    assert len(set(drawn) & set(plain)) >= 37
    with pytest.raises(PromptError, match="fewer than 9 examples"):
        sample(pool, 40, 9, 0)
    with pytest.raises(PromptError, match="ask for 60"):
        sample(pool, 40, 30, 0)


def test_demonstrations_are_prompt_space_answer_and_a_line_break() -> None:
    assert few_shot([example("x", 1)]) == "Review: x\nSentiment: positive\n"


def test_answers_must_be_one_token_each(tiny_model: LanguageModel) -> None:
    good = load_split("synthetic0").test[0]
    ids = answer_ids(tiny_model.tokenizer, good)
    assert tiny_model.tokenizer.convert_ids_to_tokens(ids) == ["book", "road", "star"]
    bad = Example("synthetic0", good.text, good.prompt, ("book road", "star"), 0)
    with pytest.raises(PromptError, match="'book road' is 2 tokens"):
        answer_ids(tiny_model.tokenizer, bad)
    with pytest.raises(PromptError, match="share a token"):
        answer_ids(tiny_model.tokenizer, Example("s", good.text, good.prompt, ("book", "book"), 0))


@pytest.mark.real
@pytest.mark.parametrize("name", [name for name, one in DATA_SETS.items() if one.staicc])
def test_sets_of_staicc_load_and_answer_in_one_token_of_smollm2(name: str) -> None:
    from readout.models.load import load_tokenizer

    split = load_split(name, max_words=20)
    assert min(len(split.train), len(split.development), len(split.test)) > 250
    assert len({one.answer for one in split.test}) == len(split.test[0].options)
    answer_ids(load_tokenizer("smollm2-135m"), split.test[0])


def test_a_study_refuses_sets_it_does_not_know_or_that_are_named_twice() -> None:
    with pytest.raises(ReadoutError, match="no data set imdb"):
        StudySettings(in_domain=("imdb",))
    with pytest.raises(ReadoutError, match="one list only"):
        StudySettings(in_domain=("agnews",), out_of_domain=("agnews",))
    settings = StudySettings(train=7)
    assert StudySettings.from_dict(settings.to_dict()) == settings
