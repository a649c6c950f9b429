"""Errors of predicted label probabilities and of predicted attention masses."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float, Int

from readout.statistics import Estimate, cluster_bootstrap

METRICS = ("kl", "tv", "mae", "brier", "agreement")
# A prediction of exactly 0 is read as this, so that one prompt cannot make an error infinite.
SMALLEST = 1e-12


def prompt_errors(
    model: Float[np.ndarray, "n l"], prediction: Float[np.ndarray, "n l"], label_mask: Bool[np.ndarray, "n l"]
) -> dict[str, Float[np.ndarray, " n"]]:
    """How far each prompt's predicted label probabilities are from the model's.

    Parameters
    ----------
    model, prediction
        [n, l] probabilities over the prompt's own labels.
    label_mask
        Labels that exist.

    Returns
    -------
    kl
        KL(model || prediction), nats.
    tv
        Total variation, half the summed absolute difference.
    mae
        Mean absolute difference a label.
    brier
        Summed squared difference: what the prediction's expected Brier score lies above the model's own.
    agreement
        1 where the likeliest label is the same, shared out among labels that tie in the prediction.
    """
    p, q = np.where(label_mask, model, 0.0), np.where(label_mask, prediction, 0.0)
    difference = np.abs(p - q)
    # log(1) = 0 takes out absent labels and labels of probability 0.
    ratio = np.where(p > 0, p, 1.0) / np.where(p > 0, np.maximum(q, SMALLEST), 1.0)
    highest = np.where(label_mask, q, -1.0)
    tied = highest >= highest.max(axis=1, keepdims=True) - 1e-12
    best = np.where(label_mask, p, -1.0).argmax(axis=1)
    return {
        "kl": (p * np.log(ratio)).sum(axis=1),
        "tv": difference.sum(axis=1) / 2,
        "mae": difference.sum(axis=1) / label_mask.sum(axis=1),
        "brier": (difference**2).sum(axis=1),
        "agreement": tied[np.arange(len(p)), best] / tied.sum(axis=1),
    }


def mean_errors(
    errors: dict[str, Float[np.ndarray, " n"]],
    context: Int[np.ndarray, " n"],
    *,
    draws: int = 2000,
    level: float = 0.95,
    seed: int = 0,
) -> dict[str, Estimate]:
    """Mean of each error with its cluster-bootstrap interval."""
    return {
        name: bootstrap_mean(values, context, draws=draws, level=level, seed=seed) for name, values in errors.items()
    }


def bootstrap_mean(
    values: Float[np.ndarray, " n"],
    context: Int[np.ndarray, " n"],
    *,
    draws: int = 2000,
    level: float = 0.95,
    seed: int = 0,
) -> Estimate:
    """Mean with its cluster-bootstrap interval."""
    columns = np.column_stack([values, np.ones(len(values))])
    return cluster_bootstrap(columns, context, lambda s: s[:, 0] / s[:, 1], draws=draws, level=level, seed=seed)


def attention_errors(
    observed: Float[np.ndarray, "n h l"],
    predicted: Float[np.ndarray, "n h l"],
    label_mask: Bool[np.ndarray, "n l"],
    context: Int[np.ndarray, " n"],
    heads: Sequence[str],
    *,
    draws: int = 2000,
    level: float = 0.95,
    seed: int = 0,
) -> dict[str, dict[str, Estimate]]:
    """R^2, mean absolute error and bias of the heads' masses on labels, a head each and pooled.

    R^2 = 1 - sum (observed - predicted)^2 / sum (observed - mean)^2 over prompts and labels, with the head's own
    mean; "pooled" adds both sums over heads first. Bias is predicted minus observed.

    Parameters
    ----------
    observed, predicted
        [n, h, l] masses.
    label_mask, context, heads
        Labels that exist, contexts, names.
    draws, level, seed
        Of the cluster bootstrap.

    Returns
    -------
    head (or "pooled") -> {"r2", "mae", "bias"}
    """
    here = np.broadcast_to(label_mask[:, None, :], observed.shape)
    y = np.where(here, observed, 0.0)
    error = np.where(here, predicted, 0.0) - y
    # [n, h, 5]: what every measure is a function of, once summed over prompts.
    sums = np.stack([(error**2).sum(2), (y**2).sum(2), y.sum(2), np.abs(error).sum(2), error.sum(2)], axis=2)
    number = label_mask.sum(axis=1).astype(np.float64)[:, None]
    every = [("pooled", list(range(len(heads))))] if len(heads) else []
    table: dict[str, dict[str, Estimate]] = {}
    for name, index in [(head, [h]) for h, head in enumerate(heads)] + every:
        columns = np.concatenate([number, sums[:, index].reshape(len(y), -1)], axis=1)

        def parts(s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            return s[:, :1], s[:, 1:].reshape(len(s), -1, 5)

        def r2(s: np.ndarray) -> np.ndarray:
            n, v = parts(s)
            total: np.ndarray = (v[:, :, 1] - v[:, :, 2] ** 2 / n).sum(axis=1)
            ratio: np.ndarray = 1 - v[:, :, 0].sum(axis=1) / total
            return ratio

        def mae(s: np.ndarray) -> np.ndarray:
            n, v = parts(s)
            mean: np.ndarray = v[:, :, 3].mean(axis=1) / n[:, 0]
            return mean

        def bias(s: np.ndarray) -> np.ndarray:
            n, v = parts(s)
            mean: np.ndarray = v[:, :, 4].mean(axis=1) / n[:, 0]
            return mean

        table[name] = {
            f.__name__: cluster_bootstrap(columns, context, f, draws=draws, level=level, seed=seed)
            for f in (r2, mae, bias)
        }
    return table
