"""The vocabulary of interventions: where, and what.

Where: heads' outputs before the output projection, the residual stream that enters a layer, or attention edges; at
positions by role. What: mean, zero, resample, patch, add, scale, or (edges) block. An intervention is a list of such
edits made in one pass.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from readout.circuit.positions import LABELS, QUERY, Positions
from readout.errors import InterventionError


@dataclass(frozen=True)
class Heads:
    """Outputs of heads of one layer, before the output projection; () for all heads of the layer."""

    layer: int
    heads: tuple[int, ...] = ()
    at: Positions = QUERY


@dataclass(frozen=True)
class Residual:
    """The residual stream that enters a layer: entering layer 18 is what layer 17 leaves."""

    layer: int
    at: Positions = QUERY


@dataclass(frozen=True)
class Edges:
    """Attention scores of heads of one layer, from `at` to earlier `keys`; () for all heads.

    With the pairing "own", a demonstration's position is paired only with keys of the same demonstration (as a label
    with its text); with "another", with those of the demonstration before it: the control.
    """

    layer: int
    heads: tuple[int, ...] = ()
    at: Positions = QUERY
    keys: Positions = LABELS
    pairing: str = "all"

    def __post_init__(self) -> None:
        if self.pairing not in ("all", "own", "another"):
            raise InterventionError(f"pairing must be all, own or another; got {self.pairing!r}")


Site = Heads | Residual | Edges


@dataclass(frozen=True)
class Mean:
    """Replace by the mean over the reference prompts and all their positions of the same role."""


@dataclass(frozen=True)
class Zero:
    """Replace by zero."""


@dataclass(frozen=True)
class Resample:
    """Replace by the value in another prompt of the same list, at the position of the same order."""

    seed: int = 0


@dataclass(frozen=True)
class Patch:
    """Replace by the value in the prompt of the same number in a named list of sources.

    `at` is where to read it; the same positions by default. There must be as many, or one for all.
    """

    source: str
    at: Positions | None = None


@dataclass(frozen=True, eq=False)
class Add:
    """Add `strength` times a vector: float[width] to the residual stream, float[head_dim] to a head.

    To edges, add `strength` to the score (a bias of the logit); the vector is not used.
    """

    vector: np.ndarray | None = None
    strength: float = 1.0


@dataclass(frozen=True)
class Scale:
    """Multiply by a factor."""

    factor: float


@dataclass(frozen=True)
class Block:
    """Cut edges: no attention flows over them."""


Action = Mean | Zero | Resample | Patch | Add | Scale | Block


@dataclass(frozen=True, eq=False)
class Edit:
    """One change: what is done where.

    Raises
    ------
    InterventionError
        If the action does not apply to the site.
    """

    site: Site
    action: Action

    def __post_init__(self) -> None:
        if not isinstance(self.site, Site):
            raise InterventionError(
                f"an edit is made at Heads, Residual or Edges, got {self.site!r}: give (where, what), such as "
                "(Residual(1), Zero())"
            )
        if not isinstance(self.action, Action):
            raise InterventionError(
                f"an edit is Mean(), Zero(), Resample(), Patch(...), Add(...), Scale(...) or Block(), "
                f"got {self.action!r}"
            )
        if isinstance(self.action, Add | Scale):
            size = self.action.strength if isinstance(self.action, Add) else self.action.factor
            if not isinstance(size, int | float) or not math.isfinite(size):
                raise InterventionError(
                    f"{type(self.action).__name__}: expected a finite number as strength or factor, got {size!r}"
                )
        if isinstance(self.site, Edges):
            if not isinstance(self.action, Block | Add):
                raise InterventionError(
                    f"attention edges can be blocked or have their score added to, not {type(self.action).__name__}"
                )
        elif isinstance(self.action, Block):
            raise InterventionError("only attention edges can be blocked: use Zero or Mean here")
        elif isinstance(self.action, Add) and self.action.vector is None:
            raise InterventionError("adding to a head or to the residual stream needs a vector")


@dataclass(frozen=True, eq=False)
class Intervention:
    """Edits made together in one pass, in their order, under one name."""

    name: str
    edits: tuple[Edit, ...]

    @classmethod
    def of(cls, name: str, *pairs: tuple[Site, Any]) -> Intervention:
        """Build one out of (site, action) pairs."""
        return cls(name, tuple(Edit(site, action) for site, action in pairs))


def ablate(heads: list[tuple[int, int]], at: Positions = QUERY, action: Action | None = None, name: str = "") -> Any:
    """Ablate heads, given as (layer, head): by their mean unless told otherwise.

    Returns
    -------
    Intervention
        Named like `L18H6+L20H6` unless a name is given.
    """
    by_layer: dict[int, list[int]] = {}
    for layer, head in heads:
        by_layer.setdefault(layer, []).append(head)
    edits = tuple(Edit(Heads(layer, tuple(own), at), action or Mean()) for layer, own in sorted(by_layer.items()))
    return Intervention(name or "+".join(f"L{layer}H{head}" for layer, head in heads), edits)
