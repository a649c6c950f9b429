"""Readers of the hand-built model: named, and with the effects that NumPy gives."""

from __future__ import annotations

import numpy as np
import pytest
from handmade import by_numpy, handmade_setting, logit_difference, mean_output, replaced

from readout.circuit.claim import Claim
from readout.circuit.readers import claim_3, name_heads, named
from readout.statistics import cluster_ratios


@pytest.fixture(scope="module")
def claim() -> Claim:
    return claim_3(handmade_setting(), {})


def falls(layer: int, head: int) -> tuple[np.ndarray, np.ndarray]:
    """Unedited logit differences of the testing half and their falls under mean ablation, in NumPy."""
    setting = handmade_setting()
    mean = mean_output(setting.model, [*setting.choosing, *setting.testing], layer, head)
    before, after = [], []
    for one in setting.testing:
        before.append(logit_difference(one, by_numpy(setting.model, one.token_ids)[0]))
        edited = by_numpy(setting.model, one.token_ids, replaced(layer, head, -1, mean))[0]
        after.append(logit_difference(one, edited))
    return np.array(before), np.array(before) - np.array(after)


def test_the_reader_and_the_anti_copying_head_are_named(claim: Claim) -> None:
    assert named(claim, "reader") == ((2, 0),)
    assert named(claim, "anti-copying") == ((2, 2),)


def test_the_effect_is_the_share_that_numpy_gives(claim: Claim) -> None:
    before, fall = falls(2, 0)
    contexts = np.array([one.prompt.context for one in handmade_setting().testing])
    expected = cluster_ratios(fall[:, None], before[:, None], contexts)[0]
    assert claim.effect.value == pytest.approx(expected.value, abs=1e-5)
    assert (claim.effect.low, claim.effect.high) == pytest.approx((expected.low, expected.high), abs=1e-5)


def test_ablating_the_anti_copying_head_raises_the_logit_difference_as_in_numpy(claim: Claim) -> None:
    before, fall = falls(2, 2)
    part = next(one for one in claim.parts if one.role == "anti-copying")
    assert part.effect.value == pytest.approx(-fall.sum() / before.sum(), abs=1e-5)
    assert part.effect.low > 0


def test_gap_and_copy_slope_are_those_of_the_weights(claim: Claim) -> None:
    setting, reader = handmade_setting(), claim.parts[0]
    gaps = []
    for one in setting.testing:
        attention = by_numpy(setting.model, one.token_ids)[1][2, 0, -1, one.label_positions]
        match = np.array([shown.class_name == one.prompt.query_class for shown in one.prompt.demonstrations])
        gaps.append(attention[match].mean() - attention[~match].mean())
    assert reader.evidence["gap"] == pytest.approx(np.mean(gaps), abs=1e-5)
    assert reader.evidence["copy_slope"] == pytest.approx(8.0, abs=1e-3)


def test_the_sweep_has_every_head_and_idle_ones_change_nothing(claim: Claim) -> None:
    sweep = claim.curves["sweep"]
    change = dict(zip(sweep["heads"], sweep["change"], strict=True))
    assert len(change) == 12
    assert [change[name] for name in ("L0H2", "L0H3", "L1H2", "L2H3")] == pytest.approx([0.0] * 4, abs=1e-5)
    assert change["L2H0"] == pytest.approx(-falls(2, 0)[1].mean(), abs=1e-4)


def test_no_random_head_of_the_layer_comes_near_the_reader(claim: Claim) -> None:
    assert claim.supported == "true"
    assert claim.p == pytest.approx(1 / 21)
    assert claim.curves["named"] < min(claim.curves["random"])
    assert any("different" in note for note in claim.notes)


def test_heads_are_named_on_the_choosing_half_alone() -> None:
    setting, table = handmade_setting(), name_heads(handmade_setting())
    assert table.contexts == (len(setting.choosing), len(setting.testing))


def test_a_claim_survives_writing_and_reading(claim: Claim) -> None:
    assert Claim.from_dict(claim.to_dict()) == claim
