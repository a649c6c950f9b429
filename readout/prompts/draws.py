"""Draws that come out the same on every machine and with every NumPy."""

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

T = TypeVar("T")


class Draws:
    """A source of chance for one context.

    NumPy keeps the raw bits of PCG64 and of SeedSequence stable between its versions, but not what its
    Generator makes of them; the few draws that prompts need are therefore made from the raw bits.

    Parameters
    ----------
    *seed
        Non-negative integers.
    """

    def __init__(self, *seed: int) -> None:
        self._bits = np.random.PCG64(np.random.SeedSequence(seed))
        self._raw: list[int] = []

    def below(self, n: int) -> int:
        """An integer from 0 to n - 1, each equally likely (to within n / 2**64)."""
        if not self._raw:
            self._raw = self._bits.random_raw(64).tolist()
            self._raw.reverse()
        return self._raw.pop() * n >> 64

    def choice(self, items: Sequence[T]) -> T:
        """One of the items."""
        return items[self.below(len(items))]

    def sample(self, items: Sequence[T], n: int) -> list[T]:
        """`n` different places of the items, in random order."""
        # a sparse Fisher-Yates shuffle: costs n draws, however many items there are
        moved: dict[int, int] = {}
        taken = []
        for last in range(len(items) - 1, len(items) - 1 - n, -1):
            place = self.below(last + 1)
            taken.append(items[moved.get(place, place)])
            moved[place] = moved.get(last, last)
        return taken

    def shuffled(self, items: Sequence[T]) -> list[T]:
        """All items in random order."""
        return self.sample(items, len(items))
