"""Settings: halves of contexts, texts of one length, the null of permuted labels; prompts with and without a repeat."""

from collections import Counter

import numpy as np
import pytest

from readout.circuit.repeats import contrast
from readout.circuit.setting import Setting, make_setting
from readout.errors import InterventionError, PromptError
from readout.models import LanguageModel, load_model
from readout.prompts import PromptDistribution
from readout.prompts.repeats import relabelled, without_repeat


@pytest.fixture(scope="module")
def tiny() -> LanguageModel:
    return load_model("tiny", device="cpu", self_test=False)


@pytest.fixture(scope="module")
def setting(tiny: LanguageModel) -> Setting:
    return make_setting(tiny, contexts=10)


def test_prompts_that_choose_and_prompts_that_test_share_no_context(setting: Setting) -> None:
    one, other = ({p.prompt.context for p in half} for half in (setting.choosing, setting.testing))
    assert len(one) == len(other) == 5
    assert not one & other


def test_all_texts_of_a_prompt_have_equally_many_tokens(tiny_model: LanguageModel) -> None:
    setting = make_setting(tiny_model, PromptDistribution("words", shots=2, queries=1), contexts=10)
    assert setting.equal_lengths
    for one in setting.choosing + setting.testing:
        assert len({int(stop - start) for start, stop in one.demonstration_spans}) == 1


def test_permuted_labels_tell_nothing_of_classes(tiny: LanguageModel) -> None:
    for one in make_setting(tiny, contexts=10, permuted=True).testing:
        pairs = Counter((shown.class_name, shown.label) for shown in one.prompt.demonstrations)
        assert set(pairs.values()) == {2}


def test_permuted_and_plain_settings_show_the_same_texts(tiny: LanguageModel, setting: Setting) -> None:
    permuted = make_setting(tiny, contexts=10, permuted=True)
    for one, other in zip(setting.testing, permuted.testing, strict=True):
        assert [d.text for d in one.prompt.demonstrations] == [d.text for d in other.prompt.demonstrations]


def test_too_few_contexts_are_refused(tiny: LanguageModel) -> None:
    with pytest.raises(InterventionError, match="at least 10 contexts"):
        make_setting(tiny, contexts=5)


def test_without_a_repeat_every_label_is_shown_once_and_the_last_showings_stay(setting: Setting) -> None:
    for one in setting.testing:
        twin = without_repeat(one.prompt, turn=3)
        shown = [d.label for d in twin.demonstrations]
        assert len(set(shown)) == len(shown) == len(one.prompt.demonstrations)
        last = {d.label: place for place, d in enumerate(one.prompt.demonstrations)}
        assert all(shown[place] == label for label, place in last.items())
        owners = dict(zip(twin.labels, twin.label_classes, strict=True))
        assert all(owners[d.label] == d.class_name for d in twin.demonstrations)


def test_relabelled_prompts_repeat_as_before_with_no_old_label(setting: Setting) -> None:
    one = setting.testing[0].prompt
    twin = relabelled(one, turn=5)
    assert not set(one.labels) & set(twin.labels)
    number = {label: place for place, label in enumerate(one.labels)}
    fresh = {label: place for place, label in enumerate(twin.labels)}
    assert [number[d.label] for d in one.demonstrations] == [fresh[d.label] for d in twin.demonstrations]


def test_a_pool_that_is_too_small_is_named(setting: Setting) -> None:
    long = make_setting(setting.model, PromptDistribution("synthetic", shots=20, queries=1), contexts=10).testing[0]
    with pytest.raises(PromptError, match="too few labels"):
        without_repeat(long.prompt, pool="letters")


def test_twins_differ_in_label_tokens_alone(setting: Setting) -> None:
    pairs = contrast(setting, setting.testing)
    for one, other in zip(pairs.repeated, pairs.single, strict=True):
        changed = np.flatnonzero(one.token_ids != other.token_ids)
        assert set(changed) <= set(one.label_positions.tolist())
        assert len(changed) == len(one.label_positions) - len(one.label_ids)
