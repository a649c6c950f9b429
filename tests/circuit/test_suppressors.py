"""The suppressor of the hand-built model, with the effects that NumPy gives."""

from __future__ import annotations

import numpy as np
import pytest
from handmade import by_numpy, handmade_setting, mean_output, replaced

from readout.circuit.claim import Claim
from readout.circuit.observe import observe
from readout.circuit.readers import named
from readout.circuit.suppressors import LastLabel, claim_5, last_labels
from readout.fitting import Observations
from readout.prompts import TokenizedPrompt


@pytest.fixture(scope="module")
def claim() -> Claim:
    return claim_5(handmade_setting(), {})


def balanced(values: list[float]) -> float:
    """Mean over prompts whose last label matches and over those whose last label does not, half each."""
    match = [one.prompt.demonstrations[-1].class_name == one.prompt.query_class for one in handmade_setting().testing]
    array = np.array(values)
    return float((array[match].mean() + array[np.invert(match)].mean()) / 2)


def last_minus_other(one: TokenizedPrompt, logits: np.ndarray) -> float:
    last = one.demonstration_labels[-1]
    return float(logits[one.label_ids[last]] - logits[one.label_ids[1 - last]])


def test_the_suppressor_alone_is_named(claim: Claim) -> None:
    assert named(claim, "suppressor") == ((2, 1),)
    assert claim.supported == "true"


def test_the_last_label_rises_as_numpy_says_when_it_is_ablated(claim: Claim) -> None:
    setting = handmade_setting()
    mean = mean_output(setting.model, [*setting.choosing, *setting.testing], 2, 1)
    rises = []
    for one in setting.testing:
        before = last_minus_other(one, by_numpy(setting.model, one.token_ids)[0])
        edited = by_numpy(setting.model, one.token_ids, replaced(2, 1, -1, mean))[0]
        rises.append(last_minus_other(one, edited) - before)
    assert claim.curves["named"] == pytest.approx(balanced(rises), abs=1e-4)


def test_its_direct_push_is_its_attention_times_its_strength(claim: Claim) -> None:
    setting, pushes = handmade_setting(), []
    for one in setting.testing:
        attention = by_numpy(setting.model, one.token_ids)[1][2, 1, -1, one.label_positions]
        same = one.demonstration_labels == one.demonstration_labels[-1]
        pushes.append(1.5 * (attention[same].sum() - attention[~same].sum()))
    assert claim.curves["pushed_directly"] == pytest.approx(balanced(pushes), abs=1e-4)
    assert claim.effect.value == pytest.approx(claim.curves["named"] / balanced(pushes), abs=1e-4)


def test_what_favours_the_right_label_cancels() -> None:
    last = LastLabel(np.array([0, 0, 1]), np.array([[False, True]] * 2 + [[True, False]]), np.array([1, 1, 0]), "")
    # The right label gains 4; the last one gains 1 besides.
    values = np.array([[5.0, 0.0], [5.0, 0.0], [4.0, 1.0]])
    assert last.log_odds(values) == pytest.approx([1.0, 1.0, 1.0])


def test_with_three_labels_the_last_is_compared_to_the_other_that_does_not_match() -> None:
    seen = Observations.from_arrays(
        None, np.array([[1.0, 0, 0], [0, 0, 1.0]]), np.array([[0, 1, 2], [1, 2, 0]]), np.arange(2),
        label_probability=np.full((2, 3), 1 / 3), query_label=np.array([0, 0]),
    )  # fmt: skip
    last = last_labels(seen)
    assert last.others.tolist() == [[False, True, False], [False, False, False]]
    assert last.use.tolist() == [True, False]


def test_observations_hold_what_numpy_gives() -> None:
    setting = handmade_setting()
    seen, one = observe(setting.model, setting.testing), setting.testing[0]
    attention = by_numpy(setting.model, one.token_ids)[1][:, :, -1, one.label_positions]
    assert seen.attention[0] == pytest.approx(attention.reshape(12, -1), abs=1e-5)
    assert seen.heads[8] == "L2H0"
