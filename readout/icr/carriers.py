"""How a router's weights change a pass: as a bias on attention logits, or, in a control, in the residual stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from readout.icr.basis import Basis
from readout.icr.directions import Vectors, centred, components
from readout.icr.passes import Batch, last_logits
from readout.icr.routing import Routing, Rows, Weights
from readout.models import LanguageModel


class Carrier(Protocol):
    """Runs a batch with a router's weights.

    Attributes
    ----------
    model : LanguageModel
    layers : tuple of int
        Layers that are changed.
    rank : int
        Numbers of alpha in each layer.
    heads : int
        Numbers of gamma in each layer.
    """

    model: LanguageModel
    rank: int
    heads: int

    @property
    def layers(self) -> tuple[int, ...]: ...

    def logits(self, batch: Batch, weights: Weights) -> Float[Tensor, "rows vocabulary"]: ...

    def parameters(self) -> Mapping[str, nn.Parameter]:
        """What is trained beside the router."""
        ...


class RoutedAttention:
    """In-context routing itself.

    Parameters
    ----------
    model : LanguageModel
    basis : Basis
    rows : str
        Query positions that are biased: "all" or "last".
    trained : bool
        Whether the directions are trained too: the bias trained directly, as a control.
    """

    def __init__(self, model: LanguageModel, basis: Basis, rows: Rows = "all", trained: bool = False) -> None:
        self.model, self.trained = model, trained
        self.rank = basis.rank
        self.heads = next(part.n_heads for part in model.wiring.attentions if part.layer == basis.layers[0])
        if trained:
            query, key = (
                {layer: nn.Parameter(one.clone().to(model.device)) for layer, one in side.items()}
                for side in (basis.query, basis.key)
            )
            basis = Basis(query, key, f"{basis.name}, trained")
        self.routing = Routing(model, basis, rows)

    @property
    def layers(self) -> tuple[int, ...]:
        """The routed layers."""
        return self.routing.basis.layers

    def logits(self, batch: Batch, weights: Weights) -> Float[Tensor, "rows vocabulary"]:
        """Routed logits after each row's last token."""
        with self.routing.on(weights, batch.last):
            return last_logits(self.model, batch)

    def parameters(self) -> Mapping[str, nn.Parameter]:
        """The directions, where they are trained."""
        if not self.trained:
            return {}
        basis = self.routing.basis
        sides = (("query", basis.query), ("key", basis.key))
        return {f"{name}.{layer}": one for name, side in sides for layer, one in side.items()}  # type: ignore[misc]


@dataclass(eq=False)
class ResidualStream:
    """The control: directions of the residual stream, added at all tokens, by a router of the same size.

    Each layer has rank + heads directions: the principal components of the stream that enters it at few-shot prompts'
    last token, scaled to its spread along them. Alpha weighs the first, 2 gamma - 1 the others, so at the start (alpha
    0, gamma 1/2) nothing is added, and the router has as many numbers as the routed one.
    """

    model: LanguageModel
    directions: Mapping[int, Float[Tensor, "numbers width"]]
    rank: int
    heads: int

    @classmethod
    def of(cls, model: LanguageModel, vectors: Vectors, rank: int, layers: Sequence[int]) -> ResidualStream:
        """Directions out of few-shot prompts."""
        heads = model.wiring.attentions[0].n_heads
        found = {}
        for layer in layers:
            values = centred(vectors.residual[layer], vectors.domains, "mean")
            directions, _ = components(values, rank + heads)
            spread = (values @ directions).std(0)
            found[layer] = torch.from_numpy((directions * spread).T.astype(np.float32)).to(model.device)
        return cls(model, found, rank, heads)

    @property
    def layers(self) -> tuple[int, ...]:
        """Layers that are changed."""
        return tuple(sorted(self.directions))

    def logits(self, batch: Batch, weights: Weights) -> Float[Tensor, "rows vocabulary"]:
        """Logits after each row's last token, the streams that enter the layers moved."""
        amounts = torch.cat([weights.alpha, 2 * weights.gamma - 1], -1)
        edits = {}
        for place, layer in enumerate(self.layers):
            moved = amounts[:, place] @ self.directions[layer]

            def add(hidden: Tensor, moved: Tensor = moved) -> Tensor:
                return hidden + moved[:, None].to(hidden.dtype)

            edits[layer] = [add]
        return last_logits(self.model, batch, edits)

    def parameters(self) -> Mapping[str, nn.Parameter]:
        """Nothing."""
        return {}
