"""What a match is: a similarity of demonstration and query that is fitted on one record and applied to any other."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from jaxtyping import Bool, Float

from readout.errors import FitError

if TYPE_CHECKING:
    import xarray

KINDS: dict[str, type[Similarity]] = {}
"""Similarities that a file can name, by name."""


class Similarity(ABC):
    """A similarity s[n, i] in [0, 1] of demonstration i and the query of prompt n.

    It never looks at attention from the query to a label, nor at label probabilities. `fit` learns what it has to learn
    from the fitting record's classes; a fitted similarity is a function of a record, so that it can be given to
    `Observations.from_record` and to `SoftmaxReadout` as their match.
    """

    name: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        if cls.name:
            KINDS[cls.name] = cls

    def fit(self, record: xarray.Dataset) -> Similarity:
        """The same similarity, fitted to a record; one that has nothing to learn is itself."""
        return self

    @abstractmethod
    def __call__(self, record: xarray.Dataset) -> Float[np.ndarray, "n k"]:
        """The similarity [n, k] of a record's demonstrations with its queries, 0 where there is none.

        Raises
        ------
        FitError
            When it is not fitted yet, or the record lacks what it needs.
        """

    @abstractmethod
    def describe(self) -> str:
        """The similarity in a few words."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {"similarity": self.name}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Similarity:
        """Read what `to_dict` wrote, of any kind.

        Raises
        ------
        FitError
            When it is not such a dictionary.
        """
        kind = data.get("similarity") if isinstance(data, dict) else None
        if kind not in KINDS:
            raise FitError(f"match: expected the similarity of one of {', '.join(KINDS)}, got {kind!r}")
        return KINDS[kind]._read(data)

    @classmethod
    def _read(cls, data: dict[str, Any]) -> Similarity:
        return cls()


def shown(record: xarray.Dataset) -> Bool[np.ndarray, "n k"]:
    """Where a record has demonstrations."""
    here: np.ndarray = record["demonstration_label"].values >= 0
    return here


def class_match(record: xarray.Dataset) -> Float[np.ndarray, "n k"]:
    """1 where a demonstration has the query's class, 0 elsewhere."""
    same = record["demonstration_class"].values == record["query_class"].values[:, None]
    return np.where(shown(record), same, False).astype(np.float64)


class Binary(Similarity):
    """1 where a demonstration has the query's class, 0 where not: two constants a head, nothing learned."""

    name = "binary"

    def __call__(self, record: xarray.Dataset) -> Float[np.ndarray, "n k"]:
        """1 where the classes are the same [n, k]."""
        return class_match(record)

    def describe(self) -> str:
        """In a few words."""
        return "binary (same class)"
