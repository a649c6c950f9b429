"""The same attention model through lmfit: constants that a user can fix, bound or tie, and profile intervals."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import lmfit
import numpy as np
from jaxtyping import Float
from scipy import stats

from readout.errors import FitError
from readout.files import write_json
from readout.fitting.covariance import SANDWICH, cluster_robust, context_scores
from readout.fitting.likelihood import observed_rows, predicted_attention
from readout.fitting.lmfit_checks import idle_parameters, refuse_degenerate, refuse_saturated
from readout.fitting.observations import Observations
from readout.fitting.patterns import Patterns, find_patterns
from readout.fitting.terms import features
from readout.statistics import Estimate, check_level, cluster_index
from readout.statistics.checks import check_format, fields_of, load_json, reading
from readout.statistics.estimate import number_or_none
from readout.wording import counted

FORMAT = "readout.lmfit/1"
_TINY = 1e-300


def parameter_name(head: str, term: str) -> str:
    """Name of a head's constant, fit for lmfit's expressions: "L18H6_match"."""
    plain = re.sub(r"\W", "_", head)
    return f"{'head_' if not plain[:1].isalpha() else ''}{plain}_{term}"


def make_parameters(
    heads: Sequence[str],
    terms: Sequence[str] = ("base", "match"),
    start: Float[np.ndarray, "h d"] | None = None,
) -> lmfit.Parameters:
    """One lmfit parameter per head and term, all free; change `vary`, `min`, `max` or `expr` before fitting.

    Parameters
    ----------
    heads, terms
        Names.
    start
        [h, d] starting values; default base -2, other terms 0.

    Raises
    ------
    FitError
        When two heads would share a parameter name.
    """
    values = np.zeros((len(heads), len(terms))) if start is None else np.asarray(start, dtype=np.float64)
    if start is None:
        values[:, 0] = -2.0
    parameters = lmfit.Parameters()
    for h, head in enumerate(heads):
        for j, term in enumerate(terms):
            name = parameter_name(head, term)
            if name in parameters:
                raise FitError(f"heads: {head!r} and another head both give the parameter {name!r}; rename one")
            parameters.add(name, value=float(values[h, j]))
    return parameters


@dataclass(frozen=True, eq=False)
class LmfitResult:
    """Constants fitted by lmfit.

    Parameters
    ----------
    heads, terms
        Names along the axes of theta.
    theta : [h, d]
        Constants, fixed and tied ones included.
    estimates
        Parameter name -> Estimate; clustered sandwich intervals, NaN for a parameter that is fixed, tied or at a
        bound.
    settings
        Parameter name -> vary, min, max, expr.
    deviance
        Twice the log-likelihood lost against cells predicted perfectly, summed over prompts and heads.
    n_prompts, n_contexts
        Size of the data.
    """

    heads: tuple[str, ...]
    terms: tuple[str, ...]
    theta: Float[np.ndarray, "h d"]
    estimates: dict[str, Estimate]
    settings: dict[str, dict[str, Any]]
    deviance: float
    n_prompts: int
    n_contexts: int
    level: float = 0.95
    _fit: Any = field(default=None, repr=False)

    def profile(self, name: str) -> Estimate:
        """Profile-likelihood interval of one parameter, widened to clustered data.

        The deviance is profiled by lmfit's `conf_interval`. Attention masses are not counts and prompts that
        share a context are not independent, so the rise in deviance is divided by the ratio of the clustered to the
        model's variance and judged by F(1, C - 1).

        Parameters
        ----------
        name
            A parameter that was free, as `parameter_name` gives it.

        Returns
        -------
        Estimate

        Raises
        ------
        FitError
            When the parameter was not free, or the result was loaded from a file.

        Source
        ------
        Chandler & Bate (2007), vertical scaling, for one constant.
        """
        if self._fit is None:
            raise FitError("profile: needs the data; fit again, a loaded result has none")
        minimizer, result, ratio = self._fit
        if name not in ratio:
            raise FitError(f"profile: {name!r} was not free; free ones are {', '.join(ratio)}")
        if len(ratio) == 1:
            raise FitError("profile: lmfit needs two free parameters; with one, take the sandwich interval")
        freedom = max(self.n_contexts - 1, 1)

        def probability(best: Any, new: Any) -> float:
            rise = max(new.chisqr - best.chisqr, 0.0) / ratio[name]
            return float(stats.f.cdf(rise, 1, freedom))

        limits = lmfit.conf_interval(minimizer, result, p_names=[name], sigmas=[self.level], prob_func=probability)[
            name
        ]
        e = self.estimates[name]
        method = f"{100 * self.level:g} % profile likelihood, scaled to contexts as clusters"
        return Estimate(e.value, limits[0][1], limits[-1][1], e.se, self.n_prompts, self.n_contexts, method)

    def summary(self, rows: int = 30) -> str:
        """Every constant on a line, up to a screen."""
        lines = [
            f"lmfit readout: {counted(len(self.heads), 'head')}, {counted(self.n_prompts, 'prompt')} in "
            f"{counted(self.n_contexts, 'context')}, "
            f"deviance {self.deviance:.6g}"
        ]
        for name, estimate in list(self.estimates.items())[:rows]:
            how = self.settings[name]
            note = f"= {how['expr']}" if how["expr"] else "" if how["vary"] else "fixed"
            lines.append(f"  {name:<16} {estimate} {note}".rstrip())
        if len(self.estimates) > rows:
            lines.append(f"  ... and {len(self.estimates) - rows} more")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, without the data."""
        return {
            "format": FORMAT,
            "heads": list(self.heads),
            "terms": list(self.terms),
            "theta": self.theta.tolist(),
            "estimates": {name: e.to_dict() for name, e in self.estimates.items()},
            "settings": self.settings,
            "deviance": self.deviance,
            "n_prompts": self.n_prompts,
            "n_contexts": self.n_contexts,
            "level": self.level,
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> LmfitResult:
        """Read what `to_dict` wrote.

        Raises
        ------
        FitError
            When it is not such a dictionary, a field is missing, or theta has another shape.
        """
        check_format(data, FORMAT, "lmfit file")
        others = ("settings", "deviance", "n_prompts", "n_contexts", "level")
        fields_of(data, ("heads", "terms", "theta", "estimates", *others), "lmfit file")
        with reading("lmfit file"):
            heads, terms = tuple(data["heads"]), tuple(data["terms"])
            theta = np.array(data["theta"], dtype=np.float64)
            estimates = {name: Estimate.from_dict(e) for name, e in data["estimates"].items()}
        if theta.shape != (len(heads), len(terms)):
            raise FitError(f"lmfit file: theta: expected shape {(len(heads), len(terms))}, got {theta.shape}")
        return cls(heads=heads, terms=terms, theta=theta, estimates=estimates, **{name: data[name] for name in others})

    def save(self, path: str | Path) -> None:
        """Write the constants as JSON (lmfit's own files depend on dill)."""
        write_json(path, self.to_dict())

    @classmethod
    def load(cls, path: str | Path) -> LmfitResult:
        """Read what `save` wrote; the constants without the data."""
        return cls.from_dict(load_json(path, "lmfit file"))


def deviance_residuals(
    observed: Float[np.ndarray, " ..."], predicted: Float[np.ndarray, " ..."]
) -> Float[np.ndarray, " ..."]:
    """Signed roots of 2 (A log(A / p) - A + p); over cells that sum to 1 their squares add up to the deviance.

    Near A = p they are (A - p) / sqrt(p), so least squares on them has the information of the conditional logit.
    """
    ratio = np.maximum(observed, _TINY) / np.maximum(predicted, _TINY)
    unit = 2 * (observed * np.log(ratio) - observed + predicted)
    residual: np.ndarray = np.sign(observed - predicted) * np.sqrt(np.maximum(unit, 0.0))
    return residual


def deviance_slopes(
    observed: Float[np.ndarray, " ..."], predicted: Float[np.ndarray, " ..."]
) -> Float[np.ndarray, " ..."]:
    """Derivative of the deviance residuals by the logarithm of the predicted mass."""
    residual = deviance_residuals(observed, predicted)
    near = np.abs(observed - predicted) < 1e-6 * predicted
    slope: np.ndarray = np.where(near, -np.sqrt(predicted), (predicted - observed) / np.where(near, 1.0, residual))
    return slope


def fit_lmfit(
    observations: Observations,
    parameters: lmfit.Parameters | None = None,
    *,
    terms: Sequence[str] = ("base", "match"),
    level: float = 0.95,
) -> LmfitResult:
    """Fit the constants of the observations' heads in one lmfit minimisation.

    The residuals are the deviance residuals of every prompt's cells, so that their sum of squares is the deviance
    of the conditional logit and its minimum the Newton fit. `scale_covar` is off: it would rescale errors by a reduced
    chi-square that has no meaning for probabilities; for the same reason lmfit's Gaussian AIC is not reported.

    Parameters
    ----------
    observations
        Prompts and heads (take few: `select_heads`).
    parameters
        From `make_parameters`, changed at will; None leaves every constant free.
    terms
        Terms of the score.
    level
        Coverage of the intervals.

    Returns
    -------
    LmfitResult

    Raises
    ------
    FitError
        When parameters are missing or without effect, a head is degenerate, or the minimisation fails.
    """
    check_level(level)
    columns = features(observations, terms)
    given = make_parameters(observations.heads, terms) if parameters is None else parameters
    names = [[parameter_name(head, term) for term in terms] for head in observations.heads]
    missing = [name for row in names for name in row if name not in given]
    if missing:
        raise FitError(f"parameters: {', '.join(missing[:4])} missing; start from make_parameters")
    idle = idle_parameters(given, {name for row in names for name in row})
    if idle:
        raise FitError(f"parameters: {', '.join(idle[:4])} free but without effect; fix or remove, or use in an expr")
    patterns = find_patterns(columns, observations.mask)
    refuse_degenerate(observations, patterns, terms, given, names)
    attention = observations.attention.astype(np.float64)
    here = np.broadcast_to(observations.mask[:, None, :], attention.shape)
    cells = np.concatenate([attention[here], np.maximum(1 - attention.sum(axis=2), 0.0).ravel()])

    def constants(values: lmfit.Parameters) -> np.ndarray:
        return np.array([[values[name].value for name in row] for row in names])

    def residuals(values: lmfit.Parameters) -> np.ndarray:
        masses = predicted_attention(columns, observations.mask, constants(values))
        predicted = np.concatenate([masses[here], (1 - masses.sum(axis=2)).ravel()])
        return deviance_residuals(cells, predicted)

    def slopes(values: lmfit.Parameters) -> np.ndarray:
        # lmfit's own differences are too coarse to end within 1e-6 of the minimum.
        derivative = derivatives(values, [n for n, p in values.items() if p.vary and not p.expr], constants)
        masses = predicted_attention(columns, observations.mask, constants(values))
        mean = masses @ columns
        by_free = np.einsum("nkd,hdj->nhkj", columns, derivative)
        mean_by_free = np.einsum("nhd,hdj->nhj", mean, derivative)
        by_log = np.concatenate(
            [(by_free - mean_by_free[:, :, None])[here], -mean_by_free.reshape(-1, by_free.shape[3])]
        )
        predicted = np.concatenate([masses[here], (1 - masses.sum(axis=2)).ravel()])
        jacobian: np.ndarray = deviance_slopes(cells, predicted)[:, None] * by_log
        return jacobian

    minimizer = lmfit.Minimizer(residuals, given, scale_covar=False)
    free = [name for name, p in given.items() if p.vary and not p.expr]
    tight = {"ftol": 1e-15, "xtol": 1e-12, "gtol": 1e-15}
    result = minimizer.minimize(method="leastsq", Dfun=slopes, **tight) if free else None
    if result is not None and not (result.success and np.isfinite(result.chisqr)):
        raise FitError(f"lmfit: no minimum found ({result.message}); change start, bounds or fixed constants")
    found = given if result is None else result.params
    theta = constants(found)
    refuse_saturated(observations.heads, patterns, theta, found, names)
    clustered, ratio = _clustered(observations, patterns, columns, found, free, theta, names, constants)
    freedom = max(observations.n_contexts - 1, 1)
    quantile = float(stats.t.ppf(0.5 + level / 2, freedom))
    method = f"{100 * level:g} % {SANDWICH}"
    estimates = {
        name: Estimate(
            float(p.value),
            float(p.value - quantile * clustered.get(name, np.nan)),
            float(p.value + quantile * clustered.get(name, np.nan)),
            clustered.get(name, float("nan")),
            observations.n_prompts,
            observations.n_contexts,
            method,
        )
        for name, p in found.items()
    }
    settings = {
        name: {
            "vary": bool(p.vary),
            "min": number_or_none(p.min),
            "max": number_or_none(p.max),
            "expr": p.expr,
        }
        for name, p in found.items()
    }
    deviance = float((residuals(found) ** 2).sum())
    return LmfitResult(
        observations.heads,
        tuple(terms),
        theta,
        estimates,
        settings,
        deviance,
        observations.n_prompts,
        observations.n_contexts,
        level,
        None if result is None else (minimizer, result, ratio),
    )


def derivatives(values: lmfit.Parameters, free: Sequence[str], constants: Any) -> Float[np.ndarray, "h d j"]:
    """Derivative of every constant by the free parameters; differences, since expressions are the user's."""
    theta = constants(values)
    derivative = np.empty((*theta.shape, len(free)))
    for j, name in enumerate(free):
        trial = values.copy()
        step = 1e-6 * max(1.0, abs(values[name].value))
        # A step across a bound would be clipped; step inwards.
        step = -step if values[name].value + step > values[name].max else step
        trial[name].set(value=values[name].value + step)
        trial.update_constraints()
        derivative[..., j] = (constants(trial) - theta) / step
    return derivative


def _clustered(
    observations: Observations,
    patterns: Patterns,
    columns: np.ndarray,
    found: lmfit.Parameters,
    free: list[str],
    theta: np.ndarray,
    names: list[list[str]],
    constants: Any,
) -> tuple[dict[str, float], dict[str, float]]:
    """Clustered error of each free parameter, and its variance over the model's.

    Fixed and tied constants enter through the derivative D of all constants by the free ones: scores and information
    of the full model are carried over by D, which is exact for linear expressions and first order for others.
    """
    inside = [
        name for name in free if min(found[name].value - found[name].min, found[name].max - found[name].value) > 1e-6
    ]
    index, count = cluster_index(observations.context)
    if not inside or count < 2:
        return {}, {}
    derivative = derivatives(found, inside, constants)
    rows = observed_rows(observations.attention, columns)
    score = np.zeros((count, 1, len(inside)))
    share = np.zeros((count, 1, len(inside), len(inside)))
    for block, u, j_c in context_scores(patterns, rows, theta, index, count):
        d_block = derivative[block]
        score[:, 0] += np.einsum("chd,hdj->cj", u, d_block)
        share[:, 0] += np.einsum("hdj,chde,hek->cjk", d_block, j_c, d_block, optimize=True)
    variance = np.diag(cluster_robust(score, share)[0])
    model = np.diag(np.linalg.pinv(share.sum(axis=0)[0], hermitian=True))
    error = {name: float(np.sqrt(v)) for name, v in zip(inside, variance, strict=True)}
    return error, {name: float(v / m) for name, v, m in zip(inside, variance, model, strict=True)}
