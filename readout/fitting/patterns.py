"""Prompts with the same multiset of feature rows, grouped: they share the likelihood's normaliser."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int


@dataclass(frozen=True, eq=False)
class Patterns:
    """The different patterns of feature rows among the prompts.

    Parameters
    ----------
    rows : [g, r, d]
        Different feature rows of each pattern, padded.
    counts : [g, r]
        How often each row occurs in a prompt of that pattern; 0 for padding.
    pattern : [n]
        Pattern of each prompt.
    """

    rows: Float[np.ndarray, "g r d"]
    counts: Float[np.ndarray, "g r"]
    pattern: Int[np.ndarray, " n"]

    @property
    def prompts(self) -> Float[np.ndarray, " g"]:
        """Number of prompts of each pattern."""
        return np.bincount(self.pattern, minlength=len(self.rows)).astype(np.float64)


def find_patterns(features: Float[np.ndarray, "n k d"], mask: Bool[np.ndarray, "n k"]) -> Patterns:
    """Group prompts by the multiset of their demonstrations' feature rows.

    With a binary match a pattern is (number of matching, number of other demonstrations), so thousands of
    prompts fall into a few patterns; with a graded match most prompts are a pattern of their own and nothing is lost.

    Parameters
    ----------
    features, mask
        [n, k, d] and the demonstrations that exist.

    Returns
    -------
    Patterns
    """
    n, k, d = features.shape
    kinds, kind = np.unique(features[mask], axis=0, return_inverse=True)
    number = np.full((n, k), -1, dtype=np.int64)
    number[mask] = kind.reshape(-1)
    signature, pattern = np.unique(np.sort(number, axis=1), axis=0, return_inverse=True)
    new = np.ones(signature.shape, dtype=bool)
    new[:, 1:] = signature[:, 1:] != signature[:, :-1]
    slot = np.cumsum(new & (signature >= 0), axis=1) - 1
    width = int(slot.max()) + 1
    rows = np.zeros((len(signature), width, d))
    counts = np.zeros((len(signature), width))
    g, i = np.nonzero(signature >= 0)
    rows[g, slot[g, i]] = kinds[signature[g, i]]
    np.add.at(counts, (g, slot[g, i]), 1.0)
    return Patterns(rows, counts, pattern.reshape(-1).astype(np.int64))
