"""What is read from every architecture equals what transformers' own eager attention says."""

import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from families import FAMILIES, HYBRIDS, REFUSED, tiny

from readout.cli import commands
from readout.errors import UnsupportedModelError
from readout.models import LanguageModel, check, load_model, pack
from readout.training.tokenizer import build_tokenizer

RNG = np.random.default_rng(0)
SHARED = RNG.integers(3, 96, 20)
PROMPTS = [np.concatenate([SHARED, RNG.integers(3, 96, n)]) for n in (3, 4, 2)] + [RNG.integers(3, 96, 15)]
BATCH = pack([PROMPTS[:3], PROMPTS[3:]])
COLUMNS = torch.tensor([[0, 5, 14, 19], [0, 3, 4, 14]])
CANDIDATES = torch.tensor([[7, 11]] * 4)

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")


def silence_mlps(model: torch.nn.Module) -> None:
    """Leave the embedding and the heads as the only writers to the residual stream."""
    writers = ("mlp", "ffn", "feed_forward", "moe", "fc1", "fc2", "expert")
    for name, parameter in model.named_parameters():
        if any(part in name for part in writers) or (name.endswith("bias") and "norm" not in name):
            parameter.data.zero_()


def test_at_least_25_families_are_covered() -> None:
    assert len(FAMILIES) >= 25


@pytest.mark.parametrize("family", FAMILIES)
def test_packed_reading_equals_eager_attention_prompt_by_prompt(family: str) -> None:
    model = tiny(family)
    reader = LanguageModel(model)
    reading = reader.run(BATCH, CANDIDATES, COLUMNS, residuals={1: torch.tensor([[3, -1], [3, -1]])})
    model.set_attn_implementation("eager")
    for number, tokens in enumerate(PROMPTS):
        with torch.no_grad():
            ids = torch.from_numpy(tokens)[None]
            plain = model(ids, output_attentions=True, output_hidden_states=True, use_cache=False)
        columns = COLUMNS[0 if number < 3 else 1]
        expected = torch.cat([layer[0, :, -1, : len(tokens)] for layer in plain.attentions])
        torch.testing.assert_close(reading.attention[number], expected[:, columns], atol=3e-6, rtol=0)
        log_probabilities = plain.logits[0, -1].log_softmax(-1)[CANDIDATES[number]]
        torch.testing.assert_close(reading.log_probabilities[number], log_probabilities, atol=2e-5, rtol=0)
        torch.testing.assert_close(
            reading.residuals[1][number], plain.hidden_states[1][0, [3, -1]], atol=5e-5, rtol=1e-4
        )


@pytest.mark.parametrize("family", HYBRIDS)
def test_a_hybrid_is_read_at_its_attention_layers_and_says_which_others_it_has(family: str) -> None:
    model = tiny(family)
    reader = LanguageModel(model)
    attending = [part.layer for part in reader.wiring.attentions]
    assert attending
    assert reader.wiring.without_attention
    assert not set(attending) & set(reader.wiring.without_attention)
    assert not check(reader).can_share  # a recurrence runs through all tokens of a row
    reading = reader.run(pack([[tokens] for tokens in PROMPTS]), CANDIDATES, COLUMNS[[0, 0, 0, 1]])
    watched: list[torch.Tensor] = []
    eager = next(part.module for part in reader.wiring.attentions).__class__
    model.set_attn_implementation("eager")
    for module in model.modules():
        if isinstance(module, eager):
            module.register_forward_hook(lambda _, given, result: watched.append(result[1]))
    for number, tokens in enumerate(PROMPTS):
        watched.clear()
        with torch.no_grad():
            plain = model(torch.from_numpy(tokens)[None], use_cache=False)
        expected = torch.cat([one[0, :, -1] for one in watched])[:, COLUMNS[0 if number < 3 else 1]]
        torch.testing.assert_close(reading.attention[number], expected, atol=3e-6, rtol=0)
        log_probabilities = plain.logits[0, -1].log_softmax(-1)[CANDIDATES[number]]
        torch.testing.assert_close(reading.log_probabilities[number], log_probabilities, atol=2e-5, rtol=0)


@pytest.mark.parametrize("family", FAMILIES)
def test_direct_effects_of_all_heads_and_the_embedding_add_up_to_the_logits_when_mlps_are_silent(family: str) -> None:
    model = tiny(family)
    silence_mlps(model)
    reader = LanguageModel(model)
    first = reader.wiring.attentions[0].layer
    reading = reader.run(BATCH, CANDIDATES, effects=True, residuals={first: torch.tensor([[-1], [-1]])})
    seen: dict[str, torch.Tensor] = {}
    hook = reader.wiring.final_norm.register_forward_hook(
        lambda _, given, result: seen.update(given=given[0][0, -1], result=result[0, -1])
    )
    unembedding = reader.wiring.unembedding.weight * reader.wiring.logit_scale
    for number, tokens in enumerate(PROMPTS):
        with torch.no_grad():
            model(torch.from_numpy(tokens)[None], use_cache=False)
            rows = unembedding[CANDIDATES[number]].float()
            frozen = reader._final_norm
            logits = rows @ (seen["result"] - frozen.shift)
            towards = frozen.pull_back(rows, seen["given"][None], seen["result"][None])
            embedding = towards @ reading.residuals[first][number, 0]
        total = reading.effects[number].sum(0) + embedding
        torch.testing.assert_close(total, logits, atol=2e-4, rtol=2e-4)
    hook.remove()


@pytest.mark.parametrize("family", FAMILIES)
def test_the_self_test_passes_and_allows_sharing(family: str) -> None:
    report = check(LanguageModel(tiny(family)))
    assert all(one.passed for one in report.checks)
    assert report.can_share


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_self_test_passes_in_low_precision_too(family: str, dtype: torch.dtype) -> None:
    assert check(LanguageModel(tiny(family).to(dtype))).can_share


@pytest.mark.parametrize("family", REFUSED)
def test_a_family_that_cannot_be_read_is_refused_by_name(family: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = tiny(family)
        with pytest.raises(UnsupportedModelError, match=r"(ForCausalLM|Attention|LMHeadModel) is not supported"):
            LanguageModel(model)


def test_the_self_test_of_a_hybrid_tells_which_layers_are_read(tmp_path: Path) -> None:
    tiny("lfm2").save_pretrained(tmp_path)
    build_tokenizer().save_pretrained(tmp_path)
    result = CliRunner().invoke(
        commands, ["models", "--check", str(tmp_path), "--device", "cpu"], catch_exceptions=False
    )
    assert "the layers that attend (1) and in no other" in result.output
    assert load_model(str(tmp_path), device="cpu").provenance["layers_without_attention"] == [0, 2]
