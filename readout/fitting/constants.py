"""Fitting the constants of many heads, and naming the heads that have none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from scipy import stats

from readout.fitting import newton
from readout.fitting.covariance import BOOTSTRAP, SANDWICH, bootstrap_constants, sandwich
from readout.fitting.likelihood import Likelihood, observed_rows
from readout.fitting.observations import Observations
from readout.fitting.patterns import Patterns, find_patterns
from readout.fitting.terms import features
from readout.statistics import Estimate, check_level, check_seed, cluster_index
from readout.statistics.checks import check_bootstrap


@dataclass(frozen=True, eq=False)
class ConstantsFit:
    """Constants of every head.

    Parameters
    ----------
    heads, terms
        Names along the two axes.
    theta : [h, d]
        Constants; NaN for a head without any.
    covariance : [h, d, d]
        Sandwich covariance; NaN likewise, or where it was not asked for.
    status : [h]
        "ok", or why a head has no constants.
    log_likelihood : [h]
        Mean log-likelihood of a prompt, its position cells pooled by feature row; NaN likewise.
    draws : [b, h, d], optional
        Bootstrap draws.
    n_prompts, n_contexts
        Size of the data.
    """

    heads: tuple[str, ...]
    terms: tuple[str, ...]
    theta: Float[np.ndarray, "h d"]
    covariance: Float[np.ndarray, "h d d"]
    status: tuple[str, ...]
    log_likelihood: Float[np.ndarray, " h"]
    draws: Float[np.ndarray, "b h d"] | None
    n_prompts: int
    n_contexts: int

    @property
    def usable(self) -> Bool[np.ndarray, " h"]:
        """Heads that have constants."""
        return np.array([status == newton.OK for status in self.status], dtype=bool)

    def estimates(self, level: float = 0.95) -> dict[str, dict[str, Estimate]]:
        """Head -> term -> Estimate with the sandwich interval."""
        check_level(level)
        se = np.sqrt(np.einsum("hdd->hd", self.covariance))
        quantile = stats.t.ppf(0.5 + level / 2, max(self.n_contexts - 1, 1))
        low, high = self.theta - quantile * se, self.theta + quantile * se
        return self._named(low, high, se, f"{100 * level:g} % {SANDWICH}")

    def bootstrap_estimates(self, level: float = 0.95) -> dict[str, dict[str, Estimate]] | None:
        """Head -> term -> Estimate with the bootstrap interval, or None where no draws were made."""
        check_level(level)
        if self.draws is None:
            return None
        shape = self.theta.shape
        low, high, se = np.full(shape, np.nan), np.full(shape, np.nan), np.full(shape, np.nan)
        good = self.usable
        if good.any() and self.n_contexts > 1:
            tails = [0.5 - level / 2, 0.5 + level / 2]
            low[good], high[good] = np.nanquantile(self.draws[:, good], tails, axis=0)
            se[good] = np.nanstd(self.draws[:, good], axis=0, ddof=1)
        return self._named(low, high, se, f"{100 * level:g} % {BOOTSTRAP}, {len(self.draws)} draws")

    def _named(self, low: np.ndarray, high: np.ndarray, se: np.ndarray, method: str) -> dict[str, dict[str, Estimate]]:
        return {
            head: {
                term: Estimate(
                    float(self.theta[h, j]),
                    float(low[h, j]),
                    float(high[h, j]),
                    float(se[h, j]),
                    self.n_prompts,
                    self.n_contexts,
                    method,
                )
                for j, term in enumerate(self.terms)
            }
            for h, head in enumerate(self.heads)
        }


def head_status(mass: Float[np.ndarray, " h"], measured: Bool[np.ndarray, " h"]) -> np.ndarray:
    """ "ok", or why a head with this mean mass on labels cannot be fitted at all [h]."""
    status = np.full(len(mass), newton.OK, dtype=object)
    status[mass > 1 - newton.SMALLEST_MASS] = newton.SATURATED
    status[mass < newton.SMALLEST_MASS] = newton.NO_ATTENTION
    status[~measured] = newton.NOT_MEASURED
    return status


def identified(patterns: Patterns, terms: Sequence[str]) -> str:
    """ "ok", or why these prompts cannot tell the terms apart, whatever the attention."""
    rows = patterns.rows[patterns.counts > 0]
    if "match" in terms and not rows[:, list(terms).index("match")].any():
        return newton.NO_MATCH
    gram = rows / np.maximum(np.abs(rows).max(axis=0), 1e-300)
    return (
        newton.OK if np.linalg.matrix_rank(gram, tol=1e-8 * len(rows) ** 0.5) == len(terms) else (newton.NOT_IDENTIFIED)
    )


def fit_constants(
    observations: Observations,
    terms: Sequence[str] = ("base", "match"),
    *,
    covariance: bool = True,
    bootstrap: int = 0,
    seed: int = 0,
) -> ConstantsFit:
    """Fit the constants of every head at once.

    Parameters
    ----------
    observations
        Prompts and heads.
    terms
        Terms of the score.
    covariance
        Whether to compute the sandwich covariance.
    bootstrap, seed
        Number of cluster-bootstrap draws (0: none; else at least 2, and 1000 or more for an interval), their seed.

    Returns
    -------
    ConstantsFit; a degenerate head has a status that says why, and NaN constants.

    Raises
    ------
    FitError
        When a term is unknown, or the number of draws or the seed is out of range.

    Source
    ------
    Conditional logit with the rest of the prompt as outside option (McFadden 1974).
    """
    check_bootstrap(bootstrap)
    check_seed(seed)
    columns = features(observations, terms)
    patterns = find_patterns(columns, observations.mask)
    h, d = len(observations.heads), len(terms)
    n = observations.n_prompts
    index, count = cluster_index(observations.context)
    rows = observed_rows(observations.attention, columns)
    ones = observations.mask[:, :, None].astype(np.float64)
    sums = rows.sum(axis=0)
    every = sums if "base" in terms else observed_rows(observations.attention, ones).sum(axis=0)
    mass = every[:, terms.index("base") if "base" in terms else 0] / n
    status = head_status(mass, observations.measured)
    design = identified(patterns, terms)
    if design != newton.OK:
        status[status == newton.OK] = design
    theta, log_likelihood = np.full((h, d), np.nan), np.full(h, np.nan)
    open_ = np.flatnonzero(status == newton.OK)
    if open_.size:
        demonstrations = float(observations.mask.sum(axis=1).mean())
        likelihood = Likelihood(patterns, patterns.prompts, sums[open_])
        result = newton.maximise(likelihood, newton.starting_values(mass[open_], demonstrations, d))
        highest = np.abs(np.einsum("grd,pd->grp", patterns.rows, result.theta)).max(axis=(0, 1))
        verdict = np.where(result.converged, newton.OK, newton.NOT_CONVERGED).astype(object)
        verdict[highest > newton.SATURATED_SCORE] = newton.SATURATED
        status[open_] = verdict
        good = verdict == newton.OK
        theta[open_[good]] = result.theta[good]
        log_likelihood[open_[good]] = result.log_likelihood[good] / n
    spread = np.full((h, d, d), np.nan)
    draws = np.full((bootstrap, h, d), np.nan) if bootstrap else None
    use = np.flatnonzero(status == newton.OK)
    if use.size:
        given = (patterns, rows if use.size == h else rows[:, use], theta[use], index, count)
        if covariance:
            spread[use] = sandwich(*given)
        if draws is not None and count > 1:
            draws[:, use] = bootstrap_constants(*given, draws=bootstrap, seed=seed)
    return ConstantsFit(observations.heads, tuple(terms), theta, spread, tuple(status), log_likelihood, draws, n, count)
