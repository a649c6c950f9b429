"""The router: two small networks that turn an embedding into alpha and gamma, and the loss that trains them.

Source: icr.md, sections 1.4 (equations 8 and 9), 1.5 (equations 11 to 14) and 9 (what the paper leaves open).
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from readout.errors import ReadoutError
from readout.icr.routing import Weights

CrossEntropy = Literal["vocabulary", "answers"]


@dataclass(frozen=True)
class RouterSettings:
    """How a router is built and trained; the loss' weights are the paper's, the rest is chosen for small runs.

    Attributes
    ----------
    hidden : int
        Width of the networks' one hidden layer.
    gate_bias : float
        Where the gates start: sigmoid(gate_bias).
    confidence, sparsity, gating : float
        Weights of the three terms beside cross-entropy (0 leaves one out).
    cross_entropy : str
        Over the whole "vocabulary" (the paper) or over the "answers" only.
    deepest : float
        Weight of the deepest layer in the sparsity term; the first routed one has 1, linear between.
    learning_rate, weight_decay, clip : float
        Of AdamW, and the largest norm of a gradient.
    batch, epochs : int
        Queries of a step, and passes over all.
    last_scale : float
        Alpha is scaled by 1 in the first epoch and by this in the last, along half a cosine, and at inference.
    seed : int
        Seed of the router's start and of the order of queries.
    """

    hidden: int = 256
    gate_bias: float = 0.0
    confidence: float = 0.01
    sparsity: float = 1e-3
    gating: float = 0.02
    cross_entropy: CrossEntropy = "vocabulary"
    deepest: float = 3.0
    learning_rate: float = 1e-3
    weight_decay: float = 0.01
    clip: float = 1.0
    batch: int = 16
    epochs: int = 4
    last_scale: float = 0.8
    seed: int = 0

    def __post_init__(self) -> None:
        if self.cross_entropy not in ("vocabulary", "answers"):
            raise ReadoutError(f"cross_entropy {self.cross_entropy!r}: expected vocabulary or answers")
        positive = ("hidden", "learning_rate", "clip", "batch", "epochs", "last_scale")
        wrong = [name for name in positive if not getattr(self, name) > 0]
        if wrong or min(self.confidence, self.sparsity, self.gating, self.seed) < 0:
            raise ReadoutError(f"router settings: {', '.join(wrong) or 'loss weights and seed'} must be positive")

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> RouterSettings:
        """Read what `to_dict` wrote.

        Raises
        ------
        ReadoutError
            If a name is unknown.
        """
        unknown = set(data) - {field.name for field in fields(cls)}
        if unknown:
            raise ReadoutError(f"router settings: unknown {', '.join(sorted(unknown))}")
        return cls(**data)

    def scale(self, epoch: int) -> float:
        """Factor of alpha in an epoch."""
        if self.epochs == 1:
            return self.last_scale
        turn = 1 + math.cos(math.pi * epoch / (self.epochs - 1))
        return self.last_scale + (1 - self.last_scale) / 2 * turn


class Router(nn.Module):
    """alpha = tanh(g_a(e)), gamma = sigmoid(g_g(e)), each g a network of two layers; at the start alpha is exactly 0.

    Parameters
    ----------
    width : int
        Numbers of an embedding.
    layers, rank, heads : int
        Routed layers, pairs of directions, query heads of a layer.
    settings : RouterSettings
    """

    def __init__(self, width: int, layers: int, rank: int, heads: int, settings: RouterSettings) -> None:
        super().__init__()
        self.layers, self.rank, self.heads = layers, rank, heads
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(settings.seed)
            self.for_alpha = _network(width, settings.hidden, layers * rank)
            self.for_gamma = _network(width, settings.hidden, layers * heads)
        nn.init.zeros_(self.for_alpha[-1].weight)  # type: ignore[arg-type]
        nn.init.zeros_(self.for_alpha[-1].bias)  # type: ignore[arg-type]
        nn.init.constant_(self.for_gamma[-1].bias, settings.gate_bias)  # type: ignore[arg-type]

    def forward(self, features: Float[Tensor, "inputs width"]) -> Weights:
        """Weights of each input."""
        alpha = torch.tanh(self.for_alpha(features)).reshape(-1, self.layers, self.rank)
        gamma = torch.sigmoid(self.for_gamma(features)).reshape(-1, self.layers, self.heads)
        return Weights(alpha, gamma)


def _network(width: int, hidden: int, out: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, out))


@dataclass(frozen=True)
class Loss:
    """The loss of a batch and its unweighted terms."""

    total: Tensor
    cross_entropy: Tensor
    confidence: Tensor
    sparsity: Tensor
    gating: Tensor

    def terms(self) -> dict[str, float]:
        """Each term as a number."""
        return {name: float(getattr(self, name).detach()) for name in self.__dataclass_fields__}


def routing_loss(
    logits: Float[Tensor, "rows vocabulary"],
    options: Int[Tensor, "rows answers"],
    answers: Int[Tensor, " rows"],
    zero_shot_entropy: Float[Tensor, " rows"],
    weights: Weights,
    settings: RouterSettings,
) -> Loss:
    """Cross-entropy, entropy beyond the zero-shot one, size of alpha, openness of gates.

    Parameters
    ----------
    logits : float [rows, vocabulary]
        Routed logits after the prompt.
    options : int64 [rows, answers]
        Tokens of the answers, -1 where there is none.
    answers : int64 [rows]
        The right one.
    zero_shot_entropy : float [rows]
        Over the vocabulary, nats; a constant.
    weights : Weights
        What the router gave, of these rows.
    settings : RouterSettings

    Source
    ------
    icr.md, equations 11 to 14; the means over layers are over routed ones.
    """
    log_p = logits.log_softmax(-1)
    if settings.cross_entropy == "vocabulary":
        right = options.gather(1, answers[:, None])
        cross_entropy = -log_p.gather(1, right).mean()
    else:
        own = logits.gather(1, options.clamp_min(0)).masked_fill(options < 0, -torch.inf)
        cross_entropy = nn.functional.cross_entropy(own, answers)
    entropy = -(log_p.exp() * log_p).sum(-1)
    confidence = torch.relu(entropy - zero_shot_entropy).mean()
    depth = torch.linspace(1.0, settings.deepest, weights.alpha.shape[1], device=weights.alpha.device)
    sparsity = (depth[:, None] * weights.alpha.abs()).mean()
    gating = weights.gamma.abs().mean()
    total = cross_entropy + settings.confidence * confidence + settings.sparsity * sparsity + settings.gating * gating
    return Loss(total, cross_entropy, confidence, sparsity, gating)
