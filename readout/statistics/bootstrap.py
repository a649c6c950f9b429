"""Cluster bootstrap of anything that is a function of sums over contexts."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Literal

import numpy as np
from jaxtyping import Float, Shaped
from scipy import stats

from readout.errors import ReadoutError
from readout.statistics.checks import check_draws, check_level, generator
from readout.statistics.clusters import cluster_index, cluster_sums
from readout.statistics.estimate import Estimate

Method = Literal["percentile", "bca"]
Statistic = Callable[[Float[np.ndarray, " b q"]], Float[np.ndarray, " b"]]


# A report asks for the same weights for every number in it.
@lru_cache(maxsize=8)
def bootstrap_weights(clusters: int, draws: int, seed: int) -> Float[np.ndarray, " b c"]:
    """How often each cluster is drawn: multinomial weights, the same for the same seed.

    Parameters
    ----------
    clusters, draws
        Number of clusters C and of bootstrap draws B.
    seed
        Seed of the draws.

    Returns
    -------
    [B, C] float64, each row summing to C.
    """
    weights = generator(seed).multinomial(clusters, np.full(clusters, 1 / clusters), size=draws).astype(np.float64)
    weights.flags.writeable = False
    return weights


def interval_from_draws(
    value: float,
    draws: Float[np.ndarray, " b"],
    level: float,
    method: Method = "percentile",
    jackknife: Float[np.ndarray, " c"] | None = None,
) -> tuple[float, float]:
    """The two ends of a bootstrap interval; `jackknife` (values with one cluster left out) is for BCa.

    Source
    ------
    Efron & Tibshirani (1993), sections 13.3 (percentile) and 14.3 (BCa).
    """
    kept = draws[np.isfinite(draws)]
    if kept.size < 2 or not np.isfinite(value):
        return np.nan, np.nan
    tails = np.array([0.5 - level / 2, 0.5 + level / 2])
    if method == "bca" and jackknife is not None:
        # Ties count one half, so that a statistic with few values is not pushed to one side.
        below = (np.mean(kept < value) + np.mean(kept <= value)) / 2
        below = float(np.clip(below, 1 / (kept.size + 1), 1 - 1 / (kept.size + 1)))
        centred = jackknife.mean() - jackknife
        spread = float(np.sum(centred**2) ** 1.5)
        acceleration = float(np.sum(centred**3)) / (6 * spread) if spread > 0 else 0.0
        bias = stats.norm.ppf(below)
        z = bias + stats.norm.ppf(tails)
        tails = stats.norm.cdf(bias + z / (1 - acceleration * z))
    low, high = np.quantile(kept, tails)
    return float(low), float(high)


def cluster_bootstrap(
    values: Float[np.ndarray, " n q"],
    clusters: Shaped[np.ndarray, " n"],
    statistic: Statistic,
    *,
    draws: int = 2000,
    level: float = 0.95,
    method: Method = "percentile",
    seed: int = 0,
) -> Estimate:
    """Bootstrap interval of a function of column sums, whole clusters drawn with replacement.

    Every draw is one row of a matrix product, so thousands of draws cost next to nothing.

    Parameters
    ----------
    values
        [n, q]; the statistic sees only their sums (add a column of ones where it needs n).
    clusters
        [n] names of the clusters.
    statistic
        Takes sums [b, q], returns [b].
    draws, level, method, seed
        Number of draws (at least 2), coverage in (0, 1), "percentile" or "bca", seed.

    Returns
    -------
    Estimate; its se is the standard deviation of the draws; the interval is NaN with fewer than two clusters.

    Raises
    ------
    ReadoutError
        When rows and cluster names differ in number, the method is unknown, or draws, level or seed are out of range.
    """
    check_draws(draws)
    check_level(level)
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 2 or len(array) != len(np.asarray(clusters)):
        raise ReadoutError(
            f"values: expected one row per cluster name, [{len(np.asarray(clusters))}, q], got {array.shape}"
        )
    if method not in ("percentile", "bca"):
        raise ReadoutError(f"bootstrap method: expected 'percentile' or 'bca', got {method!r}")
    index, count = cluster_index(clusters)
    sums = cluster_sums(array, index, count)
    total = sums.sum(axis=0, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        value = float(statistic(total)[0])
        drawn = statistic(bootstrap_weights(count, draws, seed) @ sums)
        jackknife = statistic(total - sums) if method == "bca" and count > 1 else None
    name = f"{100 * level:g} % cluster bootstrap by context ({method}, {draws} draws)"
    if count < 2:
        return Estimate(value, np.nan, np.nan, np.nan, len(array), count, name)
    low, high = interval_from_draws(value, drawn, level, method, jackknife)
    finite = drawn[np.isfinite(drawn)]
    se = float(finite.std(ddof=1)) if finite.size > 1 else np.nan
    return Estimate(value, low, high, se, len(array), count, name)


def ratio_bootstrap(
    numerator: Float[np.ndarray, " n"],
    denominator: Float[np.ndarray, " n"],
    clusters: Shaped[np.ndarray, " n"],
    *,
    draws: int = 2000,
    level: float = 0.95,
    seed: int = 0,
) -> Estimate:
    """Bootstrap interval of sum(numerator) / sum(denominator)."""
    columns = np.column_stack([numerator, denominator])
    return cluster_bootstrap(columns, clusters, lambda s: s[:, 0] / s[:, 1], draws=draws, level=level, seed=seed)


def bootstrap_difference(
    first: Float[np.ndarray, " n"],
    first_clusters: Shaped[np.ndarray, " n"],
    second: Float[np.ndarray, " m"],
    second_clusters: Shaped[np.ndarray, " m"],
    *,
    draws: int = 2000,
    level: float = 0.95,
    seed: int = 0,
) -> Estimate:
    """Bootstrap interval of mean(first) - mean(second) for two samples that share no cluster."""
    check_draws(draws)
    check_level(level)
    value, drawn, size, clusters = 0.0, np.zeros(draws), 0, 0
    for sign, values, names in ((1, first, first_clusters), (-1, second, second_clusters)):
        array = np.asarray(values, dtype=np.float64)
        index, count = cluster_index(names)
        sums = cluster_sums(np.column_stack([array, np.ones(len(array))]), index, count)
        # The two samples are independent, so they must not be drawn by the same weights.
        weighted = bootstrap_weights(count, draws, seed + (sign < 0)) @ sums
        value += sign * float(array.mean())
        drawn = drawn + sign * weighted[:, 0] / weighted[:, 1]
        size, clusters = size + len(array), clusters + count
    low, high = interval_from_draws(value, drawn, level)
    name = f"{100 * level:g} % cluster bootstrap by context, two samples (percentile, {draws} draws)"
    return Estimate(value, low, high, float(drawn.std(ddof=1)), size, clusters, name)
