"""What a trained router uses: layers, heads and directions, by data set.

Source: icr.md, section 7 (figure 4).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

from readout.icr.methods.base import by_domain
from readout.icr.methods.routed import Routed
from readout.icr.queries import Queries


@dataclass(frozen=True, eq=False)
class Importance:
    """Of one data set.

    Attributes
    ----------
    layers : float [layers]
        Share of each routed layer: mean gate times mean absolute alpha, each between 0 and 1 over the layers of a
        query, made to sum to 1, then averaged over queries.
    gates : float [layers, heads]
        Mean gate.
    directions : float [rank]
        Mean over layers and queries of absolute alpha times the layer's mean gate.
    alpha : float
        Mean absolute alpha.
    """

    layers: Float[np.ndarray, " layers"]
    gates: Float[np.ndarray, "layers heads"]
    directions: Float[np.ndarray, " rank"]
    alpha: float

    @property
    def top_heads(self) -> list[int]:
        """In each layer the head with the largest mean gate."""
        return [int(one) for one in self.gates.argmax(1)]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {
            "layers": self.layers.tolist(),
            "gates": self.gates.tolist(),
            "directions": self.directions.tolist(),
            "alpha": self.alpha,
            "top_heads": self.top_heads,
        }


def importance(alpha: Float[np.ndarray, "n layers rank"], gamma: Float[np.ndarray, "n layers heads"]) -> Importance:
    """Importance out of a router's weights for the queries of a data set."""
    size, gate = np.abs(alpha).mean(2), gamma.mean(2)
    product = _unit_range(size) * _unit_range(gate)
    total = product.sum(1, keepdims=True)
    # Where the largest gate is at the smallest alpha, nothing is left; every layer is then alike.
    shares = np.where(total > 0, product / np.where(total > 0, total, 1), 1 / product.shape[1])
    directions = (np.abs(alpha) * gate[:, :, None]).mean((0, 1))
    return Importance(shares.mean(0), gamma.mean(0), directions, float(np.abs(alpha).mean()))


def _unit_range(values: Float[np.ndarray, "n layers"]) -> Float[np.ndarray, "n layers"]:
    low, high = values.min(1, keepdims=True), values.max(1, keepdims=True)
    return np.asarray((values - low) / np.where(high > low, high - low, 1.0))


@torch.inference_mode()
def importance_of(method: Routed, tests: Mapping[str, Queries]) -> dict[str, Importance]:
    """Importance of a trained router on test queries, by data set."""
    found = {}
    assert method.reader is not None
    for queries in tests.values():
        for name, rows in by_domain(queries).items():
            own = queries.of(rows)
            features = torch.from_numpy(method.reader(own.texts, own.domains)).to(method.trainer.features.device)
            weights = method.trainer.router(features)
            found[name] = importance(weights.alpha.cpu().numpy(), weights.gamma.cpu().numpy())
    return found
