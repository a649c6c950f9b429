"""A reader's constants from class means of its queries and keys beside fitted ones, and their held-out R²."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from readout.figures.style import BLUE, ORANGE, TWO_COLUMNS, intervals, styled

KINDS = {"class means": ORANGE, "fitted": BLUE}


def key_query(result: Mapping[str, Any]) -> Figure:
    """Base and match constants, one row a reader, and R² of label masses on the targets; 95 % intervals by context."""
    readers = result["readers"]
    with styled():
        figure, panels = plt.subplots(1, 3, figsize=(TWO_COLUMNS, 0.4 * len(readers) + 1.2), sharey=True)
        for number, (kind, colour) in enumerate(KINDS.items()):
            places = [place + 0.2 * number - 0.1 for place in range(len(readers))]
            for axes, term in zip(panels, ("base", "match", "r2"), strict=True):
                rows = [one["held out"][kind]["r2"] if term == "r2" else one[kind][term] for one in readers.values()]
                value, low, high = ([row[key] for row in rows] for key in ("value", "low", "high"))
                intervals(axes, value, places, low, high, horizontal=True, color=colour, label=kind)
        for axes, title in zip(panels, ("base b", "match a", "R² on the target"), strict=True):
            axes.set_title(title, loc="left")
        names = [f"{source} {one['class means']['head']}" for source, one in readers.items()]
        panels[0].set_yticks(range(len(readers)), names)
        panels[0].invert_yaxis()
        panels[2].legend(loc="upper left", bbox_to_anchor=(1, 1))
    return figure
