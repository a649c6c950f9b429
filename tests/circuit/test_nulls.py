"""Where there is nothing to find, no claim is supported."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from handmade import DISTRIBUTION, handmade_model
from transformers import Qwen3Config, Qwen3ForCausalLM

from readout.circuit.gate import claim_4
from readout.circuit.identity import claim_1
from readout.circuit.readers import claim_3
from readout.circuit.setting import Setting, make_setting
from readout.circuit.steering import claim_6
from readout.circuit.suppressors import claim_5
from readout.circuit.writers import claim_2
from readout.models import LanguageModel, load_model
from readout.training.tokenizer import build_tokenizer


def random_model(seed: int) -> LanguageModel:
    tokenizer = build_tokenizer()
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        initializer_range=0.2,
    )
    return LanguageModel(Qwen3ForCausalLM(config), tokenizer, "random")


def supported(setting: Setting) -> list[int]:
    known = {3: claim_3(setting, {})}
    claims = [known[3], claim_1(setting, known), claim_2(setting, known), claim_5(setting, known)]
    return [one.number for one in claims if one.supported == "true"]


@pytest.mark.parametrize("seed", range(3))
def test_random_weights_support_no_claim(seed: int) -> None:
    assert supported(make_setting(random_model(seed), DISTRIBUTION, contexts=12, draws=20, seed=seed)) == []


@pytest.mark.parametrize("seed", range(2))
def test_labels_dealt_at_random_support_no_claim(seed: int) -> None:
    model = load_model("tiny", device="cpu", self_test=False)
    assert supported(make_setting(model, contexts=10, draws=20, seed=seed, permuted=True)) == []


def test_classes_that_cannot_be_exchanged_leave_the_writers_undecided() -> None:
    setting = make_setting(handmade_model(), replace(DISTRIBUTION, shots=((5, 3),)), contexts=10, draws=20)
    found = claim_2(setting, {3: claim_3(setting, {})})
    assert found.supported == "undecided"
    assert "cannot be exchanged" in found.notes[0] or "no reader" in found.notes[0]


def test_labels_of_other_frequencies_leave_the_suppressors_undecided() -> None:
    setting = make_setting(handmade_model(), replace(DISTRIBUTION, shots=((5, 3),)), contexts=10, draws=20)
    found = claim_5(setting, {})
    assert found.supported == "undecided"
    assert "as frequent as its last one" in found.notes[0]


def test_without_direct_effects_readers_are_undecided_and_the_reason_is_told() -> None:
    model = handmade_model()
    model.wiring = replace(model.wiring, final_norm=None, why_no_effect="the unembedding does not follow a norm")
    found = claim_3(make_setting(model, DISTRIBUTION, contexts=10, draws=20), {})
    assert found.supported == "undecided"
    assert "does not follow a norm" in found.notes[0]


def test_without_a_repeat_the_gate_is_not_tested():
    setting = make_setting(handmade_model(), replace(DISTRIBUTION, shots=1), contexts=10, draws=20)
    for claim in (claim_4, claim_6):
        found = claim(setting, {})
        assert found.supported == "undecided"
        assert "no prompt shows a label twice" in found.notes[0]
