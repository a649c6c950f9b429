"""The synthetic task: class structure, noise and ambiguity are as stated."""

import pytest

from readout.errors import PromptError
from readout.prompts.synthetic import FIRST_SYLLABLES, SyntheticTask, word_classes, word_overlap


def test_without_noise_every_word_is_of_its_text_s_class():
    for name, texts in SyntheticTask().texts().items():
        assert len(set(texts)) == 56
        assert all(word_classes(text) == (name, name) for text in texts)


def test_noise_replaces_words_at_its_rate():
    texts = SyntheticTask(noise=0.15).texts()
    foreign = [cls != name for name, members in texts.items() for text in members for cls in word_classes(text)]
    assert sum(foreign) / len(foreign) == pytest.approx(0.15, abs=0.03)
    assert all(len(set(members)) == 56 for members in texts.values())


def test_ambiguity_shares_words_with_the_neighbouring_class_only():
    table = SyntheticTask(ambiguity=0.25).word_table
    for number in range(len(FIRST_SYLLABLES)):
        shared = [other for other in range(len(table)) if other != number and set(table[number]) & set(table[other])]
        assert shared == [number ^ 1]
        assert len(set(table[number]) & set(table[number ^ 1])) == 2


def test_options_are_read_from_the_task_s_name():
    task = SyntheticTask.parse("synthetic:noise=0.15,ambiguity=0.25,words=1,texts=4,seed=2")
    assert task == SyntheticTask(0.15, 0.25, 1, 4, 2)
    assert SyntheticTask.parse("synthetic") == SyntheticTask()


@pytest.mark.parametrize("name", ["synthetic:fog=1", "synthetic:noise=much", "synthetic:noise=2", "synthetic:words=3"])
def test_a_wrong_option_is_refused(name):
    with pytest.raises(PromptError):
        SyntheticTask.parse(name)


def test_more_texts_than_there_are_is_refused():
    with pytest.raises(PromptError, match="8 texts"):
        SyntheticTask(words_per_text=1, texts_per_class=9).texts()


def test_overlap_is_the_share_of_word_pairs_of_one_class():
    assert word_overlap("kali kamu", "kara kasu") == 1
    assert word_overlap("kali domu", "kara kasu") == 0.5
    assert word_overlap("kali domu", "kara dosu") == 0.5
    assert word_overlap("kali kamu", "dora dosu") == 0
    with pytest.raises(PromptError, match="zebra"):
        word_overlap("zebra kali", "kamu")
