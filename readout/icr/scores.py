"""Scores of methods on data sets: accuracies and paired differences with intervals, collapses, recovery.

Items are drawn anew within each data set, seeds (of few-shot prompts, router and order) across all of them: a router is
trained once and answers every set, so its luck is shared. Methods without a seed are one seed for all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from readout.errors import ReadoutError
from readout.statistics import Estimate, bootstrap_weights, check_level
from readout.statistics.bootstrap import interval_from_draws

DRAWS = 2000
MAIN = "icr"
Right = Bool[np.ndarray, "seeds items"]


def right_answers(logits: Float[np.ndarray, "items answers"], answers: np.ndarray) -> Bool[np.ndarray, " items"]:
    """Whether the likeliest of a query's own answers is the right one."""
    return np.asarray(np.nanargmax(logits, axis=1) == answers)


def crossed_bootstrap(
    values: Sequence[Float[np.ndarray, "seeds items"]], draws: int = DRAWS, level: float = 0.95, seed: int = 0
) -> Estimate:
    """Mean over data sets of the mean over seeds and items, with items and seeds both drawn with replacement.

    Parameters
    ----------
    values : sequence of float [seeds, items]
        By data set; the seeds are the same for all.
    draws, level, seed
        Of the bootstrap.

    Returns
    -------
    Estimate
        Percentile interval.

    Raises
    ------
    ReadoutError
        If data sets differ in their seeds.
    """
    check_level(level)
    value, drawn = _drawn(values, draws, seed)
    low, high = interval_from_draws(value, drawn, level)
    n_seeds = len(values[0])
    method = (
        f"{100 * level:g} % bootstrap over items and {n_seeds} seed(s), mean of {len(values)} set(s), {draws} draws"
    )
    items = sum(one.shape[1] for one in values)
    return Estimate(value, low, high, float(drawn.std(ddof=1)), items * n_seeds, items, method)


def _drawn(values: Sequence[np.ndarray], draws: int, seed: int) -> tuple[float, np.ndarray]:
    """The mean, and its draws [draws]."""
    if len({len(one) for one in values}) != 1:
        raise ReadoutError(f"data sets must have the same seeds; got {[len(one) for one in values]}")
    n_seeds = len(values[0])
    by_seed = np.zeros((draws, n_seeds))
    for place, one in enumerate(values):
        table = np.asarray(one, np.float64)
        by_seed += bootstrap_weights(table.shape[1], draws, seed + 1 + place) @ table.T / table.shape[1]
    by_seed /= len(values)
    weights = bootstrap_weights(n_seeds, draws, seed) / n_seeds
    return float(np.mean([np.mean(one) for one in values])), (by_seed * weights).sum(1)


@dataclass(frozen=True, eq=False)
class Scores:
    """Which items each method got right.

    Attributes
    ----------
    right : dict of str to dict of str to bool [seeds, items]
        By method and data set. Items are in the same order for all methods; a method may have been tried on the first
        of them only.
    groups : dict of str to str
        Each data set's group.
    chance : dict of str to float
        Accuracy of always giving the commonest answer.
    """

    right: Mapping[str, Mapping[str, Right]]
    groups: Mapping[str, str]
    chance: Mapping[str, float] = field(default_factory=dict)

    def group(self, name: str) -> list[str]:
        """Data sets of a group: "in-domain", "near", "far", or "out" for the last two."""
        wanted = ("near", "far") if name == "out" else (name,)
        return [one for one, group in self.groups.items() if group in wanted]

    def accuracy(self, method: str, sets: Sequence[str]) -> Estimate:
        """Mean accuracy over data sets."""
        return crossed_bootstrap([self.right[method][name].astype(float) for name in sets]).share()

    def difference(self, method: str, other: str, sets: Sequence[str]) -> Estimate:
        """Mean of the paired difference method - other over data sets, on the items that both were tried on."""
        return crossed_bootstrap([self._paired(method, other, name) for name in sets])

    def _paired(self, method: str, other: str, name: str) -> Float[np.ndarray, "seeds items"]:
        one, two = (self.right[key][name].astype(float) for key in (method, other))
        items = min(one.shape[1], two.shape[1])
        if len(one) != len(two) and 1 not in (len(one), len(two)):
            seeds = min(len(one), len(two))
            one, two = one[:seeds], two[:seeds]
        return np.asarray(one[:, :items] - two[:, :items])

    def collapses(self, method: str, base: str = "zero-shot") -> tuple[list[str], list[str]]:
        """Data sets on which a method is below zero-shot: in the raw count, and by a paired interval below zero."""
        raw, significant = [], []
        for name in self.groups:
            if name in self.right[method]:
                found = self.difference(method, base, [name])
                raw += [name] if found.value < 0 else []
                significant += [name] if found.high < 0 else []
        return raw, significant

    def recovery(self, method: str, name: str) -> Estimate | None:
        """(method - zero-shot) / (few-shot - zero-shot), where few-shot is significantly better; else None."""
        if "few-shot" not in self.right or name not in self.right["few-shot"] or method in ("few-shot", "zero-shot"):
            return None
        gain = self.difference("few-shot", "zero-shot", [name])
        if not gain.low > 0:
            return None
        top, own = _drawn([self._paired(method, "zero-shot", name)], DRAWS, 0)
        bottom, few = _drawn([self._paired("few-shot", "zero-shot", name)], DRAWS, 0)
        value = top / bottom
        low, high = interval_from_draws(value, own / np.where(few == 0, np.nan, few), 0.95)
        return Estimate(value, low, high, float("nan"), gain.n, gain.clusters, f"ratio; {gain.method}")

    def to_dict(self) -> dict[str, Any]:
        """Per method and data set: accuracy, difference to zero-shot, recovery; per method: averages and collapses.

        Averages hold the paired difference to zero-shot and, where "icr" was tried, that of icr to the method.
        """
        methods: dict[str, Any] = {}
        for method, by_set in self.right.items():
            sets: dict[str, Any] = {}
            for name in by_set:
                recovery = self.recovery(method, name)
                sets[name] = {
                    "accuracy": self.accuracy(method, [name]).to_dict(),
                    "difference": self.difference(method, "zero-shot", [name]).to_dict(),
                    "recovery": None if recovery is None else recovery.to_dict(),
                    "items": int(by_set[name].shape[1]),
                }
            raw, significant = self.collapses(method)
            averages = {}
            for group in ("in-domain", "near", "far", "out"):
                own = [name for name in self.group(group) if name in by_set]
                if own:
                    averages[group] = self._average(method, own)
            seeds = max(len(one) for one in by_set.values())
            methods[method] = {
                "seeds": seeds,
                "sets": sets,
                "averages": averages,
                "collapse_raw": len(raw),
                "collapse_significant": len(significant),
                "collapsed": {"raw": raw, "significant": significant},
            }
        return {"methods": methods, "groups": dict(self.groups), "chance": dict(self.chance)}

    def _average(self, method: str, sets: Sequence[str]) -> dict[str, Any]:
        told = {
            "sets": list(sets),
            "accuracy": self.accuracy(method, sets).to_dict(),
            "difference": self.difference(method, "zero-shot", sets).to_dict(),
        }
        if method != MAIN and all(name in self.right.get(MAIN, {}) for name in sets):
            told["icr minus this"] = self.difference(MAIN, method, sets).to_dict()
        return told


def summarise(result: Mapping[str, Any]) -> str:
    """The table of a result of `Scores.to_dict`: accuracies in percent, averages against zero-shot with intervals."""
    names = list(result["groups"])
    width = max(11, *(len(one) for one in result["methods"])) + 1
    cell = max(8, *(len(name) for name in names)) + 2
    head = "".join(f"{name:>{cell}}" for name in names)
    lines = [f"{'accuracy, %':{width}}{head}   collapses (significant)"]
    for method, own in result["methods"].items():
        cells = "".join(_cell(own["sets"].get(name), cell) for name in names)
        lines.append(f"{method:{width}}{cells}   {own['collapse_raw']} ({own['collapse_significant']})")
    lines += ["", f"{'minus zero-shot, points':{max(width, 23)}}{'in-domain':>22}{'near and far':>22}"]
    for method, own in result["methods"].items():
        if method == "zero-shot":
            continue
        parts = [_points(own["averages"].get(group)) for group in ("in-domain", "out")]
        lines.append(f"{method:{max(width, 23)}}{parts[0]:>22}{parts[1]:>22}")
    return "\n".join(lines + _recoveries(result["methods"], names, width))


def _recoveries(methods: Mapping[str, Any], names: Sequence[str], width: int) -> list[str]:
    """A line a method, a column for each data set where few-shot is better; nothing where there is none."""
    found = {
        method: {name: one["recovery"] for name, one in own["sets"].items() if one["recovery"]}
        for method, own in methods.items()
    }
    columns = [name for name in names if any(name in own for own in found.values())]
    if not columns:
        return []
    lines = ["", "recovery, (method - zero-shot) / (few-shot - zero-shot), where few-shot is significantly better"]
    lines.append(" " * width + "".join(f"{name:>22}" for name in columns))
    for method, own in found.items():
        if own:
            told = [Estimate.from_dict(own[name]).summary(2) if name in own else "" for name in columns]
            lines.append(f"{method:{width}}" + "".join(f"{one:>22}" for one in told))
    return lines


def _cell(found: Mapping[str, Any] | None, width: int) -> str:
    return f"{'':>{width}}" if found is None else f"{100 * found['accuracy']['value']:{width}.1f}"


def _points(found: Mapping[str, Any] | None) -> str:
    if found is None:
        return ""
    one = found["difference"]
    low, high = (float("nan") if one[key] is None else one[key] for key in ("low", "high"))
    return f"{100 * one['value']:+.1f} [{100 * low:.1f}, {100 * high:.1f}]"
