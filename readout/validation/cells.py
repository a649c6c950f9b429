"""Observed against predicted label mass, averaged over labels that the readout predicts alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from readout.statistics import Estimate, cluster_mean

MOST_VALUES = 24
"""Up to this many distinct predictions each is a point of its own; more are put into equal-count bins."""
BINS = 12
GRID = 20


@dataclass(frozen=True)
class MassPoint:
    """Labels for which a head's predicted mass is about ``predicted``: the mean mass observed, with its interval."""

    predicted: float
    observed: Estimate

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {"predicted": self.predicted, "observed": self.observed.to_dict()}


def mass_points(
    observed: Float[np.ndarray, "n l"],
    predicted: Float[np.ndarray, "n l"],
    label_mask: Bool[np.ndarray, "n l"],
    context: Int[np.ndarray, " n"],
) -> list[MassPoint]:
    """Mean observed label mass of one head where the prediction is the same, or falls into the same bin.

    Parameters
    ----------
    observed, predicted
        [n, l] mass of each label.
    label_mask
        [n, l] labels that exist.
    context
        [n] clusters.

    Returns
    -------
    Points from small to large predicted mass.
    """
    clusters = np.broadcast_to(np.asarray(context)[:, None], label_mask.shape)[label_mask]
    seen, guess = observed[label_mask], predicted[label_mask]
    values = np.unique(np.round(guess, 6))
    if len(values) <= MOST_VALUES:
        group = np.searchsorted(values, np.round(guess, 6))
    else:
        edges = np.quantile(guess, np.linspace(0, 1, BINS + 1)[1:-1])
        group = np.searchsorted(edges, guess, side="right")
    return [
        MassPoint(float(guess[group == g].mean()), cluster_mean(seen[group == g], clusters[group == g]))
        for g in np.unique(group)
    ]


def label_grid(
    model: Float[np.ndarray, "n l"], prediction: Float[np.ndarray, "n l"], label_mask: Bool[np.ndarray, "n l"]
) -> dict[str, Any]:
    """Counts of labels by predicted and actual probability, in cells of equal width.

    Parameters
    ----------
    model, prediction
        [n, l] probabilities over the prompt's own labels.
    label_mask
        [n, l] labels that exist.

    Returns
    -------
    ``counts`` [predicted cell][actual cell] and the ``edges`` of the cells, ready for JSON
    """
    edges = np.linspace(0.0, 1.0, GRID + 1)
    counts, _, _ = np.histogram2d(prediction[label_mask], model[label_mask], bins=(edges, edges))
    return {"counts": counts.astype(int).tolist(), "edges": np.round(edges, 6).tolist()}
