"""The self-test of a loaded model: what it reads must be what the model does, or the model is refused."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from readout.errors import UnsupportedModelError
from readout.models.attention import Session
from readout.models.language_model import Edits, LanguageModel, Reading
from readout.models.packing import PackedBatch, pack

TOLERANCE = {torch.float32: 2e-4, torch.float16: 3e-2, torch.bfloat16: 2e-1}
"""Largest difference in log-probability that counts as the same, by precision."""


@dataclass(frozen=True)
class Check:
    """One finding of the self-test: what was compared, the largest deviation, the bound, and whether it held."""

    name: str
    value: float
    bound: float
    passed: bool


@dataclass(frozen=True)
class CheckReport:
    """All findings; ``can_share`` says whether prompts of a context may be packed into one row."""

    model: str
    checks: tuple[Check, ...]
    can_share: bool

    def summary(self) -> str:
        """One line a check."""
        lines = [f"{self.model}: self-test"]
        for one in self.checks:
            verdict = "ok" if one.passed else "FAILED"
            lines.append(f"  {one.name:<58} {one.value:9.2e}  bound {one.bound:7.1e}  {verdict}")
        lines.append(f"  prompts of a context are {'packed' if self.can_share else 'run one by one (packing differs)'}")
        return "\n".join(lines)


def check(model: LanguageModel, seed: int = 0) -> CheckReport:
    """Run the self-test and return its findings.

    Checked: attention rows sum to at most 1; they sum to 1 where the model has no learned sinks; a changed later token
    moves nothing before it; cutting all attention to a token moves the logits; a batch gives what single prompts give;
    the plain model (transformers' own attention) gives the same log-probabilities; packing does too.

    Raises
    ------
    UnsupportedModelError
        If one of them fails, naming it. A difference in packing alone only turns sharing off.
    """
    rng = np.random.default_rng(seed)
    n_vocabulary = int(model.model.get_input_embeddings().num_embeddings)
    tokens = rng.integers(0, n_vocabulary, 40)
    long, short = tokens[:14], tokens[14:25]
    branches = [np.concatenate([tokens[:10], tokens[25 + 5 * i : 25 + 5 * i + 3 + i]]) for i in range(2)]
    bound = TOLERANCE[model.dtype]
    all_columns = torch.arange(len(long))[None]

    alone = _read(model, pack([[long]]), all_columns)
    assert alone.attention is not None
    sums = alone.attention.sum(-1)
    checks = [Check("attention rows sum to at most 1", float(sums.max()) - 1, 1e-3, bool(sums.max() <= 1 + 1e-3))]

    changed = long.copy()
    changed[-1] = (changed[-1] + 1) % n_vocabulary
    both = _read(model, _query_before_last(pack([[long], [changed]])), None).log_probabilities
    checks.append(_close("a changed later token moves nothing before it", both[0], both[1], bound * 1e-1))

    cut = Edits(scores={part.layer: (_cut_previous,) for part in model.wiring.attentions})
    moved = _difference(_read(model, pack([[long]]), None, cut).log_probabilities, alone.log_probabilities)
    checks.append(Check("cutting attention to a token moves the logits", moved, bound * 1e-2, moved > bound * 1e-2))

    batch = _read(model, pack([[long], [short]]), None).log_probabilities
    single = torch.cat([alone.log_probabilities, _read(model, pack([[short]]), None).log_probabilities])
    checks.append(_close("a batch gives what single prompts give", batch, single, bound))
    checks.append(
        _close(
            "log-probabilities equal the plain model's",
            alone.log_probabilities[0],
            _plain(model, long),
            bound,
        )
    )
    failed = [one for one in checks if not one.passed]
    if failed:
        raise UnsupportedModelError(
            f"{type(model.model).__name__} ({model.name}) is not supported: the self-test failed at "
            + "; ".join(f"'{one.name}' (deviation {one.value:.2g}, bound {one.bound:.2g})" for one in failed)
        )
    packed = _read(model, pack([branches]), None).log_probabilities
    apart = torch.cat([_read(model, pack([[branch]]), None).log_probabilities for branch in branches])
    sharing = _close("packed prompts give what single prompts give", packed, apart, bound)
    return CheckReport(model.name, (*checks, sharing), sharing.passed)


def _read(model: LanguageModel, batch: PackedBatch, columns: Tensor | None, edits: Edits | None = None) -> Reading:
    candidates = torch.arange(32).expand(batch.n_prompts, -1)
    return model.run(batch, candidates, columns, edits=edits)


def _cut_previous(scores: Tensor, at: Tensor, session: Session) -> Tensor:
    cut = scores.clone()
    cut[:, :, :, -2] = -torch.inf
    return cut


def _query_before_last(batch: PackedBatch) -> PackedBatch:
    return PackedBatch(
        batch.token_ids, batch.positions, batch.segments, batch.queries - 1, batch.is_query, batch.causal_rows
    )


def _plain(model: LanguageModel, tokens: np.ndarray) -> Tensor:
    """Log-probabilities by transformers' own eager attention."""
    model.model.set_attn_implementation("eager")
    try:
        with torch.inference_mode():
            ids = torch.from_numpy(tokens).to(model.device)[None]
            logits: Tensor = model.model(input_ids=ids, use_cache=False).logits[0, -1].float()
    finally:
        model.model.set_attn_implementation("readout")
    return logits.log_softmax(-1)[:32]


def _difference(left: Tensor, right: Tensor) -> float:
    return float((left - right.to(left.device)).abs().max())


def _close(name: str, left: Tensor, right: Tensor, bound: float) -> Check:
    value = _difference(left, right)
    return Check(name, value, bound, value <= bound)
