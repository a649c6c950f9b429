"""Uncertainty of the constants, clustered by context: sandwich and bootstrap."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int
from scipy import sparse

from readout.fitting.likelihood import Likelihood, moment_blocks
from readout.fitting.newton import maximise
from readout.fitting.patterns import Patterns
from readout.statistics import bootstrap_weights, cluster_sums

SANDWICH = "sandwich clustered by context (CR2), t with C - 1 degrees of freedom"
BOOTSTRAP = "cluster bootstrap by context (percentile)"


def sandwich(
    patterns: Patterns,
    rows: Float[np.ndarray, "n h d"],
    theta: Float[np.ndarray, "h d"],
    index: Int[np.ndarray, " n"],
    count: int,
) -> Float[np.ndarray, "h d d"]:
    """Covariance of the constants that treats contexts, not prompts, as independent.

    V = J^-1 (sum_c A_c u_c u_c' A_c') J^-1, with u_c the score of context c, J the information and J_c its share
    that falls to context c. A_c = (I - J_c J^-1)^-1/2 undoes the pull of a context on the constants it is
    measured against (CR2).

    Parameters
    ----------
    patterns
        Patterns of the prompts.
    rows
        [n, h, d] attention times feature row, from `observed_rows`.
    theta
        [h, d] fitted constants.
    index, count
        Contexts as 0..C-1, and C.

    Returns
    -------
    [h, d, d]; NaN with fewer than two contexts.

    Source
    ------
    Bell & McCaffrey (2002); Pustejovsky & Tipton (2018), equation 5.
    """
    h, d = theta.shape
    if count < 2:
        return np.full((h, d, d), np.nan)
    g = len(patterns.rows)
    member = sparse.csr_array((np.ones(len(index)), (index, patterns.pattern)), shape=(count, g))
    observed = cluster_sums(rows, index, count)
    covariance = np.empty((h, d, d))
    for block, moments in moment_blocks(patterns, theta):
        width = block.stop - block.start
        mean = np.asarray(member @ moments.mean.reshape(g, -1)).reshape(count, width, d)
        share = np.asarray(member @ moments.hessian.reshape(g, -1)).reshape(count, width, d, d)
        score = observed[:, block] - mean
        inverse = np.linalg.pinv(share.sum(axis=0), hermitian=True)
        # In the metric of the information A_c is symmetric: whiten, adjust, and only then colour again.
        values, vectors = np.linalg.eigh(inverse)
        root = vectors * np.sqrt(np.maximum(values, 0.0))[..., None, :]
        white = np.einsum("hde,chd->che", root, score)
        leverage = np.einsum("hda,chde,heb->chab", root, share, root)
        values, vectors = np.linalg.eigh(leverage)
        # A context with leverage near 1 fixes a constant alone; there the data cannot tell its error.
        factor = 1.0 / np.sqrt(np.maximum(1.0 - values, 1e-3))
        adjusted = np.einsum("chab,chb,chdb,chd->cha", vectors, factor, vectors, white)
        covariance[block] = np.einsum("hda,cha,chb,heb->hde", root, adjusted, adjusted, root, optimize=True)
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
        As in `sandwich`.
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
