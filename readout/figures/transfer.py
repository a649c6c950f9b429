"""The transfer study: held-out errors beside what needs no attention, and constants that move or stay."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from readout.figures.style import BLUE, GREEN, GREY, ORANGE, RED, TWO_COLUMNS, intervals, styled

Result = Mapping[str, Any]

AGAINST = "match + log count"
SHOWN = {
    "binary": ORANGE,
    "graded": BLUE,
    "similarity + log count": GREEN,
    "graded, random heads of the same layers": GREY,
}


def transfer_errors(result: Result) -> Figure:
    """KL(model || prediction) minus that of match + log count, paired, one row a pair of source and target."""
    pairs = result["pairs"]
    with styled():
        figure, axes = plt.subplots(figsize=(TWO_COLUMNS, 0.45 * len(pairs) + 1.0))
        for number, (name, colour) in enumerate(SHOWN.items()):
            places, rows = [], []
            for place, pair in enumerate(pairs.values()):
                if name in pair["pooled"]:
                    places.append(place + 0.18 * (number - 1.5))
                    rows.append(pair["pooled"][name][f"minus {AGAINST}"])
            value, low, high = ([row[key] for row in rows] for key in ("value", "low", "high"))
            intervals(axes, value, places, low, high, horizontal=True, color=colour, label=name)
        axes.axvline(0, color=GREY, linewidth=0.7, linestyle=(0, (4, 3)), zorder=0)
        axes.set_yticks(range(len(pairs)), list(pairs))
        axes.invert_yaxis()
        axes.set_xlabel(f"KL(model, prediction) minus that of {AGAINST}, nats")
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
    return figure


def transfer_constants(result: Result) -> Figure:
    """Constants of each pair's first head on the source (grey) and refitted on every draw of the target."""
    pairs = result["pairs"]
    with styled():
        figure, panels = plt.subplots(2, 2, figsize=(TWO_COLUMNS, 0.5 * len(pairs) + 1.4), sharey=True)
        for row, (term, title) in enumerate((("base", "b"), ("match", "a"))):
            for column, mode in enumerate(("binary", "graded")):
                axes = panels[row, column]
                for place, pair in enumerate(pairs.values()):
                    draws = [draw["constants"][mode] for draw in pair["draws"].values()]
                    head = next(iter(draws[0]))
                    own = [draw[head][term] for draw in draws if head in draw]
                    for number, one in enumerate(own):
                        _point(axes, one["target"], place + 0.15 * (number + 1), BLUE if mode == "graded" else ORANGE)
                    _point(axes, own[0]["source"], place, RED)
                axes.set_title(f"{mode} match: {term} {title}", loc="left")
                axes.set_yticks([place + 0.2 for place in range(len(pairs))], list(pairs))
        panels[0, 0].invert_yaxis()
        figure.supxlabel("red: source; others: refitted on each draw of the target", fontsize=7)
    return figure


FIGURES = {"errors": transfer_errors, "constants": transfer_constants}


def _point(axes: Any, estimate: Mapping[str, float], place: float, colour: str) -> None:
    value, low, high = ([estimate[key]] for key in ("value", "low", "high"))
    intervals(axes, value, [place], low, high, horizontal=True, color=colour, markersize=2.5)
