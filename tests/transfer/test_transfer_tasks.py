"""Names of the tasks of a transfer matrix."""

import pytest
from transformers import PreTrainedTokenizerFast

from readout.errors import PromptError
from readout.models import LanguageModel
from readout.prompts.prompt import parse_template
from readout.transfer.tasks import (
    DEFAULT_SYNTHETIC,
    TEMPLATES,
    default_tasks,
    parse_tasks,
    with_one_token_labels,
)


def test_a_name_alone_is_the_default_pair_of_its_task_in_the_size_asked_for() -> None:
    (task,) = parse_tasks(["words"], 12, 2)
    assert (task.source.size, task.source.queries, task.target.size) == (12, 2, 12)
    assert (task.source.class_half, task.target.class_half) == ("a", "b")
    assert (task.source.label_half, task.target.label_half) == ("a", "b")


def test_source_and_target_share_no_text() -> None:
    for name in ("words", "words+own+german"):
        (task,) = parse_tasks([name], 12, 2)
        seen, held_out = (
            {text for prompt in one.prompts() for text in (prompt.query, *(d.text for d in prompt.demonstrations))}
            for one in (task.source, task.target)
        )
        assert not seen & held_out


def test_changes_add_up() -> None:
    (task,) = parse_tasks(["words+swapped+german"], 4, 1)
    for one in (task.source, task.target):
        assert (one.labels, one.label_half, one.template) == ("swapped", "all", TEMPLATES["german"])


def test_counts_show_one_class_far_more_often_and_no_more_in_all() -> None:
    plain, changed = parse_tasks(["synthetic", "synthetic+counts"], 4, 1)
    before, after = plain.target.count_lists(), changed.target.count_lists()
    assert [sum(counts) for counts in before] == [sum(counts) for counts in after]
    assert all(sorted(counts)[:-1] == [2] * (len(counts) - 1) for counts in after)


def test_every_template_parses_and_leaves_one_space_to_the_label() -> None:
    assert all(parse_template(template).space == " " for template in TEMPLATES.values())


def test_the_built_in_model_gets_variants_of_the_task_that_it_knows() -> None:
    assert default_tasks("tiny:1") == DEFAULT_SYNTHETIC
    assert all(name.startswith("synthetic") for name in DEFAULT_SYNTHETIC)
    noisy = parse_tasks(DEFAULT_SYNTHETIC, 4, 1)[2]
    assert noisy.source.task == noisy.target.task == "synthetic:noise=0.15"


def test_an_own_file_is_a_task_with_its_columns(tmp_path) -> None:
    path = tmp_path / "stars of the year.csv"
    rows = [f"{name} {number},{name}" for name in ("good", "bad") for number in range(80)]
    path.write_text("\n".join(["review,stars", *rows]) + "\n")
    (task,) = parse_tasks([f"{path}+own"], 4, 1, text_column="review", label_column="stars", max_words=None)
    assert task.target.labels == "own"
    assert "/" not in task.folder
    assert " " not in task.folder
    assert {p.query_class for p in task.target.prompts()} <= {"good", "bad"}


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ([], "no task was named"),
        (["words", "words"], "named twice"),
        (["words+klingon"], "unknown change 'klingon'; known are own, swapped, flipped, form, german"),
        (["wordz"], "unknown task 'wordz'"),
        (["words+noisy"], "synthetic task only"),
    ],
)
def test_names_that_cannot_be_read_are_refused(names: list[str], message: str) -> None:
    with pytest.raises(PromptError, match=message):
        parse_tasks(names, 4, 1)


def test_only_classes_whose_name_is_one_token_are_kept(tmp_path, tiny_model: LanguageModel) -> None:
    tokenizer: PreTrainedTokenizerFast = tiny_model.tokenizer
    whole = [word for word in (" rock", " star", " river") if len(tokenizer.tokenize(word)) == 1]
    path = tmp_path / "reviews.csv"
    names = [word.strip() for word in whole] + ["qzxqzx"]
    rows = [f"a{number} {name},{name}" for name in names for number in range(80)]
    path.write_text("\n".join(["text,label", *rows]) + "\n")
    assert len(whole) >= 2
    (own,) = parse_tasks([f"{path}+own"], 4, 1)
    kept = with_one_token_labels(own, tokenizer)
    assert set(kept.target.class_pool) == set(kept.source.class_pool) == {word.strip() for word in whole}
    (plain,) = parse_tasks([str(path)], 4, 1)
    assert with_one_token_labels(plain, tokenizer) is plain


def test_too_few_one_token_names_are_refused(tiny_model: LanguageModel) -> None:
    (own,) = parse_tasks(["words+own"], 4, 1)
    with pytest.raises(PromptError, match=r"names are one token, and 'words' has \d here \(of several tokens: "):
        with_one_token_labels(own, tiny_model.tokenizer)
