"""The conditional logit of attention over label positions and the rest, for all heads at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float, Int

from readout.fitting.patterns import Patterns

# Beyond exp(500) a score is as good as infinite; clipping keeps products within double range.
MAX_SCORE = 500.0
# Numbers held at once while scores are exponentiated; small enough to stay in a processor's cache.
BLOCK = 1 << 18
# Fewest problems taken together where there are as many: narrow products waste time.
MIN_WIDTH = 64


@dataclass(frozen=True, eq=False)
class Moments:
    """Normaliser and its derivatives for each pattern and problem (a head, or a head of a bootstrap draw).

    Parameters
    ----------
    log_normaliser : [g, p]
        log(1 + sum_j exp(x_j . theta)).
    sums : [g, q, p]
        Predicted masses times the different columns among 1, x and x x', summed over a prompt's demonstrations.
    place : [1 + d, 1 + d]
        Which of the q columns is the product of two of (1, x).
    """

    log_normaliser: Float[np.ndarray, "g p"]
    sums: Float[np.ndarray, "g q p"]
    place: Int[np.ndarray, "e e"]

    @property
    def mean(self) -> Float[np.ndarray, "g p d"]:
        """Predicted mass times feature row, summed over a prompt's demonstrations."""
        return self.sums[:, self.place[0, 1:]].transpose(0, 2, 1)

    @property
    def hessian(self) -> Float[np.ndarray, "g p d d"]:
        """Covariance of the feature row under the predicted masses: minus the Hessian of one prompt."""
        g, _, p = self.sums.shape
        d = len(self.place) - 1
        second = self.sums[:, self.place[1:, 1:].reshape(-1)].transpose(0, 2, 1).reshape(g, p, d, d)
        mean = self.mean
        result: np.ndarray = second - mean[..., :, None] * mean[..., None, :]
        return result

    def total(self, weights: Float[np.ndarray, " g *p"]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Weighted sums over patterns of log_normaliser [p], mean [p, d] and hessian [p, d, d]."""
        d = len(self.place) - 1
        axes = "g" if weights.ndim == 1 else "gp"
        value = np.einsum(f"{axes},gp->p", weights, self.log_normaliser)
        sums = np.einsum(f"{axes},gqp->qp", weights, self.sums)
        hessian = sums[self.place[1:, 1:]].transpose(2, 0, 1)
        for a in range(d):
            for b in range(a + 1):
                one, two = self.sums[:, self.place[0, 1 + a]], self.sums[:, self.place[0, 1 + b]]
                hessian[:, a, b] -= np.einsum(f"{axes},gp,gp->p", weights, one, two)
                hessian[:, b, a] = hessian[:, a, b]
        return value, sums[self.place[0, 1:]].T, hessian


def _products(patterns: Patterns) -> tuple[np.ndarray, np.ndarray]:
    """The different columns among (count, count x, count x x') [g, q, r], and where each is used."""
    rows, counts = patterns.rows, patterns.counts
    g, r, d = rows.shape
    extended = np.concatenate([np.ones((g, r, 1)), rows], axis=2)
    outer = (extended[:, :, :, None] * extended[:, :, None, :] * counts[:, :, None, None]).reshape(g * r, -1)
    kept: list[int] = []
    place = np.empty((d + 1) ** 2, dtype=np.int64)
    for column in range((d + 1) ** 2):
        same = [q for q, other in enumerate(kept) if np.array_equal(outer[:, column], outer[:, other])]
        if not same:
            kept.append(column)
        place[column] = same[0] if same else len(kept) - 1
    columns = outer[:, kept].reshape(g, r, -1).transpose(0, 2, 1).copy()
    return columns, place.reshape(d + 1, d + 1)


def moment_blocks(
    patterns: Patterns,
    theta: Float[np.ndarray, "p d"],
    products: tuple[np.ndarray, np.ndarray] | None = None,
) -> Iterator[tuple[slice, Moments]]:
    """Moments block by block of problems, so that memory stays bounded.

    Parameters
    ----------
    patterns
        Feature rows.
    theta
        [p, d] constants of each problem.
    products
        What `_products` gave, to compute it once.

    Yields
    ------
    The slice of problems and their Moments.

    Source
    ------
    A_hat = exp(x_i . theta) / (1 + sum_j exp(x_j . theta)); the rest of the prompt has score 0.
    """
    columns, place = _products(patterns) if products is None else products
    g, r, d = patterns.rows.shape
    q = columns.shape[1]
    width = max(1, min(len(theta), max(MIN_WIDTH, BLOCK // (g * q))))
    height = max(1, BLOCK // (r * width))
    for start in range(0, len(theta), width):
        block = slice(start, min(start + width, len(theta)))
        turned = theta[block].T
        sums = np.empty((g, q, turned.shape[1]))
        for low in range(0, g, height):
            part = slice(low, min(low + height, g))
            scores = patterns.rows[part].reshape(-1, d) @ turned
            np.exp(np.minimum(scores, MAX_SCORE, out=scores), out=scores)
            np.matmul(columns[part], scores.reshape(-1, r, turned.shape[1]), out=sums[part])
        total = 1.0 + sums[:, place[0, 0]]
        sums /= total[:, None]
        yield block, Moments(np.log(total), sums, place)


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

    @cached_property
    def products(self) -> tuple[np.ndarray, np.ndarray]:
        """Columns that every evaluation needs."""
        return _products(self.patterns)

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
        for block, moments in moment_blocks(self.patterns, theta, self.products):
            w = self.weights if self.weights.ndim == 1 else self.weights[problems[block]].T
            value[block], mean[block], hessian[block] = moments.total(w)
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
