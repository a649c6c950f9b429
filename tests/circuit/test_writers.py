"""Writers of the hand-built model: found among all heads, and with the effects that NumPy gives."""

from __future__ import annotations

import numpy as np
import pytest
from handmade import by_numpy, handmade_setting, logit_difference, replaced

from readout.circuit.claim import Claim
from readout.circuit.pairs import class_swapped
from readout.circuit.readers import claim_3, named
from readout.circuit.writers import claim_2


@pytest.fixture(scope="module")
def claim() -> Claim:
    setting = handmade_setting()
    return claim_2(setting, {3: claim_3(setting, {})})


def test_the_writer_alone_is_named(claim: Claim) -> None:
    assert named(claim, "writer") == ((1, 0),)
    assert claim.supported == "true"


def test_its_effect_is_the_share_that_numpy_gives(claim: Claim) -> None:
    setting = handmade_setting()
    moved, total = 0.0, 0.0
    for one in setting.testing:
        other = class_swapped(one).token_ids
        there, _, outputs = by_numpy(setting.model, other)
        before = logit_difference(one, by_numpy(setting.model, one.token_ids)[0])
        change = replaced(1, 0, one.label_positions, outputs[1][one.label_positions, 0])
        moved += before - logit_difference(one, by_numpy(setting.model, one.token_ids, change)[0])
        total += before - logit_difference(one, there)
    assert claim.effect.value == pytest.approx(moved / total, abs=1e-5)
    assert claim.effect.value == pytest.approx(1.0, abs=1e-3)


def test_no_other_head_moves_anything(claim: Claim) -> None:
    heads = claim.curves["heads"]
    for name, difference, gap in zip(heads["heads"], heads["logit_difference"], heads["gap"], strict=True):
        wanted = 1.0 if name == "L1H0" else 0.0
        assert (difference, gap) == pytest.approx((wanted, wanted), abs=1e-3), name


def test_the_gap_turns_round_with_the_logit_difference(claim: Claim) -> None:
    assert claim.curves["named"]["gap"]["value"] == pytest.approx(1.0, abs=1e-3)
    assert claim.parts[0].evidence["gap_after"] < 0


def test_cutting_labels_from_their_own_text_does_what_numpy_says(claim: Claim) -> None:
    setting = handmade_setting()

    def cut(prompt: object) -> object:
        def change(layer: int, scores: np.ndarray) -> np.ndarray:
            scores = scores.copy()
            if layer == 1:
                for label, (start, stop) in zip(prompt.label_positions, prompt.demonstration_spans, strict=True):  # type: ignore[attr-defined]
                    scores[:, label, start:stop] = -np.inf
            return scores

        return change

    before = [logit_difference(one, by_numpy(setting.model, one.token_ids)[0]) for one in setting.testing]
    after = [
        logit_difference(one, by_numpy(setting.model, one.token_ids, scores=cut(one))[0])  # type: ignore[arg-type]
        for one in setting.testing
    ]
    edges = claim.curves["edges"]
    assert edges["windows"] == [[0, 0], [1, 1], [2, 2]]
    share = 1 - np.sum(after) / np.sum(before)
    assert edges["own"]["logit_difference"] == pytest.approx([0.0, share, 0.0], abs=1e-4)
    assert edges["another"]["logit_difference"] == pytest.approx([0.0] * 3, abs=1e-3)


def test_the_residual_stream_turns_the_answer_after_the_writer(claim: Claim) -> None:
    curve = claim.curves["residual"]
    assert curve["layer"] == [0, 1, 2]
    assert curve["logit_difference"][0] == pytest.approx(curve["logit_difference"][1], abs=1e-4)
    assert curve["low"][1] > 0 > curve["high"][2]


def test_without_a_reader_the_claim_is_undecided(claim: Claim) -> None:
    setting = handmade_setting()
    nobody = claim_3(setting, {})
    nobody = type(nobody)(**{**nobody.__dict__, "parts": ()})
    found = claim_2(setting, {3: nobody})
    assert found.supported == "undecided"
    assert "no reader" in found.notes[0]
