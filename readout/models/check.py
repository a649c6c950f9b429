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
from readout.models.upcast import can_upcast, in_float32

TOLERANCE = {torch.float32: 2e-4, torch.float16: 3e-2, torch.bfloat16: 2e-1}
"""Largest difference in log-probability that counts as the same, by the precision that is computed in. A model of low
precision is checked in float32 where its weights can be cast, so the others are for quantised and offloaded ones."""
ROUNDING = 1.5
"""How many times further than the plain model of the same precision a reading may be from float32; in 45 families and
four draws each it was at most 1.2."""
N_ROUNDED = 32
"""Prompts whose deviations from float32 are compared."""


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

    In low precision rounding would hide a small mistake, and no fixed bound fits every model. All this is therefore
    checked in float32 with the same weights. Then, in the low precision, log-probabilities may be at most half as far
    again from float32 as the plain model's own.

    Raises
    ------
    UnsupportedModelError
        If one of them fails, naming it. A difference in packing alone only turns sharing off.
    """
    rng = np.random.default_rng(seed)
    n_vocabulary = int(model.model.get_input_embeddings().num_embeddings)
    tokens = rng.integers(0, n_vocabulary, 40)
    if model.dtype == torch.float32 or not can_upcast(model.model):
        return _refused_if_failed(model, *_findings(model, tokens, TOLERANCE[model.dtype]))
    prompts = rng.integers(0, n_vocabulary, (N_ROUNDED, 14))
    exact = TOLERANCE[torch.float32]
    with in_float32(model.model, model.wiring):
        checks, sharing = _findings(model, tokens, exact)
        reference = _plain(model, prompts)
    plain, read = _plain(model, prompts), _read(model, pack([[prompt] for prompt in prompts]), None).log_probabilities
    off, bound = _spread(read, reference), ROUNDING * _spread(plain, reference) + exact
    name = f"{model.provenance.get('dtype', model.dtype)}: deviation from float32, to the plain model's"
    return _refused_if_failed(model, [*checks, Check(name, off, bound, off <= bound)], sharing)


def _refused_if_failed(model: LanguageModel, checks: list[Check], sharing: Check) -> CheckReport:
    failed = [one for one in checks if not one.passed]
    if failed:
        raise UnsupportedModelError(
            f"{type(model.model).__name__} ({model.name}) is not supported: the self-test failed at "
            + "; ".join(f"'{one.name}' (deviation {one.value:.2g}, bound {one.bound:.2g})" for one in failed)
        )
    return CheckReport(model.name, (*checks, sharing), sharing.passed)


def _findings(model: LanguageModel, tokens: np.ndarray, bound: float) -> tuple[list[Check], Check]:
    """What must hold, and whether packing changes nothing."""
    n_vocabulary = int(model.model.get_input_embeddings().num_embeddings)
    long, short = tokens[:14], tokens[14:25]
    branches = [np.concatenate([tokens[:10], tokens[25 + 5 * i : 25 + 5 * i + 3 + i]]) for i in range(2)]
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
    plain = _plain(model, long[None])
    checks.append(_close("log-probabilities equal the plain model's", alone.log_probabilities, plain, bound))
    packed = _read(model, pack([branches]), None).log_probabilities
    apart = torch.cat([_read(model, pack([[branch]]), None).log_probabilities for branch in branches])
    return checks, _close("packed prompts give what single prompts give", packed, apart, bound)


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
    """Log-probabilities after each row of tokens by transformers' own eager attention."""
    model.model.set_attn_implementation("eager")
    try:
        with torch.inference_mode():
            ids = torch.from_numpy(tokens).to(model.device)
            logits: Tensor = model.model(input_ids=ids, use_cache=False).logits[:, -1].float()
    finally:
        model.model.set_attn_implementation("readout")
    return logits.log_softmax(-1)[:, :32]


def _difference(left: Tensor, right: Tensor) -> float:
    return float((left - right.to(left.device)).abs().max())


def _spread(read: Tensor, reference: Tensor) -> float:
    """Root mean square over candidates, of the median prompt: rounding that is amplified in one prompt is no sign."""
    return float((read - reference.to(read.device)).square().mean(1).sqrt().median())


def _close(name: str, left: Tensor, right: Tensor, bound: float) -> Check:
    value = _difference(left, right)
    return Check(name, value, bound, value <= bound)
