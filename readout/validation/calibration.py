"""Calibration of predicted label probabilities: fractional logit and reliability curve."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import stats

from readout.statistics import Estimate, check_level, cluster_index, cluster_mean
from readout.statistics.checks import check_count, fields_of, reading

_CLIP = 1e-9


@dataclass(frozen=True)
class ReliabilityBin:
    """Labels whose predicted probability lies in one range: mean predicted, and mean actual with its interval."""

    predicted: float
    actual: Estimate


@dataclass(frozen=True)
class Calibration:
    """logit E[P] = intercept + slope logit(P_hat) over prompts and labels; 0 and 1 are perfect.

    Parameters
    ----------
    slope, intercept
        Fractional logit with errors clustered by context; NaN where predictions do not vary.
    curve
        Reliability curve, from low to high predicted probability.
    """

    slope: Estimate
    intercept: Estimate
    curve: tuple[ReliabilityBin, ...]

    def summary(self) -> str:
        """Slope and intercept on one line."""
        return f"calibration slope {self.slope} (1 is perfect), intercept {self.intercept} (0 is perfect)"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {
            "slope": self.slope.to_dict(),
            "intercept": self.intercept.to_dict(),
            "curve": [{"predicted": b.predicted, "actual": b.actual.to_dict()} for b in self.curve],
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Calibration:
        """Read what `to_dict` wrote."""
        fields_of(data, cls.__dataclass_fields__, "calibration")
        with reading("calibration"):
            curve = tuple(ReliabilityBin(float(b["predicted"]), Estimate.from_dict(b["actual"])) for b in data["curve"])
        return cls(Estimate.from_dict(data["slope"]), Estimate.from_dict(data["intercept"]), curve)


def calibrate(
    model: Float[np.ndarray, "n l"],
    prediction: Float[np.ndarray, "n l"],
    label_mask: Bool[np.ndarray, "n l"],
    context: Int[np.ndarray, " n"],
    *,
    bins: int = 10,
    level: float = 0.95,
) -> Calibration:
    """Calibration of predictions against the model's probabilities.

    Parameters
    ----------
    model, prediction, label_mask
        [n, l] probabilities, and labels that exist.
    context
        [n] clusters.
    bins
        Number of bins of the reliability curve, equal in count.
    level
        Coverage of the intervals.

    Returns
    -------
    Calibration

    Source
    ------
    Papke & Wooldridge (1996).
    """
    check_level(level)
    check_count(bins, "bins", 1)
    row, _ = np.nonzero(label_mask)
    actual, predicted = model[label_mask], prediction[label_mask]
    clusters = np.asarray(context)[row]
    slope, intercept = _fractional_logit(actual, predicted, clusters, level)
    order = np.argsort(predicted, kind="stable")
    curve = []
    for part in np.array_split(order, min(bins, len(order))):
        curve.append(ReliabilityBin(float(predicted[part].mean()), cluster_mean(actual[part], clusters[part], level)))
    return Calibration(slope, intercept, tuple(curve))


def _fractional_logit(
    actual: np.ndarray, predicted: np.ndarray, clusters: np.ndarray, level: float
) -> tuple[Estimate, Estimate]:
    # Imported here because it takes seconds and most callers never calibrate.
    import statsmodels.api as sm
    from statsmodels.tools.sm_exceptions import PerfectSeparationWarning

    index, count = cluster_index(clusters)
    clipped = np.clip(predicted, _CLIP, 1 - _CLIP)
    logit = np.log(clipped / (1 - clipped))
    method = f"{100 * level:g} % t interval of a fractional logit, clustered by context"
    if np.ptp(logit) < 1e-9 or count < 2:
        nothing = Estimate(np.nan, np.nan, np.nan, np.nan, len(actual), count, method)
        return nothing, nothing
    with warnings.catch_warnings():
        # A prediction that is exactly right is no separation of classes.
        warnings.simplefilter("ignore", PerfectSeparationWarning)
        model = sm.GLM(actual, sm.add_constant(logit), family=sm.families.Binomial())
        fit = model.fit(cov_type="cluster", cov_kwds={"groups": index})
    half = stats.t.ppf(0.5 + level / 2, count - 1) * fit.bse
    return tuple(  # type: ignore[return-value]
        Estimate(
            float(fit.params[j]),
            float(fit.params[j] - half[j]),
            float(fit.params[j] + half[j]),
            float(fit.bse[j]),
            len(actual),
            count,
            method,
        )
        for j in (1, 0)
    )
