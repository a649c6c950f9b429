"""Corrections for many tests at once; a test that could not be made (NaN) stays NaN and is not counted."""

from __future__ import annotations

from typing import Literal

import numpy as np
from jaxtyping import Float
from scipy import stats

from readout.errors import ReadoutError


def adjust_p_values(
    p_values: Float[np.ndarray, " h"], method: Literal["holm", "fdr_bh", "fdr_by"] = "holm"
) -> Float[np.ndarray, " h"]:
    """Adjusted p-values over the tests that are not NaN.

    Parameters
    ----------
    p_values
        [h] in [0, 1] or NaN.
    method
        "holm" (family-wise error), "fdr_bh" or "fdr_by" (false-discovery rate).

    Returns
    -------
    [h] adjusted p-values, NaN where the input is.

    Raises
    ------
    ReadoutError
        When the method is unknown or a p-value lies outside [0, 1].

    Source
    ------
    Holm (1979); Benjamini & Hochberg (1995); Benjamini & Yekutieli (2001).
    """
    p = np.asarray(p_values, dtype=np.float64)
    made = np.isfinite(p)
    if np.any((p[made] < 0) | (p[made] > 1)):
        raise ReadoutError("p_values: expected numbers in [0, 1] or NaN")
    adjusted = np.full(p.shape, np.nan)
    kept = p[made]
    if kept.size == 0:
        return adjusted
    if method == "holm":
        order = np.argsort(kept, kind="stable")
        steps = np.maximum.accumulate(kept[order] * np.arange(kept.size, 0, -1))
        result = np.empty_like(kept)
        result[order] = np.minimum(steps, 1.0)
        adjusted[made] = result
    elif method in ("fdr_bh", "fdr_by"):
        adjusted[made] = stats.false_discovery_control(kept, method=method.removeprefix("fdr_"))
    else:
        raise ReadoutError(f"method: expected 'holm', 'fdr_bh' or 'fdr_by', got {method!r}")
    return adjusted


def max_t_p_values(observed: Float[np.ndarray, " h"], permuted: Float[np.ndarray, " b h"]) -> Float[np.ndarray, " h"]:
    """Single-step max-T p-values: how often the largest permuted statistic reaches the observed one.

    Controls the family-wise error whatever the dependence between tests, because each permutation keeps it.

    Parameters
    ----------
    observed
        [h] statistics, large meaning against the null; NaN where the test could not be made.
    permuted
        [b, h] the same statistics under b permutations.

    Returns
    -------
    [h] p-values (1 + number of permutations that reach it) / (1 + b), NaN where observed is.

    Source
    ------
    Westfall & Young (1993), algorithm 2.8 (single step); the +1 after Phipson & Smyth (2010).
    """
    statistic = np.asarray(observed, dtype=np.float64)
    draws = np.where(np.isfinite(permuted), permuted, -np.inf)
    made = np.isfinite(statistic)
    p = np.full(statistic.shape, np.nan)
    if not made.any():
        return p
    largest = np.sort(draws[:, made].max(axis=1))
    # A permutation that equals the observed assignment may differ in the last bits: count it as reaching.
    bar = statistic[made] - 1e-9 * np.maximum(1.0, np.abs(statistic[made]))
    reaching = len(largest) - np.searchsorted(largest, bar, side="left")
    p[made] = (1 + reaching) / (1 + len(largest))
    return p
