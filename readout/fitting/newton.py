"""Damped Newton for every head of a model at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from readout.fitting.likelihood import Likelihood

OK = "ok"
NOT_MEASURED = "not measured"
NO_ATTENTION = "no attention on labels"
SATURATED = "saturated"
NO_MATCH = "no matching demonstrations"
NOT_IDENTIFIED = "match not identified"
NOT_CONVERGED = "not converged"

# A score this large means a cell with less than about 1e-9 of the attention: a bound, not a number.
SATURATED_SCORE = 20.0
# Mean mass on (or off) the labels below which a head is called degenerate before it is fitted.
SMALLEST_MASS = 1e-6


@dataclass(frozen=True, eq=False)
class NewtonResult:
    """Where Newton ended.

    Parameters
    ----------
    theta : [p, d]
        Constants.
    log_likelihood : [p]
        Up to a constant.
    hessian : [p, d, d]
        Minus the Hessian at theta (the information).
    iterations : [p]
        Evaluations used.
    converged : [p]
        Whether score and step became negligible.
    """

    theta: Float[np.ndarray, "p d"]
    log_likelihood: Float[np.ndarray, " p"]
    hessian: Float[np.ndarray, "p d d"]
    iterations: Int[np.ndarray, " p"]
    converged: np.ndarray


def maximise(
    likelihood: Likelihood,
    start: Float[np.ndarray, "p d"],
    *,
    tolerance: float = 1e-12,
    max_iterations: int = 60,
) -> NewtonResult:
    """Maximise the likelihood of all problems together; each stops on its own.

    The log-likelihood is concave, so a step that does not raise it is halved. A problem has converged when
    Newton's decrement (half the gain that the next step promises) is below `tolerance` a prompt.

    Parameters
    ----------
    likelihood
        The problems.
    start
        [p, d] starting values.
    tolerance, max_iterations
        Decrement per prompt that counts as converged; most evaluations of a problem.

    Returns
    -------
    NewtonResult
    """
    p, d = start.shape
    theta = start.astype(np.float64).copy()
    value = np.full(p, -np.inf)
    score = np.zeros((p, d))
    information = np.zeros((p, d, d))
    step = np.zeros((p, d))
    iterations = np.zeros(p, dtype=np.int64)
    converged = np.zeros(p, dtype=bool)
    weights = likelihood.weights
    prompts = np.full(p, weights.sum()) if weights.ndim == 1 else weights.sum(axis=1)
    active = np.arange(p)
    for _ in range(max_iterations):
        if active.size == 0:
            break
        trial = theta[active] + step[active]
        new, gradient, minus_hessian = likelihood.evaluate(trial, active)
        iterations[active] += 1
        slack = 1e-13 * np.maximum(1.0, np.abs(value[active]))
        # A first evaluation compares with -inf and is always taken.
        better = (new >= value[active] - slack) | np.isneginf(value[active])
        taken, refused = active[better], active[~better]
        step[refused] /= 2
        theta[taken], value[taken] = trial[better], new[better]
        score[taken], information[taken] = gradient[better], minus_hessian[better]
        direction = newton_step(information[taken], score[taken])
        decrement = np.einsum("pd,pd->p", direction, score[taken]) / 2
        # Long steps leave the region where the quadratic is any good, on the way to a bound.
        length = np.abs(direction).max(axis=1, initial=0.0)
        step[taken] = direction * np.minimum(1.0, 5.0 / np.maximum(length, 1e-300))[:, None]
        done = decrement <= tolerance * prompts[taken]
        # The last step is worth taking: it squares the error and costs nothing.
        theta[taken[done]] += step[taken[done]]
        converged[taken[done]] = True
        lost = np.abs(step[refused]).max(axis=1, initial=0.0) < 1e-12
        runaway = np.abs(theta[taken]).max(axis=1, initial=0.0) > 200.0
        stopped = np.concatenate([taken[done | runaway], refused[lost]])
        active = np.setdiff1d(active, stopped, assume_unique=True)
    return NewtonResult(theta, value, information, iterations, converged)


def newton_step(information: Float[np.ndarray, "p d d"], score: Float[np.ndarray, "p d"]) -> Float[np.ndarray, "p d"]:
    """Solve information x = score; where it is singular, the shortest step that all but solves it."""
    scale = np.maximum(np.einsum("pdd->pd", information), 1e-300) ** 0.5
    scaled = information / (scale[:, :, None] * scale[:, None, :])
    # A ridge of 1e-10 of the diagonal cannot be seen in a step, and keeps a singular system solvable.
    ridge = scaled + 1e-10 * np.eye(information.shape[1])
    step: np.ndarray = np.linalg.solve(ridge, (score / scale)[..., None])[..., 0] / scale
    return step


def starting_values(
    label_mass: Float[np.ndarray, " p"], demonstrations: float, dimensions: int
) -> Float[np.ndarray, "p d"]:
    """The base that gives each head its mean mass on labels when nothing else counts; other terms 0."""
    start = np.zeros((len(label_mass), dimensions))
    mass = np.clip(label_mass, SMALLEST_MASS, 1 - SMALLEST_MASS)
    start[:, 0] = np.log(mass / (1 - mass) / demonstrations)
    return start
