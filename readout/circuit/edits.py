"""The vocabulary of interventions: where, and what.

Where: heads' outputs before the output projection, the residual stream that enters a layer, or attention edges; at
positions by role. What: mean, zero, resample, patch, add, scale, or (edges) block. An intervention is a list of such
edits made in one pass.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np

from readout.circuit.positions import LABELS, QUERY, Positions, is_whole, shown, whole_numbers
from readout.errors import InterventionError
from readout.records.schema import head_name

Head = tuple[int, int]
"""(layer, head), both from 0."""


def as_heads(asked: Iterable[Sequence[int] | str], what: str = "heads") -> tuple[Head, ...]:
    """Heads given as (layer, head) or by name.

    Raises
    ------
    InterventionError
        If one of them is neither.
    """
    if isinstance(asked, str) or not isinstance(asked, Iterable):
        raise InterventionError(f"{what}: expected a list such as [(1, 2)] or ['L1H2'], got {shown(asked)}")
    return tuple(_head(one, what) for one in asked)


def _head(one: Any, what: str) -> Head:
    if isinstance(one, str) and (found := re.fullmatch(r"L(\d+)H(\d+)", one, re.ASCII)):
        return int(found[1]), int(found[2])
    if isinstance(one, Sequence | np.ndarray) and len(one) == 2 and all(map(is_whole, one)):
        return int(one[0]), int(one[1])
    raise InterventionError(
        f"{what}: expected each head as (layer, head) or by name, in a list such as [(1, 2)] or ['L1H2'], got "
        f"{shown(one)}"
    )


def _check_place(layer: Any, **places: Any) -> None:
    if not is_whole(layer):
        raise InterventionError(f"layer: expected one whole number, got {shown(layer)}")
    for name, at in places.items():
        if not isinstance(at, Positions):
            raise InterventionError(
                f"{name}: expected positions such as LABELS or Positions('label', 'last'), got {shown(at)}"
            )


@dataclass(frozen=True)
class Heads:
    """Outputs of heads of one layer, before the output projection; () for all heads of the layer."""

    layer: int
    heads: tuple[int, ...] = ()
    at: Positions = QUERY

    def __post_init__(self) -> None:
        _check_place(self.layer, at=self.at)
        object.__setattr__(self, "heads", whole_numbers(self.heads, "heads"))


@dataclass(frozen=True)
class Residual:
    """The residual stream that enters a layer: entering layer 18 is what layer 17 leaves."""

    layer: int
    at: Positions = QUERY

    def __post_init__(self) -> None:
        _check_place(self.layer, at=self.at)


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
        _check_place(self.layer, at=self.at, keys=self.keys)
        object.__setattr__(self, "heads", whole_numbers(self.heads, "heads"))


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

    def __post_init__(self) -> None:
        if not is_whole(self.seed) or self.seed < 0:
            raise InterventionError(f"Resample: expected a whole number of at least 0 as seed, got {shown(self.seed)}")


@dataclass(frozen=True)
class Patch:
    """Replace by the value in the prompt of the same number in a named list of sources.

    `at` is where to read it; the same positions by default. There must be as many, or one for all.
    """

    source: str
    at: Positions | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.source, str):
            raise InterventionError(
                f"Patch: expected the name of a list in sources, such as Patch('others'), got {shown(self.source)}"
            )
        if self.at is not None:
            _check_place(0, at=self.at)


@dataclass(frozen=True, eq=False)
class Add:
    """Add `strength` times a vector: float[width] to the residual stream, float[head_dim] to a head.

    To edges, add `strength` to the score (a bias of the logit), without a vector.
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
                f"an edit is made at Heads, Residual or Edges, got {shown(self.site)}: give (where, what), such as "
                "(Residual(1), Zero())"
            )
        if not isinstance(self.action, Action):
            raise InterventionError(
                f"an edit is Mean(), Zero(), Resample(), Patch(...), Add(...), Scale(...) or Block(), "
                f"got {shown(self.action)}"
            )
        if isinstance(self.action, Add | Scale):
            size = self.action.strength if isinstance(self.action, Add) else self.action.factor
            if not isinstance(size, Real) or not math.isfinite(size):
                raise InterventionError(
                    f"{type(self.action).__name__}: expected a finite number as strength or factor, got {shown(size)}"
                )
        if isinstance(self.site, Edges):
            if not isinstance(self.action, Block | Add):
                raise InterventionError(
                    f"attention edges can be blocked or have their score added to, not {type(self.action).__name__}"
                )
            if isinstance(self.action, Add) and self.action.vector is not None:
                raise InterventionError("a number is added to edges' scores, not a vector: give Add(strength=...)")
        elif isinstance(self.action, Block):
            raise InterventionError("only attention edges can be blocked: use Zero or Mean here")
        elif isinstance(self.action, Add) and self.action.vector is None:
            raise InterventionError("adding to a head or to the residual stream needs a vector")


@dataclass(frozen=True, eq=False)
class Intervention:
    """Edits made together in one pass, in their order, under one name.

    Raises
    ------
    InterventionError
        If they are no edits.
    """

    name: str
    edits: tuple[Edit, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise InterventionError(f"an intervention has a name first, then its edits; got {shown(self.name)} as name")
        edits = tuple(self.edits) if isinstance(self.edits, Iterable) else (self.edits,)
        wrong = [one for one in edits if not isinstance(one, Edit)]
        if wrong:
            raise InterventionError(
                f"an intervention is made of Edit(where, what), got {shown(wrong[0])}: Intervention.of(name, (where, "
                "what), ...) makes them"
            )
        object.__setattr__(self, "edits", edits)

    @classmethod
    def of(cls, name: str, *pairs: tuple[Site, Any]) -> Intervention:
        """Build one out of (site, action) pairs.

        Raises
        ------
        InterventionError
            If something else is given.
        """
        for pair in pairs:
            if not isinstance(pair, tuple) or len(pair) != 2:
                raise InterventionError(
                    f"expected pairs (where, what) after the name, such as (Residual(1), Zero()), got {shown(pair)}"
                )
        return cls(name, tuple(Edit(site, action) for site, action in pairs))


def ablate(
    heads: Iterable[Sequence[int] | str], at: Positions = QUERY, action: Action | None = None, name: str = ""
) -> Intervention:
    """Ablate heads: by their mean unless told otherwise.

    Parameters
    ----------
    heads : sequence of (int, int) or str
        Each as (layer, head) or by its name, such as "L18H6".
    at : Positions
        Where.
    action : Action, optional
        `Mean()` by default.
    name : str
        Like `L18H6+L20H6` by default.

    Returns
    -------
    Intervention

    Raises
    ------
    InterventionError
        If there is no head, or one that cannot be read.
    """
    by_layer: dict[int, list[int]] = {}
    found = as_heads(heads)
    if not found:
        raise InterventionError("heads: there is none to ablate, give at least one, such as ablate([(layer, head)])")
    for layer, head in found:
        by_layer.setdefault(layer, []).append(head)
    edits = tuple(Edit(Heads(layer, tuple(own), at), action or Mean()) for layer, own in sorted(by_layer.items()))
    return Intervention(name or "+".join(head_name(*head) for head in found), edits)
