"""Uncertainty of the constants, clustered by context: sandwich and bootstrap."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from jaxtyping import Float, Int
from scipy import sparse

from readout.fitting.likelihood import Likelihood, moment_blocks
from readout.fitting.newton import maximise
from readout.fitting.patterns import Patterns
from readout.statistics import bootstrap_weights, cluster_sums

SANDWICH = "sandwich clustered by context (CR2), t with C - 1 degrees of freedom"
BOOTSTRAP = "cluster bootstrap by context (percentile)"


def context_scores(
    patterns: Patterns,
    rows: Float[np.ndarray, "n h d"],
    theta: Float[np.ndarray, "h d"],
    index: Int[np.ndarray, " n"],
    count: int,
) -> Iterator[tuple[slice, np.ndarray, np.ndarray]]:
    """Score and information of each context, block by block of heads.

    Parameters
    ----------
    patterns
        Patterns of the prompts.
    rows
        [n, h, d] attention times feature row, from `observed_rows`.
    theta
        [h, d] constants.
    index, count
        Contexts as 0..C-1, and C.

    Yields
    ------
    The slice of heads, scores [c, h, d], information [c, h, d, d].
    """
    g, d = len(patterns.rows), theta.shape[1]
    member = sparse.csr_array((np.ones(len(index)), (index, patterns.pattern)), shape=(count, g))
    observed = cluster_sums(rows, index, count)
    for block, moments in moment_blocks(patterns, theta):
        width = block.stop - block.start
        mean = np.asarray(member @ moments.mean.reshape(g, -1)).reshape(count, width, d)
        share = np.asarray(member @ moments.hessian.reshape(g, -1)).reshape(count, width, d, d)
        yield block, observed[:, block] - mean, share


def cluster_robust(
    score: Float[np.ndarray, "c h d"], share: Float[np.ndarray, "c h d d"]
) -> Float[np.ndarray, "h d d"]:
    """V = J^-1 (sum_c A_c u_c u_c' A_c') J^-1 with A_c = (I - J_c J^-1)^-1/2 (CR2).

    A_c undoes the pull of a context on the constants that it is measured against.

    Parameters
    ----------
    score
        [c, h, d] u_c, the score of each context at the fitted constants.
    share
        [c, h, d, d] J_c, the part of the information J that falls to each context.

    Returns
    -------
    [h, d, d]

    Source
    ------
    Bell & McCaffrey (2002); Pustejovsky & Tipton (2018), equation 5.
    """
    inverse = np.linalg.pinv(share.sum(axis=0), hermitian=True)
    # In the metric of the information A_c is symmetric: whiten, adjust, and only then colour again.
    values, vectors = np.linalg.eigh(inverse)
    root = vectors * np.sqrt(np.maximum(values, 0.0))[..., None, :]
    white = np.einsum("hde,chd->che", root, score)
    leverage = np.swapaxes(root, -1, -2) @ share @ root
    values, vectors = np.linalg.eigh(leverage)
    # A context with leverage near 1 fixes a constant alone; there the data cannot tell its error.
    factor = 1.0 / np.sqrt(np.maximum(1.0 - values, 1e-3))
    turned = np.einsum("chdb,chd->chb", vectors, white) * factor
    adjusted = np.einsum("hde,cheb,chb->chd", root, vectors, turned, optimize=True)
    covariance: np.ndarray = np.einsum("chd,che->hde", adjusted, adjusted)
    return covariance


def sandwich(
    patterns: Patterns,
    rows: Float[np.ndarray, "n h d"],
    theta: Float[np.ndarray, "h d"],
    index: Int[np.ndarray, " n"],
    count: int,
) -> Float[np.ndarray, "h d d"]:
    """Covariance of the constants that treats contexts, not prompts, as independent.

    Parameters
    ----------
    patterns, rows, theta, index, count
        As in `context_scores`.

    Returns
    -------
    [h, d, d]; NaN with fewer than two contexts.
    """
    h, d = theta.shape
    covariance = np.full((h, d, d), np.nan)
    if count > 1:
        for block, score, share in context_scores(patterns, rows, theta, index, count):
            covariance[block] = cluster_robust(score, share)
    return covariance


def bootstrap_constants(
    patterns: Patterns,
    rows: Float[np.ndarray, "n h d"],
    theta: Float[np.ndarray, "h d"],
    index: Int[np.ndarray, " n"],
    count: int,
    *,
    draws: int,
    seed: int,
) -> Float[np.ndarray, "b h d"]:
    """The constants refitted on contexts drawn with replacement, every draw and head in one Newton run.

    Parameters
    ----------
    patterns, rows, theta, index, count
        As in `context_scores`.
    draws, seed
        Number of bootstrap draws and their seed.

    Returns
    -------
    [draws, h, d]; NaN where a draw cannot be fitted.
    """
    h, d = theta.shape
    drawn = bootstrap_weights(count, draws, seed)
    member = sparse.csr_array((np.ones(len(index)), (index, patterns.pattern)), shape=(count, len(patterns.rows)))
    weights = np.asarray((member.T @ drawn.T).T)
    observed = np.tensordot(drawn, cluster_sums(rows, index, count), 1)
    likelihood = Likelihood(patterns, np.repeat(weights, h, axis=0), observed.reshape(-1, d))
    result = maximise(likelihood, np.tile(theta, (draws, 1)), tolerance=1e-10)
    constants = np.where(result.converged[:, None], result.theta, np.nan)
    return constants.reshape(draws, h, d)
