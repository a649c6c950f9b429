"""Taps and edits of the one attention function, against sums written out by hand."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from families import tiny
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from readout.models import Edits, LanguageModel, Session, attention, pack
from readout.models.packing import shared_length

RNG = np.random.default_rng(1)
SHARED = RNG.integers(3, 96, 12)
BRANCHES = [np.concatenate([SHARED, RNG.integers(3, 96, n)]) for n in (2, 5, 3)]
CANDIDATES = torch.arange(20)
READ = ("llama", "gemma2", "gpt_oss", "gpt2", "mistral", "qwen3")

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")


def run(model: LanguageModel, contexts: list[list[np.ndarray]], edits: Edits | None = None, width: int = 10) -> Tensor:
    batch = pack(contexts)
    columns = torch.arange(width).expand(len(contexts), -1)
    reading = model.run(batch, CANDIDATES.expand(batch.n_prompts, -1), columns, edits=edits)
    return torch.cat([reading.log_probabilities, reading.attention.flatten(1)], 1)


def test_the_shared_part_leaves_every_prompt_a_token_of_its_own() -> None:
    assert shared_length([np.array([1, 2, 3]), np.array([1, 2, 3, 4])]) == 2
    assert shared_length([np.array([1, 2, 3]), np.array([1, 5, 3])]) == 1
    assert shared_length([np.array([1, 2, 3])]) == 3


def test_a_packed_row_holds_the_shared_part_once() -> None:
    batch = pack([[np.array([7, 8, 1]), np.array([7, 8, 2, 3])]])
    assert batch.token_ids.tolist() == [[7, 8, 1, 2, 3]]
    assert batch.positions.tolist() == [[0, 1, 2, 2, 3]]
    assert batch.segments.tolist() == [[0, 0, 1, 2, 2]]
    assert batch.queries.tolist() == [[2, 4]]


@pytest.mark.parametrize("family", READ)
def test_reading_in_small_blocks_without_keeping_masks_changes_nothing(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = LanguageModel(tiny(family))
    whole = run(model, [BRANCHES, BRANCHES[:1]])
    monkeypatch.setattr(attention, "BLOCK", 3)
    monkeypatch.setattr(attention, "KEPT_MASK", 0)
    torch.testing.assert_close(run(model, [BRANCHES, BRANCHES[:1]]), whole, atol=2e-5, rtol=0)


def replace_first_head(outputs: Tensor, session: Session) -> Tensor:
    outputs = outputs.clone()
    outputs[:, :, 0] = 0.25
    return outputs


@pytest.mark.parametrize("family", READ)
def test_replacing_a_heads_output_equals_a_hook_on_the_output_projection(family: str) -> None:
    plain = tiny(family)
    model = LanguageModel(plain)
    layer = model.wiring.attentions[1]
    edited = run(model, [BRANCHES], Edits(outputs={layer.layer: (replace_first_head,)}))[:, : len(CANDIDATES)]

    def hook(module: torch.nn.Module, given: tuple[Tensor]) -> tuple[Tensor]:
        changed = given[0].clone()
        changed[..., : layer.value_dim] = 0.25
        return (changed,)

    plain.set_attn_implementation("eager")
    handle = layer.projection.register_forward_pre_hook(hook)
    for number, tokens in enumerate(BRANCHES):
        with torch.no_grad():
            logits = plain(torch.from_numpy(tokens)[None], use_cache=False).logits[0, -1]
        torch.testing.assert_close(edited[number], logits.log_softmax(-1)[: len(CANDIDATES)], atol=2e-5, rtol=0)
    handle.remove()


@pytest.mark.parametrize("family", READ)
def test_cutting_an_edge_leaves_its_weight_to_the_others(family: str) -> None:
    model = LanguageModel(tiny(family))
    at = len(SHARED) - 1  # the last shared token: inside every window, seen from every branch

    def cut(scores: Tensor, rows: Tensor, session: Session) -> Tensor:
        scores = scores.clone()
        scores[:, 2, :, at] = -torch.inf
        return scores

    batch = pack([[branch[: len(SHARED) + 1] for branch in BRANCHES]])
    columns, candidates = torch.arange(at + 1)[None], CANDIDATES.expand(3, -1)
    first = model.wiring.attentions[0].layer
    before = model.run(batch, candidates, columns).attention[:, 2]
    after = model.run(batch, candidates, columns, edits=Edits(scores={first: (cut,)})).attention[:, 2]
    assert (before[:, at] > 0).all()
    assert (after[:, at] == 0).all()
    if family != "gpt_oss":  # a learned sink takes its share anew
        expected = before / (1 - before[:, at : at + 1])
        torch.testing.assert_close(after[:, :at], expected[:, :at], atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("family", READ)
def test_no_bias_on_scores_lifts_the_causal_mask(family: str) -> None:
    model = LanguageModel(tiny(family))

    def bias(scores: Tensor, rows: Tensor, session: Session) -> Tensor:
        return scores + torch.linspace(0, 50, scores.shape[-1])

    edits = Edits(scores={part.layer: (bias,) for part in model.wiring.attentions})
    changed = BRANCHES[1].copy()
    changed[-1] += 1

    def before_last(tokens: np.ndarray) -> Tensor:
        batch = pack([[tokens]])
        batch.queries[:] -= 1
        return model.run(batch, CANDIDATES[None], edits=edits).log_probabilities

    assert torch.equal(before_last(BRANCHES[1]), before_last(changed))


def test_a_query_sees_no_other_query_of_its_context() -> None:
    model = LanguageModel(tiny("llama"))
    others = [BRANCHES[0], BRANCHES[1][::-1].copy(), BRANCHES[2]]
    others[1][: len(SHARED)] = SHARED
    torch.testing.assert_close(run(model, [BRANCHES])[[0, 2]], run(model, [others])[[0, 2]], atol=0, rtol=0)


def test_a_model_works_as_usual_outside_a_session() -> None:
    model = tiny("qwen3")
    ids = torch.from_numpy(BRANCHES[1])[None]
    expected = model.generate(ids, max_new_tokens=5, do_sample=False)
    LanguageModel(model)
    assert torch.equal(model.generate(ids, max_new_tokens=5, do_sample=False), expected)


class Largest(TorchDispatchMode):
    """Entries of the largest tensor that an operation returns."""

    entries = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        result = function(*args, **(kwargs or {}))
        for one in result if isinstance(result, tuple | list) else (result,):
            if isinstance(one, Tensor):
                self.entries = max(self.entries, one.numel())
        return result


@pytest.mark.parametrize("family", ["llama", "gemma2"])
def test_the_largest_tensor_grows_with_the_prompt_and_not_with_its_square(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "KEPT_MASK", 2**16)
    model = LanguageModel(tiny(family))
    sizes = []
    for length in (600, 1200):
        shared = RNG.integers(3, 96, length)
        batch = pack([[np.append(shared, 5), np.append(shared, 6)]])
        with Largest() as watch:
            model.run(batch, CANDIDATES.expand(2, -1), torch.tensor([[0, 9]]), effects=True)
        sizes.append(watch.entries)
    assert sizes[1] <= 2.1 * sizes[0]


def test_a_changed_core_is_what_sessions_taps_and_ordinary_passes_compute_with() -> None:
    """Adding a constant to the last row's scores of a key, by one more dimension of queries and keys."""
    model = LanguageModel(tiny("llama"))
    tokens, key = BRANCHES[0], 3

    def lengthen(module: torch.nn.Module, core: attention.Core) -> attention.Core:
        query = torch.nn.functional.pad(core.query, (0, 1), value=1.0)
        extra = torch.zeros(*core.key.shape[:3], 1)
        extra[:, :, key] = 1.5 / core.scaling
        return replace(core, query=query, key=torch.cat([core.key, extra], -1))

    def bias(scores: Tensor, at: Tensor, session: Session) -> Tensor:
        scores = scores.clone()
        scores[..., key] += 1.5
        return scores

    wanted = run(model, [[tokens]], Edits(scores={part.layer: (bias,) for part in model.wiring.attentions}))
    with attention.changing(lengthen):
        found = run(model, [[tokens]])
        with torch.no_grad():
            logits = model.model(torch.from_numpy(tokens)[None], use_cache=False).logits[0, -1]
    torch.testing.assert_close(found, wanted, atol=2e-5, rtol=1e-4)
    torch.testing.assert_close(
        logits.log_softmax(-1)[: len(CANDIDATES)], wanted[0, : len(CANDIDATES)], atol=2e-5, rtol=0
    )
    assert (found - run(model, [[tokens]])).abs().max() > 1e-2
