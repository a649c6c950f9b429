"""Means and paired differences with intervals clustered by context."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Shaped
from scipy import stats

from readout.errors import ReadoutError
from readout.statistics.checks import check_level
from readout.statistics.clusters import cluster_index, cluster_sums
from readout.statistics.estimate import Estimate


def cluster_means(
    values: Float[np.ndarray, " n q"], clusters: Shaped[np.ndarray, " n"], level: float = 0.95
) -> list[Estimate]:
    """Mean of each column with a t interval that treats clusters, not rows, as independent.

    The variance of the mean is C/(C-1) sum_c (sum_{n in c} (y_n - mean))^2 / N^2 and the quantile is that
    of t with C - 1 degrees of freedom. A row that is NaN in a column is left out of that column.

    Parameters
    ----------
    values
        [n, q], one column per quantity.
    clusters
        [n] names of the clusters.
    level
        Coverage of the interval.

    Returns
    -------
    One Estimate per column; with fewer than two clusters the interval is NaN.

    Raises
    ------
    ReadoutError
        When the number of rows and of cluster names differ, or the level is not in (0, 1).

    Source
    ------
    Liang & Zeger (1986), with the CR1 small-sample factor of Cameron & Miller (2015), section II.
    """
    check_level(level)
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 2 or len(array) != len(np.asarray(clusters)):
        raise ReadoutError(
            f"values: expected one row per cluster name, [{len(np.asarray(clusters))}, q], got {array.shape}"
        )
    index, count = cluster_index(clusters)
    seen = np.isfinite(array)
    filled = np.where(seen, array, 0.0)
    n = seen.sum(axis=0)
    used = (cluster_sums(seen.astype(np.float64), index, count) > 0).sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = filled.sum(axis=0) / n
        residual = np.where(seen, filled - mean, 0.0)
        sums = cluster_sums(residual, index, count)
        se = np.sqrt(used / (used - 1.0) * (sums**2).sum(axis=0)) / n
    se = np.where(used > 1, se, np.nan)
    half = np.where(used > 1, stats.t.ppf(0.5 + level / 2, np.maximum(used - 1, 1)), np.nan) * se
    method = f"{100 * level:g} % t interval, clustered by context (CR1)"
    return [
        Estimate(
            float(mean[j]),
            float(mean[j] - half[j]),
            float(mean[j] + half[j]),
            float(se[j]),
            int(n[j]),
            int(used[j]),
            method,
        )
        for j in range(array.shape[1])
    ]


def cluster_ratios(
    numerator: Float[np.ndarray, " n q"],
    denominator: Float[np.ndarray, " n q"],
    clusters: Shaped[np.ndarray, " n"],
    level: float = 0.95,
) -> list[Estimate]:
    """Ratio of sums, column by column, with a clustered t interval; a slope through zero is one such ratio.

    Parameters
    ----------
    numerator, denominator
        [n, q]; for the slope of y on x: x y and x^2.
    clusters, level
        As in `cluster_means`.

    Returns
    -------
    One Estimate per column; NaN where the denominators sum to 0, no interval with fewer than two clusters.

    Source
    ------
    Linearisation: the variance is C/(C-1) sum_c (sum_{n in c} (num - ratio den))^2 / (sum den)^2.
    """
    check_level(level)
    num, den = np.asarray(numerator, dtype=np.float64), np.asarray(denominator, dtype=np.float64)
    if num.shape != den.shape or num.ndim != 2:
        raise ReadoutError(f"ratio: expected two arrays [n, q] of equal shape, got {num.shape} and {den.shape}")
    index, count = cluster_index(clusters)
    one, two = cluster_sums(num, index, count), cluster_sums(den, index, count)
    total = two.sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = one.sum(axis=0) / total
        spread = ((one - ratio * two) ** 2).sum(axis=0)
        se = np.sqrt(np.float64(count) / (count - 1) * spread) / np.abs(total)
    se = se if count > 1 else np.full_like(total, np.nan)
    half = stats.t.ppf(0.5 + level / 2, max(count - 1, 1)) * se
    method = f"{100 * level:g} % t interval of a ratio, clustered by context (CR1)"
    return [
        Estimate(float(r), float(r - w), float(r + w), float(s), len(num), count, method)
        for r, w, s in zip(ratio, half, se, strict=True)
    ]


def cluster_mean(values: Float[np.ndarray, " n"], clusters: Shaped[np.ndarray, " n"], level: float = 0.95) -> Estimate:
    """Mean of one quantity with its clustered t interval; see `cluster_means`."""
    return cluster_means(np.asarray(values, dtype=np.float64)[:, None], clusters, level)[0]


def cluster_difference(
    first: Float[np.ndarray, " n"],
    second: Float[np.ndarray, " n"],
    clusters: Shaped[np.ndarray, " n"],
    level: float = 0.95,
) -> Estimate:
    """Mean of the paired difference first - second, with its clustered t interval."""
    one, two = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if one.shape != two.shape:
        raise ReadoutError(f"paired difference: expected equal shapes, got {one.shape} and {two.shape}")
    return cluster_mean(one - two, clusters, level)
