"""The tiny transformer: a Qwen3 of transformers at toy size, so that the same extraction runs on it."""

from typing import Any

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from readout.training.batches import BOS, UNKNOWN, VOCABULARY
from readout.training.presets import Preset


def build_model(preset: Preset, seed: int) -> Any:
    """Build the transformer with random weights.

    Parameters
    ----------
    preset : Preset
        Size and scale of the weights.
    seed : int
        Seed of the weights; the global generator of torch is left as it was.

    Returns
    -------
    transformers.Qwen3ForCausalLM
        In float32, in training mode.
    """
    config = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=preset.hidden,
        intermediate_size=preset.feed_forward,
        num_hidden_layers=preset.layers,
        num_attention_heads=preset.heads,
        num_key_value_heads=preset.heads,
        head_dim=preset.head_dim,
        attention_bias=True,
        tie_word_embeddings=False,
        initializer_range=preset.initializer_range,
        max_position_embeddings=512,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
        bos_token_id=BOS,
        eos_token_id=BOS,
        pad_token_id=UNKNOWN,
        dtype="float32",
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen3ForCausalLM(config)
    return model.train()
