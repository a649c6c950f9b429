"""What edits put in place: means over prompts, and values of other prompts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from readout.circuit.edits import Heads, Patch, Residual
from readout.circuit.positions import Positions
from readout.circuit.states import States
from readout.errors import InterventionError
from readout.models.wiring import Wiring
from readout.prompts.tokens import Ints, TokenizedPrompt

MeanKey = tuple[type, int, Positions]
"""Kind of site (`Heads` or `Residual`), layer, positions."""


def resampled_source(seed: int) -> str:
    """Name of the list of sources that `Resample` reads."""
    return f"resampled with seed {seed}"


def resampled_prompts(prompts: Sequence[TokenizedPrompt], seed: int) -> list[TokenizedPrompt]:
    """For each prompt another one, drawn by turning a random circle of all prompts by one."""
    if len(prompts) < 2:
        raise InterventionError("resampling needs at least two prompts: give more, or use Mean or Zero")
    circle = np.random.default_rng(seed).permutation(len(prompts))
    partner = np.empty(len(prompts), np.int64)
    partner[circle] = np.roll(circle, 1)
    return [prompts[int(one)] for one in partner]


class Means:
    """Running means of heads' outputs and of the residual stream at positions by role."""

    def __init__(self, needed: Iterable[MeanKey]) -> None:
        self._needed = tuple(needed)
        self._sums: dict[MeanKey, Tensor] = {}
        self._counts: dict[MeanKey, int] = {}

    def take(self, states: States, first: int = 0) -> None:
        """Add the prompts of a pass, of which the first has the number `first`."""
        found: dict[Positions, tuple[Tensor, Tensor]] = {}
        for key in self._needed:
            kind, layer, positions = key
            if positions not in found:
                found[positions] = _places(states, positions, first)
            rows, tokens = found[positions]
            read = _read(states, kind, layer, rows, tokens)
            self._sums[key] = self._sums.get(key, torch.zeros_like(read[:1])[0]) + read.sum(0)
            self._counts[key] = self._counts.get(key, 0) + len(read)

    def result(self) -> dict[MeanKey, Tensor]:
        """Means by key, [heads, head_dim] or [1, width]."""
        for key in self._needed:
            if not self._counts.get(key):
                raise InterventionError(
                    f"no reference prompt has a position of the role {key[2].role!r}: no mean there"
                )
        return {key: total / self._counts[key] for key, total in self._sums.items()}


def _places(states: States, positions: Positions, first: int) -> tuple[Tensor, Tensor]:
    """Rows and tokens of a role in all prompts of a pass."""
    tokens = [
        places[positions.find(prompt, first + number)]
        for number, (prompt, places) in enumerate(zip(states.prompts, states.places, strict=True))
    ]
    rows = np.repeat(states.rows, [len(one) for one in tokens])
    return torch.from_numpy(rows), torch.from_numpy(np.concatenate(tokens))


def _read(
    states: States, kind: type, layer: int, rows: int | Tensor, tokens: Ints | Tensor
) -> Float[Tensor, "tokens heads width"]:
    """Values at tokens; the residual stream counts as one head."""
    if kind is Heads:
        return states.kept[layer].outputs[rows, tokens]
    return states.residuals[layer][rows, tokens][:, None]


@dataclass
class Values:
    """Where edits of one chunk of prompts get their values.

    Attributes
    ----------
    wiring : of the model
    states : the chunk's own pass
    means : by kind of site, layer and positions
    sources : the passes of prompts to patch from, by name
    first : number of the chunk's first prompt
    """

    wiring: Wiring
    states: States
    means: Mapping[MeanKey, Tensor]
    sources: Mapping[str, States]
    first: int = 0

    def n_heads(self, layer: int) -> int:
        """Number of query heads of a layer."""
        return next(part.n_heads for part in self.wiring.attentions if part.layer == layer)

    def empty(self, site: Heads | Residual) -> Tensor:
        """Zeros of the site's shape, [heads, head_dim] or [1, width]."""
        if isinstance(site, Heads):
            return torch.zeros_like(self.states.kept[site.layer].outputs[0, 0])
        return torch.zeros_like(self.states.residuals[site.layer][0, :1])

    def mean(self, site: Heads | Residual) -> Tensor:
        """Mean at the site, [heads, head_dim] or [1, width]."""
        return self.means[type(site), site.layer, site.at]

    def resampled(self, site: Heads | Residual, number: int, seed: int, count: int) -> Tensor:
        """Values of the prompt that `Resample` chose, [count, heads, width]."""
        return self.patched(site, number, Patch(resampled_source(seed)), count)

    def patched(self, site: Heads | Residual, number: int, action: Patch, count: int) -> Tensor:
        """Values of a source prompt, [count, heads, width].

        Raises
        ------
        InterventionError
            If the source prompt has another number of positions than are edited.
        """
        source = self.sources[action.source]
        own = number - self.first
        found = (action.at or site.at).find(source.prompts[own], number)
        if len(found) not in (1, count):
            raise InterventionError(
                f"prompt {number} is edited at {count} positions and its source in {action.source!r} has {len(found)} "
                "of the role: give pairs of prompts with equally many, or positions of one token"
            )
        read = _read(source, type(site), site.layer, int(source.rows[own]), source.places[own][found])
        return read.expand(count, -1, -1)
