"""The terms of a label position's score: each is one column, so that nested models differ by columns only."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float

from readout.errors import FitError
from readout.fitting.observations import Observations

Column = Callable[[Observations], Float[np.ndarray, "n k"]]


def base(observations: Observations) -> Float[np.ndarray, "n k"]:
    """1 at every label position: what any label gets."""
    return np.ones(observations.match.shape)


def match(observations: Observations) -> Float[np.ndarray, "n k"]:
    """The match of the demonstration with the query, in [0, 1]."""
    return observations.match


def gate(observations: Observations) -> Float[np.ndarray, "n k"]:
    """1 at every label position of a prompt in which no label repeats: a second base."""
    counts = (observations.label[:, :, None] == np.arange(observations.label_mask.shape[1])).sum(axis=1)
    return np.broadcast_to((counts.max(axis=1) <= 1)[:, None], observations.match.shape).astype(np.float64)


def recency(observations: Observations) -> Float[np.ndarray, "n k"]:
    """1 at the most recent demonstration (the last one of the prompt)."""
    k = observations.mask.shape[1]
    last = k - 1 - np.argmax(observations.mask[:, ::-1], axis=1)
    column: np.ndarray = (np.arange(k) == last[:, None]).astype(np.float64)
    return column


def log_count(observations: Observations) -> Float[np.ndarray, "n k"]:
    """The logarithm of the number of demonstrations, at every label position."""
    counts = np.log(observations.mask.sum(axis=1))
    return np.broadcast_to(counts[:, None], observations.match.shape)


def match_log_count(observations: Observations) -> Float[np.ndarray, "n k"]:
    """The match times the logarithm of the number of demonstrations: how the match constant drifts with length."""
    column: np.ndarray = observations.match * log_count(observations)
    return column


def first_occurrence(observations: Observations) -> Float[np.ndarray, "n k"]:
    """1 at the first demonstration of each label."""
    earlier = np.tril(np.ones((observations.mask.shape[1],) * 2, dtype=bool), -1)
    same = observations.label[:, :, None] == observations.label[:, None, :]
    column: np.ndarray = (~(same & earlier).any(axis=2)).astype(np.float64)
    return column


TERMS: dict[str, Column] = {
    f.__name__: f for f in (base, match, gate, recency, log_count, match_log_count, first_occurrence)
}


def features(observations: Observations, terms: Sequence[str]) -> Float[np.ndarray, "n k d"]:
    """The columns of these terms, 0 where there is no demonstration.

    Raises
    ------
    FitError
        When a term is unknown or named twice.
    """
    unknown = [term for term in terms if term not in TERMS]
    if unknown or len(set(terms)) != len(terms) or not terms:
        raise FitError(f"terms: expected different names among {', '.join(TERMS)}, got {', '.join(terms)!r}")
    columns = np.stack([TERMS[term](observations) for term in terms], axis=2)
    return np.where(observations.mask[:, :, None], columns, 0.0)
