"""Random heads beside named ones: the control of every claim about heads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from readout.models import LanguageModel
from readout.statistics import generator
from readout.wording import counted

Head = tuple[int, int]
"""Layer and number of a head."""


@dataclass(frozen=True)
class RandomSets:
    """Sets of random heads.

    Parameters
    ----------
    sets : tuple of tuple of (int, int)
        One a draw, each with as many heads as are named.
    widened : bool
        Whether the named heads' layers had too few other heads, so that the nearest layers lent some.
    """

    sets: tuple[tuple[Head, ...], ...]
    widened: bool

    @property
    def different(self) -> int:
        """Number of different sets: few draws are different where layers have few heads."""
        return len(set(self.sets))

    @property
    def note(self) -> str:
        """What a reader must know about the draws; empty where there is nothing."""
        said = []
        if self.widened:
            said.append("the named heads' layers have too few other heads: some random ones are of the nearest layers")
        if self.different < len(self.sets):
            said.append(f"only {self.different} of {counted(len(self.sets), 'random draw')} are different sets")
        return "; ".join(said)


def random_sets(
    model: LanguageModel, named: Sequence[Head], draws: int, seed: int = 0, spared: Collection[Head] = ()
) -> RandomSets:
    """Draw equally many random heads from the same layers, as often as asked for.

    Parameters
    ----------
    model : LanguageModel
        The model.
    named : sequence of (int, int)
        Heads that random ones are compared to, never drawn themselves.
    draws, seed : int
        Number of sets and seed.
    spared : collection of (int, int)
        Further heads that are not drawn.

    Returns
    -------
    RandomSets
        From each layer as many as are named there, as far as it has others; the rest from the named heads' other
        layers, and then from the nearest ones.
    """
    rng = generator(seed)
    banned = {*named, *spared}
    others = [head for head in model.heads if head not in banned]
    wanted = Counter(layer for layer, _ in named)
    drawn, widened = [], False
    for _ in range(draws):
        order = [others[place] for place in rng.permutation(len(others))]
        chosen = [head for layer, number in wanted.items() for head in _of(order, layer)[:number]]
        rest = [head for head in order if head not in chosen]
        # A stable sort: heads of equal distance stay in random order.
        rest.sort(key=lambda head: min((abs(head[0] - layer) for layer in wanted), default=0))
        lent = rest[: len(named) - len(chosen)]
        widened |= any(layer not in wanted for layer, _ in lent) or len(chosen) + len(lent) < len(named)
        drawn.append(tuple(sorted([*chosen, *lent])))
    return RandomSets(tuple(drawn), widened)


def _of(heads: Sequence[Head], layer: int) -> list[Head]:
    return [head for head in heads if head[0] == layer]
