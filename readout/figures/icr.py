"""Figures of in-context routing, drawn from `icr.json` alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from readout.figures.style import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, RED, SKY, TWO_COLUMNS, intervals, styled

Result = Mapping[str, Any]
COLOURS = (BLUE, ORANGE, GREEN, RED, PURPLE, SKY, BLACK, GREY)
SHOWN = ("few-shot", "icr", "icr, random basis", "label bias, fitted", "encoder only", "icr, constant router")
"""Methods drawn beside zero-shot; a reader can tell six apart."""


def draw_accuracy(result: Result) -> Figure | None:
    """Accuracy of each method on each data set, with 95 % intervals; zero-shot as a line."""
    names = list(result["groups"])
    methods = [name for name in SHOWN if name in result["methods"]]
    if not methods:
        return None
    with styled():
        figure, axes = plt.subplots(figsize=(TWO_COLUMNS, 2.6))
        for place, method in enumerate(methods):
            sets = result["methods"][method]["sets"]
            own = [(i, sets[name]["accuracy"]) for i, name in enumerate(names) if name in sets]
            x = [i + (place - (len(methods) - 1) / 2) * 0.12 for i, _ in own]
            values = [[100 * _number(one[key]) for _, one in own] for key in ("value", "low", "high")]
            intervals(axes, x, *values, color=COLOURS[place], label=method)
        for i, name in enumerate(names):
            zero = 100 * result["methods"]["zero-shot"]["sets"][name]["accuracy"]["value"]
            # an underscore keeps a line out of the legend: one of each kind is enough there
            label = "zero-shot" if i == 0 else "_"
            axes.hlines(zero, i - 0.42, i + 0.42, color=BLACK, linewidth=0.8, label=label)
            if name in result["chance"]:
                told = "commonest answer" if i == 0 else "_"
                chance = 100 * result["chance"][name]
                axes.hlines(chance, i - 0.42, i + 0.42, color=GREY, linestyle=(0, (2, 2)), linewidth=0.8, label=told)
        axes.set_xticks(range(len(names)), [f"{name}\n{result['groups'][name]}" for name in names])
        axes.set_ylabel("accuracy (%)")
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def draw_layers(result: Result) -> Figure | None:
    """Share of each routed layer in the trained router's bias, by data set."""
    if "routing" not in result:
        return None
    layers, sets = result["routing"]["layers"], result["routing"]["sets"]
    with styled():
        figure, axes = plt.subplots(figsize=(TWO_COLUMNS * 0.7, 2.4))
        for place, (name, one) in enumerate(sets.items()):
            style = "-" if result["groups"].get(name) == "in-domain" else "--"
            colour = COLOURS[place % len(COLOURS)]
            axes.plot(layers, one["layers"], style, color=colour, marker="o", markersize=2.5, label=name)
        axes.set_xticks(layers)
        axes.set_xlabel("layer")
        axes.set_ylabel("share of importance")
        axes.set_ylim(bottom=0)
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), title="solid: in-domain")
    return figure


def draw_heads(result: Result) -> Figure | None:
    """Radar: around the circle the routed layers, outwards the head with the largest mean gate; a star where all sets
    agree."""
    if "routing" not in result:
        return None
    layers, sets = result["routing"]["layers"], result["routing"]["sets"]
    tops = np.array([one["top_heads"] for one in sets.values()])
    n_heads = len(next(iter(sets.values()))["gates"][0])
    angles = np.linspace(0, 2 * np.pi, len(layers), endpoint=False)
    with styled():
        figure, axes = plt.subplots(figsize=(TWO_COLUMNS * 0.55, 3.0), subplot_kw={"projection": "polar"})
        for place, name in enumerate(sets):
            ring = np.append(tops[place], tops[place][0])
            axes.plot(np.append(angles, angles[0]), ring, color=COLOURS[place % len(COLOURS)], alpha=0.7, label=name)
        agreed = (tops == tops[0]).all(0)
        if agreed.any():
            axes.plot(angles[agreed], tops[0][agreed], "*", color=GREEN, markersize=9, label="all agree")
        axes.set_xticks(angles, [f"L{layer}" for layer in layers])
        axes.set_ylim(-1, n_heads - 0.5)
        axes.set_yticks(range(n_heads), [f"H{head}" for head in range(n_heads)], fontsize=5)
        axes.legend(loc="center left", bbox_to_anchor=(1.1, 0.5))
    return figure


def draw_latency(result: Result) -> Figure | None:
    """Seconds of a plain and of a routed pass over the prompt's length, and their ratio."""
    if not result.get("latency"):
        return None
    rows = result["latency"]
    tokens = [one["tokens"] for one in rows]
    with styled():
        figure, (left, right) = plt.subplots(1, 2, figsize=(TWO_COLUMNS * 0.8, 2.2))
        for name, colour in (("plain", GREY), ("routed", BLUE)):
            left.plot(tokens, [one[name] for one in rows], marker="o", markersize=3, color=colour, label=name)
        left.set(xscale="log", yscale="log", xlabel="tokens", ylabel="seconds of one pass")
        left.set_xticks(tokens, [str(one) for one in tokens])
        left.minorticks_off()
        left.legend()
        right.plot(tokens, [one["ratio"] for one in rows], marker="o", markersize=3, color=BLUE)
        right.axhline(1.1, color=GREY, linestyle=(0, (4, 3)), linewidth=0.7)
        right.set(xscale="log", xlabel="tokens", ylabel="routed / plain")
        right.set_xticks(tokens, [str(one) for one in tokens])
        right.minorticks_off()
        right.set_ylim(bottom=0.9)
    return figure


def draw_differences(result: Result) -> Figure | None:
    """Every method minus zero-shot, average in domain and out of it, with 95 % intervals."""
    methods = [name for name, one in result["methods"].items() if name != "zero-shot" and one["averages"]]
    if not methods:
        return None
    with styled():
        height = 0.8 + 0.19 * len(methods)
        figure, panels = plt.subplots(1, 2, figsize=(TWO_COLUMNS, height), sharey=True)
        for axes, group, title in zip(panels, ("in-domain", "out"), ("in-domain", "near and far"), strict=True):
            own = [(i, result["methods"][name]["averages"].get(group)) for i, name in enumerate(methods)]
            found = [(i, one["difference"]) for i, one in own if one]
            values = [[100 * _number(one[key]) for _, one in found] for key in ("value", "low", "high")]
            if found:
                intervals(axes, values[0], [i for i, _ in found], values[1], values[2], horizontal=True, color=BLUE)
            axes.axvline(0, color=GREY, linewidth=0.7)
            axes.set_title(title)
            axes.set_xlabel("accuracy minus zero-shot (points)")
        panels[0].set_yticks(range(len(methods)), methods)
        panels[0].invert_yaxis()
    return figure


def _number(value: float | None) -> float:
    return float("nan") if value is None else value


FIGURES: dict[str, Callable[[Result], Figure | None]] = {
    "accuracy": draw_accuracy,
    "differences": draw_differences,
    "layers": draw_layers,
    "heads": draw_heads,
    "latency": draw_latency,
}
