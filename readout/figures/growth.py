"""The figure of growth: each measure against the training step, a line a seed, drawn from fits/growth.json alone."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from readout.figures.style import BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, TWO_COLUMNS, styled

PANELS = (
    ("accuracy", "accuracy, 2-6 classes"),
    ("reader_gap", "reader: attention gap"),
    ("writer_effect", "writers: swapped keys"),
    ("reader_sink", "reader: first token"),
    ("gate_whole", "gate: all labels repeat"),
    ("gate_pair", "gate: one label repeats"),
    ("suppression", "last label: log-odds"),
    ("readout_kl", "readout: held-out KL"),
)
_COLOURS = (BLUE, ORANGE, GREEN, PURPLE, SKY)


def growth(result: dict[str, Any]) -> Figure:
    """Draw eight measures over training for every seed; dashed: random weights (step 0, mean over seeds).

    Parameters
    ----------
    result
        `seeds` -> seed -> `checkpoints` (rows with `step` and the measures) and `phases` (rows with `end`).

    Returns
    -------
    Figure
    """
    seeds = sorted(result["seeds"], key=int)
    with styled():
        figure, grid = plt.subplots(2, 4, figsize=(TWO_COLUMNS, 3.9), sharex=True)
        for axes, (measure, title) in zip(grid.flat, PANELS, strict=True):
            for seed, colour in zip(seeds, _COLOURS * (1 + len(seeds) // len(_COLOURS)), strict=False):
                run = result["seeds"][seed]
                rows = run["checkpoints"]
                axes.plot([row["step"] for row in rows], [row[measure] for row in rows], color=colour, label=seed)
                learned = run["phases"][0]["end"]
                axes.plot(learned, 0.02, marker="^", color=colour, markersize=3.5, transform=axes.get_xaxis_transform())
            control = sum(result["seeds"][seed]["checkpoints"][0][measure] for seed in seeds) / len(seeds)
            axes.axhline(control, color=GREY, linewidth=0.8, linestyle=(0, (4, 3)), zorder=0)
            axes.set_title(title)
        for axes in grid[1]:
            axes.set_xlabel("training step")
        lines, _ = grid[0, 0].get_legend_handles_labels()
        control_line = Line2D([], [], color=GREY, linewidth=0.8, linestyle=(0, (4, 3)))
        names = [f"seed {seed}" for seed in seeds]
        figure.legend(
            [*lines, control_line], [*names, "random weights"], loc="outside lower center", ncols=len(names) + 1
        )
    return figure
