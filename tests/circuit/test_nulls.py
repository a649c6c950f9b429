"""Where there is nothing to find, no claim is supported."""

from __future__ import annotations

import pytest
import torch
from handmade import DISTRIBUTION
from transformers import Qwen3Config, Qwen3ForCausalLM

from readout.circuit.identity import claim_1
from readout.circuit.readers import claim_3
from readout.circuit.setting import Setting, make_setting
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
    assert supported(make_setting(model, contexts=12, draws=20, seed=seed, permuted=True)) == []
