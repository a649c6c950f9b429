"""A basis of routing: per layer, directions of queries and of keys, in pairs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from readout.errors import ReadoutError


@dataclass(frozen=True, eq=False)
class Basis:
    """Directions by layer, each with its scale folded in.

    Attributes
    ----------
    query : dict of int to float32 [heads * head_dim, rank]
    key : dict of int to float32 [kv_heads * head_dim, rank]
    name : str
        What the directions are, in words.
    """

    query: Mapping[int, Float[Tensor, "query_width rank"]]
    key: Mapping[int, Float[Tensor, "key_width rank"]]
    name: str = "pca"

    def __post_init__(self) -> None:
        ranks = {matrix.shape[1] for side in (self.query, self.key) for matrix in side.values()}
        if set(self.query) != set(self.key) or len(ranks) != 1:
            raise ReadoutError(
                f"a basis needs the same layers and one rank for queries and keys; got layers {sorted(self.query)} and "
                f"{sorted(self.key)}, ranks {sorted(ranks)}"
            )

    @property
    def layers(self) -> tuple[int, ...]:
        """The routed layers, in order."""
        return tuple(sorted(self.query))

    @property
    def rank(self) -> int:
        """Pairs of directions in each layer."""
        return next(iter(self.query.values())).shape[1]

    def truncated(self, rank: int) -> Basis:
        """The first ``rank`` pairs.

        Raises
        ------
        ReadoutError
            If there are not as many.
        """
        if not 1 <= rank <= self.rank:
            raise ReadoutError(f"rank {rank}: the directions hold 1 to {self.rank}")
        query, key = ({layer: side[layer][:, :rank] for layer in side} for side in (self.query, self.key))
        return Basis(query, key, self.name)

    def scaled(self, factors: Mapping[int, float], name: str) -> Basis:
        """Each layer's query directions times a factor."""
        query = {layer: matrix * factors[layer] for layer, matrix in self.query.items()}
        return Basis(query, dict(self.key), name)

    def to(self, device: torch.device | str) -> Basis:
        """The same basis on another device."""
        query, key = ({layer: one.to(device) for layer, one in side.items()} for side in (self.query, self.key))
        return Basis(query, key, self.name)


def check_layers(layers: tuple[int, ...], n_layers: int) -> tuple[int, ...]:
    """Layers to route, in order, refused where they do not exist.

    Raises
    ------
    ReadoutError
        Naming the layers that there are.
    """
    if not layers or any(not 0 <= layer < n_layers for layer in layers):
        raise ReadoutError(f"layers: expected some of 0 to {n_layers - 1}, got {list(layers)}")
    return tuple(sorted(set(layers)))


def third(which: str, n_layers: int) -> tuple[int, ...]:
    """The layers "early", "middle", "late" (the last third, the paper's) or "all".

    Raises
    ------
    ReadoutError
        If it is none of these.

    Source
    ------
    icr.md, section 1.3: range(floor(2 L / 3), L).
    """
    cuts = [0, n_layers // 3, 2 * n_layers // 3, n_layers]
    parts = {"early": (0, 1), "middle": (1, 2), "late": (2, 3), "all": (0, 3)}
    if which not in parts:
        raise ReadoutError(f"layers {which!r}: expected early, middle, late or all")
    first, last = parts[which]
    return tuple(range(cuts[first], cuts[last]))
