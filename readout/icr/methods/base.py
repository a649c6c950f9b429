"""What a method is given to learn from, and what it must do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from jaxtyping import Float

from readout.icr.directions import Vectors
from readout.icr.encoders import Encode
from readout.icr.examples import Example
from readout.icr.queries import Queries
from readout.models import LanguageModel

Logits = Float[np.ndarray, "queries answers"]


@dataclass(frozen=True, eq=False)
class Ground:
    """What all methods of a seed learn from.

    Attributes
    ----------
    model : LanguageModel
    train : dict of str to tuple of Example
        Training examples by in-domain data set.
    queries : Queries
        The same, read at zero shot.
    development : Queries
        Other examples of the same sets, to choose settings with.
    vectors : Vectors
        Last-token vectors of few-shot prompts.
    encode : callable
        The frozen sentence encoder.
    shots : int
        Demonstrations of each answer in few-shot prompts.
    seed : int
        Seed of everything that is drawn.
    folder : Path or None
        Where a method may keep what it has trained.
    held_out : callable or None
        Reads queries of data sets that are neither trained nor tested on, to choose out-of-domain settings with.
    """

    model: LanguageModel
    train: Mapping[str, tuple[Example, ...]]
    queries: Queries
    development: Queries
    vectors: Vectors
    encode: Encode
    shots: int
    seed: int
    folder: Path | None = None
    held_out: Callable[[], Queries] | None = None

    def place(self, name: str) -> Path | None:
        """A method's own folder."""
        return None if self.folder is None else self.folder / name.replace(" ", "_").replace("/", "_")


class Method(Protocol):
    """Learns from a ground, then answers queries of any data set.

    Attributes
    ----------
    name : str
        In tables.
    """

    name: str

    def fit(self, ground: Ground) -> None:
        """Learn."""
        ...

    def answer(self, queries: Queries) -> Logits:
        """Scores [queries, answers] of each query's answers, NaN where there is none; the largest is the answer."""
        ...


Make = Callable[[], Method]


def by_domain(queries: Queries) -> dict[str, np.ndarray]:
    """Numbers of the queries of each data set."""
    names = np.array(queries.domains)
    return {name: np.flatnonzero(names == name) for name in dict.fromkeys(queries.domains)}


def accuracy(logits: Logits, queries: Queries) -> float:
    """Share of right answers, each data set with the same weight."""
    right = np.nanargmax(logits, 1) == queries.answers
    return float(np.mean([right[rows].mean() for rows in by_domain(queries).values()]))


def interleaved(examples: Mapping[str, Sequence[Example]]) -> list[Example]:
    """All examples, one of each data set in turn."""
    longest = max(len(own) for own in examples.values())
    return [own[i] for i in range(longest) for own in examples.values() if i < len(own)]
