"""Logistic regression of class match on similarities: how a cosine becomes a number in [0, 1]."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from scipy import optimize
from scipy.special import expit

from readout.errors import FitError

# A slight pull towards 0, in units of the inputs' spread: separable classes would else get infinite constants.
RIDGE = 1e-4


def logistic(inputs: Float[np.ndarray, "m j"], constants: Float[np.ndarray, " j+1"]) -> Float[np.ndarray, " m"]:
    """sigmoid(u + inputs . v) with constants (u, v)."""
    probability: np.ndarray = expit(constants[0] + inputs @ constants[1:])
    return probability


def log_loss(
    inputs: Float[np.ndarray, "m j"], truth: Float[np.ndarray, " m"], constants: Float[np.ndarray, " j+1"]
) -> Float[np.ndarray, " m"]:
    """-log of the probability that the constants give to what is true, nats."""
    score = constants[0] + inputs @ constants[1:]
    loss: np.ndarray = np.logaddexp(0.0, score) - truth * score
    return loss


def fit_logistic(inputs: Float[np.ndarray, "m j"], truth: Float[np.ndarray, " m"]) -> Float[np.ndarray, " j+1"]:
    """Constants (u, v) that minimise the mean log loss of sigmoid(u + inputs . v); convex.

    Parameters
    ----------
    inputs
        [m, j] one row a pair of demonstration and query.
    truth
        [m] 1 where their classes are the same.

    Returns
    -------
    [j + 1] u, then v.

    Raises
    ------
    FitError
        When all pairs match, or none.
    """
    if truth.min() == truth.max():
        raise FitError(
            "match: expected both matching and other demonstrations to learn a similarity from, got one kind only; "
            "take prompts of two classes or more"
        )
    centre, spread = inputs.mean(axis=0), inputs.std(axis=0)
    spread = np.where(spread > 0, spread, 1.0)
    scaled = (inputs - centre) / spread

    def loss(g: np.ndarray) -> tuple[float, np.ndarray]:
        wrong = logistic(scaled, g) - truth
        gradient = np.concatenate([[wrong.mean()], wrong @ scaled / len(truth) + RIDGE * g[1:]])
        return float(log_loss(scaled, truth, g).mean() + RIDGE / 2 * g[1:] @ g[1:]), gradient

    start = np.zeros(inputs.shape[1] + 1)
    found = optimize.minimize(loss, start, jac=True, method="L-BFGS-B", options={"ftol": 1e-14, "gtol": 1e-9})
    slopes = found.x[1:] / spread
    return np.concatenate([[found.x[0] - slopes @ centre], slopes])
