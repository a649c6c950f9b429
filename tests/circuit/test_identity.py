"""Label identity in the hand-built model: at label positions wholly, at others not at all."""

from __future__ import annotations

import numpy as np
import pytest
from handmade import by_numpy, handmade_setting, logit_difference

from readout.circuit.claim import Claim
from readout.circuit.identity import claim_1
from readout.circuit.pairs import label_swapped


@pytest.fixture(scope="module")
def claim() -> Claim:
    return claim_1(handmade_setting(), {})


def test_patching_label_positions_moves_the_answer_all_the_way(claim: Claim) -> None:
    assert claim.curves["labels"]["share"] == pytest.approx([1.0, 1.0], abs=1e-4)
    assert claim.supported == "true"


def test_patching_text_or_random_positions_moves_nothing(claim: Claim) -> None:
    assert claim.curves["texts"]["share"] == pytest.approx([0.0, 0.0], abs=1e-4)
    assert claim.curves["random"]["share"] == pytest.approx([0.0, 0.0], abs=1e-4)
    assert claim.control.value == pytest.approx(0.0, abs=1e-4)


def test_the_whole_is_the_way_to_the_swapped_prompt_in_numpy(claim: Claim) -> None:
    setting = handmade_setting()
    ways = []
    for one in setting.testing:
        here, there = (by_numpy(setting.model, tokens)[0] for tokens in (one.token_ids, label_swapped(one).token_ids))
        ways.append(logit_difference(one, here) - logit_difference(one, there))
    assert claim.curves["total"]["value"] == pytest.approx(np.mean(ways), abs=1e-4)


def test_it_is_stated_at_the_last_layer_that_moves_half_of_the_way_and_never_at_the_first(claim: Claim) -> None:
    assert claim.curves["stated_layer"] == 2
    assert claim.curves["layer"] == [1, 2]
