"""Claims 4, 6 and 7 on the model set by hand, whose gate is known on paper, and on the built-in one."""

import numpy as np
import pytest
from handmade import DISTRIBUTION, handmade_model

from readout.circuit import Intervention, intervene
from readout.circuit.carriers import find_carriers
from readout.circuit.claim import Claim
from readout.circuit.gate import claim_4
from readout.circuit.setting import Setting, make_setting
from readout.circuit.signal import Gate, find_gate, gate_from
from readout.circuit.steering import STRENGTHS, claim_6
from readout.circuit.sufficiency import keep_only, named_heads
from readout.models import load_model


@pytest.fixture(scope="module")
def setting() -> Setting:
    return make_setting(handmade_model(), DISTRIBUTION, contexts=12, draws=20)


@pytest.fixture(scope="module")
def gate(setting: Setting) -> Gate:
    return find_gate(setting, {})


@pytest.fixture(scope="module")
def claim(setting: Setting) -> Claim:
    return claim_4(setting, {})


def test_the_signal_is_found_where_the_gate_head_writes_it(gate: Gate) -> None:
    assert gate.readers[0] == (2, 0)
    assert (gate.place, gate.layer, gate.measured_by) == ("query", 2, "first-token attention")


def test_the_direction_is_the_flag_that_a_label_has_repeated(setting: Setting, gate: Gate) -> None:
    # One flag of the residual stream goes from 0 to almost 1; nothing else differs on average.
    assert np.sort(np.abs(gate.direction))[-1] == pytest.approx(1.0, abs=0.01)
    assert np.sort(np.abs(gate.direction))[-2] == pytest.approx(0.0, abs=1e-3)


def test_the_carriers_are_the_gate_head_and_the_heads_that_see_a_label_again(setting: Setting, gate: Gate) -> None:
    assert {one[:2] for one in find_carriers(setting, gate)} == {(1, 1), (0, 0)}


def test_the_readers_first_token_attention_is_that_of_the_paper(claim: Claim) -> None:
    # Scores: 6 to the first token; 7 to 4 matching labels and 4 to 4 others, without a repeat -1 and -4; 0 to 18 more.
    opened = np.exp(6) / (np.exp(6) + 4 * np.exp(7) + 4 * np.exp(4) + 18)
    closed = np.exp(6) / (np.exp(6) + 4 * np.exp(-1) + 4 * np.exp(-4) + 18)
    found = claim.curves["openness"]
    assert found["repeated"]["readers"]["L2H0"]["first token"]["value"] == pytest.approx(opened, abs=0.002)
    assert found["single"]["readers"]["L2H0"]["first token"]["value"] == pytest.approx(closed, abs=0.002)


def test_claim_4_is_true_of_the_model_set_by_hand(claim: Claim) -> None:
    assert claim.supported == "true", claim.summary()
    assert claim.control.value == pytest.approx(0.0, abs=1e-3)
    place = next(part for part in claim.parts if part.head < 0)
    assert place.effect.value == pytest.approx(1.0, abs=0.01)


def test_patching_the_changed_tokens_own_place_is_not_offered(claim: Claim) -> None:
    grid = claim.curves["patching"]
    assert all(grid["opened"][place][0][0]["value"] == pytest.approx(0.0, abs=1e-6) for place in grid["places"])


def test_steering_by_the_models_own_signals_is_the_whole_gate(setting: Setting, claim: Claim) -> None:
    found = claim_6(setting, {4: claim})
    assert found.supported == "true", found.summary()
    own = found.curves["dose"]["opening"]["own"][0]
    assert own[STRENGTHS.index(0.0)]["value"] == pytest.approx(0.0, abs=1e-9)
    assert own[STRENGTHS.index(1.0)]["value"] == pytest.approx(1.0, abs=0.01)
    assert len(found.curves["dose"]["opening"]["random"][0]) >= 20


def test_the_gate_of_a_finished_claim_is_the_one_that_was_found(setting: Setting, gate: Gate, claim: Claim) -> None:
    again = gate_from(setting, claim, {})
    assert again.site == gate.site
    np.testing.assert_allclose(again.direction, gate.direction, atol=1e-6)


def test_random_and_shuffled_directions_have_the_norm_of_the_signal_or_none(gate: Gate) -> None:
    norm = np.linalg.norm(gate.direction)
    np.testing.assert_allclose(np.linalg.norm(gate.random(5, 0), axis=1), norm)
    # All prompts differ by the same flag, so that shuffled halves do not differ at all.
    assert np.linalg.norm(gate.shuffled(5, 0), axis=1).max() < 0.01 * norm


def test_keeping_all_heads_keeps_everything(setting: Setting) -> None:
    model = setting.model
    outcome = intervene(model, setting.testing, [keep_only(model, model.heads)])
    np.testing.assert_allclose(outcome.effect(), 0.0, atol=1e-6)


def test_keeping_what_the_query_needs_keeps_all_but_the_suppressor(setting: Setting) -> None:
    # At the query: its class, the gate and the reader. The suppressor and the copy that pushes down are left out,
    # and their means favour no label.
    model = setting.model
    kept = intervene(
        model, setting.testing, [keep_only(model, [(0, 1), (1, 1), (2, 0)])], reference=setting.choosing
    ).logit_difference()[0]
    reader = intervene(model, setting.testing, [Intervention("", ())], watch=[(2, 0)])
    gap = reader.gap(reader.unedited)[:, 0]
    np.testing.assert_allclose(kept - kept.mean(), 8 * (gap - gap.mean()), atol=1.0)
    assert kept.mean() == pytest.approx(8 * gap.mean(), abs=1.0)


def test_named_heads_are_those_of_claims_1_to_5_each_once(claim: Claim) -> None:
    assert set(named_heads({4: claim, 6: claim})) == {(1, 1), (0, 0)}


def test_the_built_in_models_label_mass_is_gated_by_the_repeat() -> None:
    found = claim_4(make_setting(load_model("tiny", device="cpu", self_test=False), contexts=10, draws=20), {})
    mass = next(one for one in found.curves["components"] if one["name"] == "label mass")
    assert mass["effect"]["low"] > 0.5
    assert mass["control"]["high"] < 0.1
