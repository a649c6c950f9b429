"""The figure of routed heads in the circuit's terms, drawn from a result of `readout.icr.bridge` alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from readout.figures.style import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, TWO_COLUMNS, intervals, styled

COLOURS = (BLUE, ORANGE, PURPLE)
TITLES = {
    "label mass": "P(answers)",
    "first token": "first token",
    "direct effect": "effect, nats",
}


def bridge(result: Mapping[str, Any]) -> Figure:
    """Gates against ablation (readers ringed), and each measure at zero shot, routed and few-shot, 95 % intervals."""
    measures = list(result["level"])
    with styled():
        figure, panels = plt.subplots(
            1, 1 + len(measures), figsize=(TWO_COLUMNS, 2.2), width_ratios=[1.8] + [1] * len(measures)
        )
        _gates(panels[0], result)
        conditions = list(result["level"][measures[0]])
        colours = dict(zip(result["gates"], COLOURS, strict=False)) | {"zero-shot": GREY, "few-shot": GREEN}
        for number, (axes, measure) in enumerate(zip(panels[1:], measures, strict=True)):
            for place, name in enumerate(conditions):
                one = result["level"][measure][name]
                how = {"horizontal": True, "color": colours[name]}
                intervals(axes, [one["value"]], [place], [one["low"]], [one["high"]], **how)
            axes.set_title(TITLES[measure], loc="left")
            axes.set_yticks(range(len(conditions)), conditions if number == 0 else [""] * len(conditions))
            axes.invert_yaxis()
    return figure


def _gates(axes: Any, result: Mapping[str, Any]) -> None:
    for (name, own), colour in zip(result["gates"].items(), COLOURS, strict=False):
        falls = [result["falls"].get(head) for head in own["heads"]]
        axes.plot(falls, own["gates"], ".", color=colour, markersize=3, label=name)
        chosen = [own["heads"].index(head) for head in own["readers"]]
        axes.plot(
            [falls[i] for i in chosen],
            [own["gates"][i] for i in chosen],
            "o",
            color=BLACK,
            fillstyle="none",
            markersize=6,
        )
    axes.set_xlabel("fall by ablation in few-shot prompts, nats")
    axes.set_ylabel("mean gate at zero shot")
    axes.legend(loc="best")
