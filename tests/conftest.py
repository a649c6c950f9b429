"""A tiny random language model whose tokenizer knows the label words, in a local folder as transformers writes it."""

from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from readout.models import LanguageModel
from readout.prompts import label_pool

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a 3-layer model with random weights: 4 query heads, 2 key-value heads."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=1200, initial_alphabet=alphabet, show_progress=False, min_frequency=1)
    words = [*label_pool("words"), *label_pool("names")]
    tokenizer.train_from_iterator([" " + " ".join(words)] * 3, trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer)
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=len(fast),
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        initializer_range=0.2,
    )
    folder = tmp_path_factory.mktemp("tiny-model")
    Qwen3ForCausalLM(config).save_pretrained(folder)
    fast.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def tiny_model(tiny_folder: Path) -> LanguageModel:
    """The tiny model, loaded by the package from its folder."""
    from readout.models import load_model

    return load_model(str(tiny_folder), device="cpu")
