"""Figures of the circuit, drawn from ``circuit.json`` alone; None where the claims they show were not tested."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from readout.figures.style import BLUE, GREEN, GREY, ONE_COLUMN, ORANGE, RED, TWO_COLUMNS, intervals, styled

Report = dict[str, Any]
_PLACE_COLOURS = {"query": BLUE, "last label": ORANGE, "last cue": GREEN}
_DASHED = (0, (4, 3))


def patching(report: Report) -> Figure | None:
    """Residual stream patched by layer and position: labels exchanged (claim 1), repeat made and taken (claim 4)."""
    identity, gate = (_curves(report, number) for number in ("1", "4"))
    if identity is None and gate is None:
        return None
    with styled():
        figure, panels = plt.subplots(1, 3, figsize=(TWO_COLUMNS, 2.4), sharey=True)
        if identity is not None:
            for role, colour in (("labels", ORANGE), ("texts", GREEN), ("random", GREY)):
                row = identity[role]
                _band(panels[0], identity["layer"], row["share"], row["low"], row["high"], colour, f"at {role}")
            panels[0].legend(loc="upper right")
        panels[0].set_title("from label-swapped prompts:\nshare of the logit difference", loc="left")
        if gate is not None:
            grid = gate["patching"]
            measure = grid["measures"][0]
            for axes, side, told in ((panels[1], "opened", "a repeat put in"), (panels[2], "closed", "taken out")):
                for place in grid["places"]:
                    value, low, high = _columns(grid[side][place][0])
                    _band(axes, grid["layers"], value, low, high, _PLACE_COLOURS[place], place)
                axes.set_title(f"{told}:\nshare of {measure}", loc="left")
            panels[1].legend(loc="upper left")
        for axes in panels:
            axes.set_ylim(-0.4, 1.6)
            _line_at(axes, 0, 1)
            axes.set_xlabel("residual stream entering layer")
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    return figure


def ablation(report: Report) -> Figure | None:
    """Named heads ablated, against every draw of as many random heads of the same layers."""
    shown = [
        (curves, title, label, key)
        for number, title, label, key in (
            ("3", "readers ablated", "logit difference left, nats", "named"),
            ("5", "suppressors ablated", "rise of the last label's log-odds, nats", "named"),
        )
        if (curves := _curves(report, number)) is not None and key in curves
    ]
    if not shown:
        return None
    with styled():
        figure, panels = plt.subplots(1, len(shown), figsize=(ONE_COLUMN * len(shown), 2.7), squeeze=False)
        for axes, (curves, title, label, key) in zip(panels[0], shown, strict=True):
            _histogram(axes, curves["random"], curves[key], "named heads")
            if title == "readers ablated":
                axes.axvline(curves["unedited"], color="black", linestyle=_DASHED, linewidth=0.9, label="unedited")
            axes.set_title(f"{title} ({len(curves['random'])} random draws)", loc="left")
            axes.set_xlabel(label)
            axes.margins(x=0.1)
            _legend_below(axes)
        panels[0][0].set_ylabel("draws")
    return figure


def steering(report: Report) -> Figure | None:
    """The gate's direction added without a repeat and subtracted with one, beside random directions."""
    curves = _curves(report, "6")
    if curves is None:
        return None
    dose, signal = curves["dose"], curves["signal"]
    with styled():
        # Where the gate is measured by the label mass, both measures are one.
        measures = list(dict.fromkeys(dose["opening"]["measures"]))
        size = (TWO_COLUMNS * 0.45 * len(measures), 3.8)
        figure, panels = plt.subplots(2, len(measures), figsize=size, sharex=True, squeeze=False)
        for row, (side, told) in enumerate((("opening", "added, no repeat"), ("closing", "subtracted, a repeat"))):
            for column, measure in enumerate(measures):
                axes = panels[row, column]
                for number, drawn in enumerate(dose[side]["random"][column]):
                    name = "random directions" if not number else None
                    axes.plot(dose["strengths"], _numbers(drawn), color=GREY, alpha=0.4, linewidth=0.6, label=name)
                value, low, high = _columns(dose[side]["own"][column])
                intervals(axes, dose["strengths"], value, low, high, color=BLUE, linestyle="-", label="the signal")
                _line_at(axes, 0, 1)
                axes.set_title(f"{told}: {measure}", loc="left")
                _limits(axes, [*value, *low, *high])
        for axes in panels[1]:
            axes.set_xlabel("strength (1 = difference of means)")
        for axes in panels[:, 0]:
            axes.set_ylabel("share of the gate")
        handles, names = panels[0, 0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside lower center", ncols=2)
        figure.suptitle(
            f"direction at the {signal['place']} entering layer {signal['layer']}", x=0.02, ha="left", fontsize=8
        )
    return figure


def gate(report: Report) -> Figure | None:
    """Label mass and readers' attention with a repeat, without, and with other labels that repeat."""
    curves = _curves(report, "4")
    if curves is None:
        return None
    kinds = {"repeated": "a repeat", "single": "none", "relabelled": "relabelled"}
    table, readers = curves["openness"], curves["readers"]
    with styled():
        figure, panels = plt.subplots(1, 3, figsize=(TWO_COLUMNS, 2.3), width_ratios=(1, 2, 2))
        value, low, high = _columns([table[kind]["label mass"] for kind in kinds])
        intervals(panels[0], range(3), value, low, high, color=BLUE)
        panels[0].set_xticks(range(3), list(kinds.values()), rotation=30)
        panels[0].set_xlim(-0.5, 2.5)
        panels[0].set_title("probability of labels", loc="left")
        for axes, what in ((panels[1], "first token"), (panels[2], "labels")):
            for number, (kind, colour) in enumerate(zip(kinds, (BLUE, RED, GREY), strict=True)):
                value, low, high = _columns([table[kind]["readers"][name][what] for name in readers])
                places = (np.arange(len(readers)) + 0.2 * (number - 1)).tolist()
                intervals(axes, places, value, low, high, color=colour, label=kinds[kind])
            axes.set_xticks(range(len(readers)), readers, rotation=30)
            axes.set_xlim(-0.5, len(readers) - 0.5)
            axes.set_title(f"attention to the {what}", loc="left")
        panels[1].legend()
        for axes in panels:
            axes.set_ylim(-0.02, 1.02)
    return figure


def sufficiency(report: Report) -> Figure | None:
    """How much of the logit difference named heads keep, and the curve over the number of heads kept."""
    curves = _curves(report, "7")
    if curves is None or "counts" not in curves:
        return None
    with styled():
        figure, (left, right) = plt.subplots(1, 2, figsize=(TWO_COLUMNS, 3.0))
        counts = curves["counts"]
        value, low, high = _columns(curves["kept"])
        _band(left, counts, value, low, high, BLUE, "best by ablation, choosing half")
        random = np.array(curves["random kept"], float)
        middle, bottom, top = (np.quantile(random, level, axis=1).tolist() for level in (0.5, 0.025, 0.975))
        _band(left, counts, middle, bottom, top, GREY, "random heads, middle 95 % of draws")
        named = curves["query"]["effect"]
        value, low, high = _columns([named])
        intervals(left, [len(curves["named"])], value, low, high, color=RED, label="the named heads")
        left.set_xscale("symlog", linthresh=1)
        # The number of all heads is often close to the power of two below it.
        ticks = [one for one, after in zip(counts, [*counts[1:], np.inf], strict=True) if after >= 1.5 * one]
        left.set_xticks(ticks, [str(count) for count in ticks])
        left.minorticks_off()
        left.set_xlabel("heads kept at the query")
        left.set_ylabel("share of the logit difference")
        _legend_below(left)
        for kind, colour, told in (("query", RED, "at the query"), ("strict", ORANGE, "at the labels too")):
            row = curves[kind]
            right.hist(_numbers(row["random"]), bins=20, color=colour, alpha=0.35, label=f"random, {told}")
            right.axvline(row["effect"]["value"], color=colour, label=f"named, {told}")
        right.set_xlabel("share of the logit difference kept")
        right.set_ylabel("draws")
        _legend_below(right)
        for lines in (0, 1):
            left.axhline(lines, color=GREY, linewidth=0.6, linestyle=_DASHED, zorder=0)
        _limits(left, [*_columns(curves["kept"])[0], 0.0, 1.0, named["value"]])
    return figure


FIGURES: dict[str, Callable[[Report], Figure | None]] = {
    "patching": patching,
    "ablation": ablation,
    "steering": steering,
    "gate": gate,
    "sufficiency": sufficiency,
}


def _curves(report: Report, number: str) -> dict[str, Any] | None:
    claim = report["claims"].get(number)
    return None if claim is None else claim["curves"]


def _numbers(values: Sequence[float | None]) -> list[float]:
    return [float("nan") if one is None else float(one) for one in values]


def _columns(estimates: Sequence[dict[str, Any]]) -> tuple[list[float], list[float], list[float]]:
    value, low, high = (_numbers([one[key] for one in estimates]) for key in ("value", "low", "high"))
    return value, low, high


def _band(
    axes: Axes,
    x: Sequence[float],
    value: Sequence[float | None],
    low: Sequence[float | None],
    high: Sequence[float | None],
    colour: str,
    label: str,
) -> None:
    axes.plot(x, _numbers(value), color=colour, label=label, marker="o", markersize=2)
    axes.fill_between(x, _numbers(low), _numbers(high), color=colour, alpha=0.2, linewidth=0)


def _histogram(axes: Axes, draws: Sequence[float | None], own: float, label: str) -> None:
    axes.hist([one for one in _numbers(draws) if np.isfinite(one)], bins=20, color=GREY, label="random heads")
    axes.axvline(own, color=RED, label=label)


def _legend_below(axes: Axes) -> None:
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.22))


def _line_at(axes: Axes, *heights: float) -> None:
    for height in heights:
        axes.axhline(height, color=GREY, linewidth=0.6, linestyle=_DASHED, zorder=0)


def _limits(axes: Axes, values: Sequence[float]) -> None:
    """Limits by what is claimed, so that wild random draws do not squeeze it."""
    finite = [one for one in values if np.isfinite(one)] or [0.0]
    low, high = min(-0.5, *finite), max(1.5, *finite)
    axes.set_ylim(max(low, -3), min(high, 4))
