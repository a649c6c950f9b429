"""One look for all figures: sizes for print, a palette for colour-blind readers, intervals drawn alike."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

ONE_COLUMN = 3.4
TWO_COLUMNS = 7.0
"""Widths in inches."""

# Okabe and Ito (2008)
BLUE, ORANGE, GREEN, RED, PURPLE, SKY, YELLOW, BLACK, GREY = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#D55E00",
    "#CC79A7",
    "#56B4E9",
    "#F0E442",
    "#000000",
    "#7F7F7F",
)
_SETTINGS: dict[str, Any] = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "lines.linewidth": 1.0,
    "savefig.dpi": 300,
    "pdf.fonttype": 42,
    "figure.constrained_layout.use": True,
}


@contextmanager
def styled() -> Iterator[None]:
    """Draw with the package's settings."""
    with plt.rc_context(cast(Any, _SETTINGS)):
        yield


def intervals(
    axes: Axes,
    x: Sequence[float],
    y: Sequence[float],
    low: Sequence[float],
    high: Sequence[float],
    *,
    horizontal: bool = False,
    **how: Any,
) -> None:
    """Points with 95 % intervals; ``horizontal`` puts the interval along x."""
    centre = x if horizontal else y
    reach = [
        [max(0.0, middle - bottom) for middle, bottom in zip(centre, low, strict=True)],
        [max(0.0, top - middle) for middle, top in zip(centre, high, strict=True)],
    ]
    options: dict[str, Any] = {
        "fmt": "o",
        "markersize": 3.5,
        "elinewidth": 0.9,
        "capsize": 0,
        "linestyle": "none",
    } | how
    options["xerr" if horizontal else "yerr"] = reach
    axes.errorbar(x, y, **options)


def diagonal(axes: Axes, top: float) -> None:
    """The line on which prediction and observation agree."""
    axes.plot([0, top], [0, top], color=GREY, linewidth=0.7, linestyle=(0, (4, 3)), zorder=0)
    axes.set_xlim(0, top)
    axes.set_ylim(0, top)
    axes.set_aspect("equal")


def save(figure: Figure, path: str | Path) -> list[Path]:
    """Write a figure as PNG and PDF beside each other and close it; ``path`` has no suffix."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    written = []
    for suffix in (".png", ".pdf"):
        # Without a date, equal figures are equal files.
        metadata = {"CreationDate": None} if suffix == ".pdf" else {"Software": None}
        written.append(path.with_suffix(suffix))
        figure.savefig(written[-1], metadata=metadata)
    plt.close(figure)
    return written
