"""Interventions as arithmetic: what each edit does to which row, token and head, gathered into few tensor operations.

Every edit of a head's output or of the residual stream is ``scale * old + shift``; every edit of an edge adds to its
score (minus infinity cuts it). All that edits of one layer and one place in their interventions' order do is applied
at once, whatever the number of rows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from readout.circuit.edits import Action, Add, Block, Edges, Edit, Heads, Mean, Patch, Resample, Residual, Scale
from readout.circuit.positions import Positions, shown
from readout.circuit.values import Values
from readout.errors import InterventionError
from readout.prompts.tokens import TokenizedPrompt


class Affine(NamedTuple):
    """``scale * old + shift`` at rows, tokens (and heads): int64 [m] each, scale [m, 1], shift [m, width]."""

    rows: Tensor
    tokens: Tensor
    heads: Tensor | None
    scale: Tensor
    shift: Tensor


class Bias(NamedTuple):
    """Addition to scores: rows, heads, tokens, keys int64 [m] each, shift float32 [m]."""

    rows: Tensor
    heads: Tensor
    tokens: Tensor
    keys: Tensor
    shift: Tensor


@dataclass
class _Affines:
    rows: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    heads: list[int] = field(default_factory=list)
    scale: list[float] = field(default_factory=list)
    shift: list[Tensor] = field(default_factory=list)

    def add(self, row: int, tokens: Sequence[int], heads: Sequence[int], scale: float, shift: Tensor) -> None:
        """One entry a token and head (heads inside); shift is [tokens, heads, width]."""
        for token in tokens:
            self.rows += [row] * len(heads)
            self.tokens += [token] * len(heads)
            self.heads += heads
        self.scale += [scale] * (len(tokens) * len(heads))
        self.shift.append(shift.reshape(-1, shift.shape[-1]))

    def build(self, of_heads: bool) -> Affine:
        shift = torch.cat(self.shift)
        scale = torch.tensor(self.scale, dtype=shift.dtype, device=shift.device)[:, None]
        heads = torch.tensor(self.heads) if of_heads else None
        return Affine(torch.tensor(self.rows), torch.tensor(self.tokens), heads, scale, shift)


class Program:
    """All edits of a pass, ready to run.

    Attributes
    ----------
    heads, residuals : by layer, the operations in their order
    scores : by layer
    """

    def __init__(self) -> None:
        self._heads: dict[tuple[int, int], _Affines] = defaultdict(_Affines)
        self._residuals: dict[tuple[int, int], _Affines] = defaultdict(_Affines)
        self._scores: dict[int, list[tuple[int, int, int, int, float]]] = defaultdict(list)

    def add(self, row: int, place: int, edit: Edit, number: int, prompt: TokenizedPrompt, values: Values) -> None:
        """Take in one edit of one prompt.

        Parameters
        ----------
        row : the pass's row that it changes
        place : its place in the intervention's order
        edit : the edit; its tokens are the prompt's own positions
        number, prompt : the prompt and its number
        values : where means and patches come from
        """
        site = edit.site
        tokens = site.at.find(prompt, number).tolist()
        if not tokens:
            return
        if isinstance(site, Edges):
            self._add_edges(row, site, edit.action, tokens, number, prompt, values)
            return
        if isinstance(site, Heads):
            heads = list(site.heads or range(values.n_heads(site.layer)))
            store = self._heads[site.layer, place]
        else:
            heads = [0]
            store = self._residuals[site.layer, place]
        scale, shift = _affine(edit.action, site, heads, tokens, number, values)
        store.add(row, tokens, heads, scale, shift)

    def _add_edges(
        self,
        row: int,
        site: Edges,
        action: Action,
        tokens: list[int],
        number: int,
        prompt: TokenizedPrompt,
        values: Values,
    ) -> None:
        amount = -torch.inf if isinstance(action, Block) else action.strength  # type: ignore[union-attr]
        heads = site.heads or range(values.n_heads(site.layer))
        store = self._scores[site.layer]
        found = paired(site, tokens, prompt, number)
        if not found:
            raise InterventionError(
                f"no edge of layer {site.layer} from {site.at.role} to an earlier {site.keys.role} is there to edit"
                + ("" if site.pairing == "all" else f" with pairing {site.pairing!r}, which starts at labels or cues")
            )
        for token, key in found:
            store.extend((row, head, token, key, amount) for head in heads)

    @property
    def heads(self) -> dict[int, list[Affine]]:
        return _ordered(self._heads, True)

    @property
    def residuals(self) -> dict[int, list[Affine]]:
        return _ordered(self._residuals, False)

    @property
    def scores(self) -> dict[int, Bias]:
        built = {}
        for layer, entries in self._scores.items():
            rows, heads, tokens, keys, shift = (torch.tensor(column) for column in zip(*entries, strict=True))
            built[layer] = Bias(rows, heads, tokens, keys, shift.float())
        return built


def _ordered(stores: dict[tuple[int, int], _Affines], of_heads: bool) -> dict[int, list[Affine]]:
    built: dict[int, list[Affine]] = defaultdict(list)
    for layer, place in sorted(stores):
        built[layer].append(stores[layer, place].build(of_heads))
    return dict(built)


def _affine(
    action: Action, site: Heads | Residual, heads: list[int], tokens: list[int], number: int, values: Values
) -> tuple[float, Tensor]:
    """Scale and shift [tokens, heads, width] of an action."""
    if isinstance(action, Mean):
        mean = values.mean(site)[heads]
        return 0.0, mean.expand(len(tokens), -1, -1)
    if isinstance(action, Resample):
        return 0.0, values.resampled(site, number, action.seed, len(tokens))[:, heads]
    if isinstance(action, Patch):
        return 0.0, values.patched(site, number, action, len(tokens))[:, heads]
    empty = values.empty(site)[heads].expand(len(tokens), -1, -1)
    if isinstance(action, Scale):
        return action.factor, empty
    if isinstance(action, Add):
        told = f"the vector added at {type(site).__name__.lower()} of layer {site.layer} must"
        try:
            vector = torch.as_tensor(action.vector, dtype=empty.dtype, device=empty.device)
        except (TypeError, ValueError, RuntimeError) as error:
            raise InterventionError(f"{told} be numbers, got {shown(action.vector)}") from error
        if vector.shape != empty.shape[-1:]:
            raise InterventionError(f"{told} have {empty.shape[-1]} numbers, it has the shape {tuple(vector.shape)}")
        if not vector.isfinite().all():
            raise InterventionError(f"{told} hold finite numbers")
        return 1.0, (action.strength * vector).expand(empty.shape)
    return 0.0, empty


def paired(site: Edges, tokens: list[int], prompt: TokenizedPrompt, number: int) -> list[tuple[int, int]]:
    """The edges of a site: (token, earlier key), paired by demonstration where the site asks for it."""
    keys = site.keys.find(prompt, number).tolist()
    if site.pairing == "all":
        return [(token, key) for token in tokens for key in keys if key <= token]
    starts = prompt.demonstration_spans[:, 0]
    ends = prompt.label_positions

    def demonstration(position: int) -> int:
        inside = (starts <= position) & (position <= ends)
        return int(inside.argmax()) if inside.any() else -1

    edges = []
    for token in tokens:
        own = demonstration(token)
        wanted = own if site.pairing == "own" else own - 1
        edges += [(token, key) for key in keys if key <= token and own >= 0 and demonstration(key) == wanted]
    return edges


def means_needed(edits: Sequence[Edit]) -> set[tuple[type, int, Positions]]:
    """(kind of site, layer, positions) of every mean that the edits ask for."""
    return {(type(edit.site), edit.site.layer, edit.site.at) for edit in edits if isinstance(edit.action, Mean)}
