"""The conditional logit of attention over label positions and the rest, for all heads at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from readout.fitting.patterns import Patterns

# Beyond exp(500) a score is as good as infinite; clipping keeps products within double range.
MAX_SCORE = 500.0
# Numbers held at once while scores are exponentiated; small enough to stay in a processor's cache.
BLOCK = 1 << 19


@dataclass(frozen=True, eq=False)
class Moments:
    """Normaliser and its derivatives for each pattern and problem (a head, or a head of a bootstrap draw).

    Parameters
    ----------
    log_normaliser : [g, p]
        log(1 + sum_j exp(x_j . theta)).
    mean : [g, p, d]
        Predicted mass times feature row, summed over a prompt's demonstrations.
    hessian : [g, p, d, d]
        Covariance of the feature row under the predicted masses: minus the Hessian of one prompt.
    """

    log_normaliser: Float[np.ndarray, "g p"]
    mean: Float[np.ndarray, "g p d"]
    hessian: Float[np.ndarray, "g p d d"]


def _products(patterns: Patterns) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The different columns among (count, count x, count x x'), and where each is used."""
    rows, counts = patterns.rows, patterns.counts
    g, r, d = rows.shape
    extended = np.concatenate([np.ones((g, r, 1)), rows], axis=2)
    outer = (extended[:, :, :, None] * extended[:, :, None, :] * counts[:, :, None, None]).reshape(g * r, -1)
    columns, place = np.unique(outer, axis=1, return_inverse=True)
    place = place.reshape(d + 1, d + 1)
    return columns.reshape(g, r, -1).transpose(0, 2, 1).copy(), place[0, 1:], place


def moment_blocks(
    patterns: Patterns, theta: Float[np.ndarray, "p d"], products: tuple[np.ndarray, ...] | None = None
) -> Iterator[tuple[slice, Moments]]:
    """Moments block by block of problems, so that memory stays bounded.

    Parameters
    ----------
    patterns
        Feature rows.
    theta
        [p, d] constants of each problem.

    Yields
    ------
    The slice of problems and their Moments.

    Source
    ------
    A_hat = exp(x_i . theta) / (1 + sum_j exp(x_j . theta)); the rest of the prompt has score 0.
    """
    columns, first, place = products if products is not None else _products(patterns)
    g, r, d = patterns.rows.shape
    flat = patterns.rows.reshape(g * r, d)
    step = max(1, BLOCK // (g * r))
    for start in range(0, len(theta), step):
        block = slice(start, min(start + step, len(theta)))
        scores = flat @ theta[block].T
        weight = np.exp(np.minimum(scores, MAX_SCORE, out=scores), out=scores).reshape(g, r, -1)
        sums = columns @ weight
        total = 1.0 + sums[:, place[0, 0]]
        sums /= total[:, None]
        mean = sums[:, first].transpose(0, 2, 1)
        second = sums[:, place[1:, 1:].reshape(-1)].transpose(0, 2, 1).reshape(g, -1, d, d)
        second -= mean[..., :, None] * mean[..., None, :]
        yield block, Moments(np.log(total), mean, second)


@dataclass(frozen=True, eq=False)
class Likelihood:
    """Log-likelihood of problems that share their patterns but not their weights and sums.

    Parameters
    ----------
    patterns
        Feature rows of the prompts.
    weights : [g] or [p, g]
        Number of prompts of each pattern, the same for all problems or one row a problem.
    observed : [p, d]
        Attention times feature row, summed over prompts and demonstrations: all that the fit needs of it.
    """

    patterns: Patterns
    weights: Float[np.ndarray, " *p g"]
    observed: Float[np.ndarray, "p d"]

    def evaluate(
        self, theta: Float[np.ndarray, "p d"], problems: np.ndarray
    ) -> tuple[Float[np.ndarray, " p"], Float[np.ndarray, "p d"], Float[np.ndarray, "p d d"]]:
        """Log-likelihood, score and minus the Hessian of these problems.

        Parameters
        ----------
        theta
            [p, d] constants of the problems asked for.
        problems
            [p] their indices.

        Returns
        -------
        [p], [p, d], [p, d, d]; the log-likelihood leaves out the constant that does not depend on theta.
        """
        p, d = theta.shape
        value = np.empty(p)
        mean = np.empty((p, d))
        hessian = np.empty((p, d, d))
        products = _products(self.patterns)
        for block, moments in moment_blocks(self.patterns, theta, products):
            w = self.weights if self.weights.ndim == 1 else self.weights[problems[block]].T
            if w.ndim == 1:
                value[block] = w @ moments.log_normaliser
                mean[block] = np.tensordot(w, moments.mean, 1)
                hessian[block] = np.tensordot(w, moments.hessian, 1)
            else:
                value[block] = np.einsum("gp,gp->p", w, moments.log_normaliser)
                mean[block] = np.einsum("gp,gpd->pd", w, moments.mean)
                hessian[block] = np.einsum("gp,gpde->pde", w, moments.hessian)
        observed = self.observed[problems]
        return np.einsum("pd,pd->p", observed, theta) - value, observed - mean, hessian


def observed_rows(
    attention: Float[np.ndarray, "n h k"], features: Float[np.ndarray, "n k d"]
) -> Float[np.ndarray, "n h d"]:
    """Attention times feature row, summed over each prompt's demonstrations, in double precision."""
    n, h, k = attention.shape
    rows = np.empty((n, h, features.shape[2]))
    step = max(1, BLOCK // max(1, h * k))
    for start in range(0, n, step):
        block = slice(start, start + step)
        rows[block] = attention[block].astype(np.float64) @ features[block]
    return rows


def predicted_attention(
    features: Float[np.ndarray, "n k d"], mask: np.ndarray, theta: Float[np.ndarray, "h d"]
) -> Float[np.ndarray, "n h k"]:
    """Predicted attention to every label position; with the rest it sums to 1.

    Parameters
    ----------
    features, mask
        [n, k, d] feature rows and the demonstrations that exist.
    theta
        [h, d] constants.

    Returns
    -------
    [n, h, k], 0 where there is no demonstration.
    """
    scores = np.einsum("nkd,hd->nhk", features, theta)
    here = mask[:, None, :]
    highest = np.maximum(np.where(here, scores, 0.0).max(axis=2, keepdims=True), 0.0)
    weight = np.where(here, np.exp(scores - highest), 0.0)
    masses: np.ndarray = weight / (np.exp(-highest) + weight.sum(axis=2, keepdims=True))
    return masses
