"""A number with its interval and the method that gave it."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from readout.statistics.checks import fields_of, parse_json, reading


def number_or_none(value: float) -> float | None:
    """JSON has no NaN and no infinity: they are written as null."""
    return float(value) if math.isfinite(value) else None


def number_or_nan(value: float | None) -> float:
    """Read what `number_or_none` wrote."""
    return math.nan if value is None else float(value)


@dataclass(frozen=True)
class Estimate:
    """A value, its interval, and how the interval was made.

    Parameters
    ----------
    value, low, high
        The estimate and the two ends of its interval, in the estimate's own unit.
    se
        Standard error, NaN where the method gives none.
    n, clusters
        Number of observations and of clusters (contexts) they fall into.
    method
        What the interval is, in words.
    """

    value: float
    low: float
    high: float
    se: float
    n: int
    clusters: int
    method: str

    def __str__(self) -> str:
        return self.summary()

    def summary(self, digits: int = 3) -> str:
        """The value and its interval on one line."""
        return f"{self.value:.{digits}f} [{self.low:.{digits}f}, {self.high:.{digits}f}]"

    def share(self) -> Estimate:
        """The same estimate of a share, whose interval ends at 0 and 1 (NaN stays NaN)."""
        low, high = np.clip([self.low, self.high], 0.0, 1.0)
        return replace(self, low=float(low), high=float(high))

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON (NaN becomes None)."""
        raw = asdict(self)
        return {key: number_or_none(v) if isinstance(v, float) else v for key, v in raw.items()}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Estimate:
        """Read what `to_dict` wrote.

        Raises
        ------
        FitError
            When it is not such a dictionary.
        """
        fields_of(data, cls.__dataclass_fields__, "estimate")
        with reading("estimate"):
            return cls._read(data)

    @classmethod
    def _read(cls, data: dict[str, Any]) -> Estimate:
        numbers = {key: number_or_nan(data[key]) for key in ("value", "low", "high", "se")}
        return cls(**numbers, n=int(data["n"]), clusters=int(data["clusters"]), method=str(data["method"]))

    def to_json(self) -> str:
        """One JSON object."""
        return json.dumps(self.to_dict(), allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Estimate:
        """Read what `to_json` wrote."""
        return cls.from_dict(parse_json(text, "estimate"))
