"""Figures of the main job, each drawn from ``report.json`` alone."""

from __future__ import annotations

import textwrap
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from readout.figures.style import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    ONE_COLUMN,
    ORANGE,
    RED,
    TWO_COLUMNS,
    diagonal,
    intervals,
    styled,
)

Report = dict[str, Any]
KIND_COLOURS = {"reader": BLUE, "anti-copying": RED, "attends": GREY}
MOST_HEADS = 24


def told(estimate: dict[str, Any]) -> str:
    """Value and interval, or a dash where there is none."""
    numbers = [estimate[key] for key in ("value", "low", "high")]
    return "-" if None in numbers else "{:.2f} [{:.2f}, {:.2f}]".format(*numbers)


def _marked(figure: Figure, report: Report) -> Figure:
    """Say on the figure itself when its fit has no ground."""
    if not report["has_ground"]:
        note = textwrap.fill("WITHOUT GROUND: " + "; ".join(report["notes"]), int(16 * figure.get_figwidth()))
        figure.supxlabel(note, color=RED, fontsize=7)
    return figure


def _height(report: Report, inches: float) -> float:
    """Height of a figure, with room for the note of one without ground."""
    return inches if report["has_ground"] else inches + 0.5


def _bounds(estimates: list[dict[str, Any]]) -> tuple[list[float], list[float], list[float]]:
    """Values, lower and upper ends; NaN where there is none."""

    def column(key: str) -> list[float]:
        return [float("nan") if estimate[key] is None else estimate[key] for estimate in estimates]

    return column("value"), column("low"), column("high")


def attention_by_match(report: Report) -> Figure:
    """Attention from the query to a matching and to another label position, for every head with a gap."""
    rows = [row for row in report["stage"]["readers"]["rows"] if row["kind"] in KIND_COLOURS]
    rows.sort(key=lambda row: (list(KIND_COLOURS).index(row["kind"]), -row["gap"]["value"]))
    used = [row for row in report["stage"]["readers"]["rows"] if row["head"] in report["heads"]]
    rows = [row for row in used if row not in rows] + rows[:MOST_HEADS]
    with styled():
        figure, axes = plt.subplots(figsize=(TWO_COLUMNS, _height(report, max(1.5, 0.8 + 0.16 * len(rows)))))
        places = np.arange(len(rows))[::-1]
        for key, face in (("matching", True), ("others", False)):
            for kind in [*KIND_COLOURS, "other"]:
                chosen = [number for number, row in enumerate(rows) if row["kind"] == kind]
                if not chosen:
                    continue
                value, low, high = _bounds([rows[number][key] for number in chosen])
                colour = KIND_COLOURS.get(kind, BLACK)
                shift = 0.13 if face else -0.13
                intervals(
                    axes, value, (places[chosen] + shift).tolist(), low, high, horizontal=True, color=colour,
                    markerfacecolor=colour if face else "white",
                )  # fmt: skip
        axes.set_yticks(places, [row["head"] for row in rows])
        for tick, row in zip(axes.get_yticklabels(), rows, strict=True):
            tick.set_color(KIND_COLOURS.get(row["kind"], BLACK))
            tick.set_fontweight("bold" if row["head"] in report["heads"] else "normal")
        axes.set_ylim(-0.7, len(rows) - 0.3)
        axes.set_xlim(left=0)
        axes.set_xlabel("attention weight from the query, per label position")
        axes.grid(axis="y", linewidth=0.3, color="#DDDDDD")
        axes.set_axisbelow(True)
        marks = [
            Line2D([], [], color=BLACK, marker="o", linestyle="none", markersize=3.5, markerfacecolor=face, label=name)
            for face, name in ((BLACK, "matching label"), ("white", "other label"))
        ]
        shown = {row["kind"] for row in rows}
        marks += [
            Line2D([], [], color=colour, marker="s", linestyle="none", markersize=4, label=kind)
            for kind, colour in (KIND_COLOURS | {"other": BLACK}).items()
            if kind in shown
        ]
        figure.legend(handles=marks, loc="outside right upper")
        contexts = report["stage"]["readers"]["contexts"]
        axes.set_title(
            f"{report['model']['name']}: kinds told on {contexts[0]} contexts, shown on {contexts[1]} others; "
            "heads of the readout in bold",
            loc="left",
        )
    return _marked(figure, report)


def observed_against_predicted_mass(report: Report) -> Figure:
    """Label mass observed on the target against the mass that two constants, fitted elsewhere, predict."""
    heads = list(report["mass_points"])[:4]
    with styled():
        width = min(TWO_COLUMNS, max(ONE_COLUMN, 0.5 + 2.0 * len(heads)))
        figure, panels = plt.subplots(1, len(heads), figsize=(width, _height(report, 2.3)), squeeze=False)
        for axes, head in zip(panels[0], heads, strict=True):
            points = report["mass_points"][head]
            value, low, high = _bounds([point["observed"] for point in points])
            predicted = [point["predicted"] for point in points]
            highest = max([number for number in (*predicted, *high, *value) if np.isfinite(number)], default=1.0)
            diagonal(axes, 1.05 * highest)
            intervals(axes, predicted, value, low, high, color=BLUE)
            r2 = report["validation"]["attention"][head]["r2"]
            axes.set_title(f"{head}\n$R^2$ = {told(r2)}", loc="left")
            axes.set_xlabel("predicted label mass")
        panels[0][0].set_ylabel("observed label mass")
    return _marked(figure, report)


def reliability(report: Report) -> Figure:
    """Label probabilities on the target: how many lie where, and the reliability curve with intervals."""
    calibration = report["validation"]["calibration"]
    grid = report["label_grid"]
    with styled():
        figure, (left, right) = plt.subplots(1, 2, figsize=(TWO_COLUMNS * 0.8, _height(report, 2.7)))
        counts = np.array(grid["counts"], float)
        shown = left.pcolormesh(
            grid["edges"], grid["edges"], np.ma.masked_equal(counts.T, 0), cmap="cividis_r", norm=LogNorm()
        )
        figure.colorbar(shown, ax=left, label="labels")
        diagonal(left, 1.0)
        diagonal(right, 1.0)
        value, low, high = _bounds([point["actual"] for point in calibration["curve"]])
        intervals(right, [point["predicted"] for point in calibration["curve"]], value, low, high, color=BLUE)
        slope, shift = told(calibration["slope"]), told(calibration["intercept"])
        right.set_title(f"slope {slope}\nintercept {shift}", loc="left")
        left.set_title(f"{report['model']['name']}\nlink {report['link']}", loc="left")
        for axes in (left, right):
            axes.set_xlabel("predicted probability of a label")
        left.set_ylabel("the model's probability")
        right.set_ylabel("the model's mean probability")
    return _marked(figure, report)


def validation_table(report: Report) -> Figure:
    """KL(model || prediction) on the target of baselines, controls, links and ceilings, with intervals."""
    validation = report["validation"]
    groups = (
        ("baseline", validation["baselines"], GREY),
        ("control", validation["controls"], ORANGE),
        ("readout", validation["links"], BLUE),
        ("observed attention", validation["ceiling"], GREEN),
    )
    rows = [(kind, name, row, colour) for kind, table, colour in groups for name, row in table.items()]
    with styled():
        figure, panels = plt.subplots(
            1, 2, figsize=(TWO_COLUMNS, _height(report, 0.7 + 0.19 * len(rows))), sharey=True, width_ratios=(3, 2)
        )
        places = np.arange(len(rows))[::-1]
        for axes, metric, title in zip(
            panels, ("kl", "agreement"), ("KL(model || prediction), nats", "same likeliest label"), strict=True
        ):
            for place, (_, _, row, colour) in zip(places, rows, strict=True):
                value, low, high = _bounds([row[metric]])
                drawn = {"fmt": "|"} if colour == ORANGE else {}
                intervals(axes, value, [place], low, high, horizontal=True, color=colour, **drawn)
            axes.set_xlabel(title)
            axes.set_xlim(left=0)
            axes.grid(axis="x", linewidth=0.3, color="#DDDDDD")
            axes.set_axisbelow(True)
        labels = [f"{kind}: {name.replace('_', ' ')}" for kind, name, _, _ in rows]
        panels[0].set_yticks(places, labels)
        for tick, (kind, name, _, colour) in zip(panels[0].get_yticklabels(), rows, strict=True):
            tick.set_color(colour if colour != GREY else BLACK)
            if kind == "readout" and name == report["link"]:
                tick.set_fontweight("bold")
        frequency = validation["baselines"]["label_frequency"]["kl"]["value"]
        panels[0].axvline(frequency, color=GREY, linewidth=0.6)
        panels[0].annotate(
            "label frequency", (frequency, -0.6), (2, 0), textcoords="offset points", fontsize=6, color=GREY
        )
        figure.suptitle(
            f"{report['model']['name']}: fitted on {report['fit_distribution']['task']}, held-out target of "
            f"{validation['n_prompts']} prompts\nheads {', '.join(report['heads'][:5])}; chosen link in bold; "
            "95 % intervals by context, controls: range over draws",
            x=0.01,
            ha="left",
            fontsize=8,
        )
    return _marked(figure, report)


FIGURES = {
    "attention_by_match": attention_by_match,
    "observed_against_predicted_mass": observed_against_predicted_mass,
    "reliability": reliability,
    "validation_table": validation_table,
}
