"""Claim 4: a signal that some label has repeated gates the readout."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from readout.circuit.carriers import find_carriers, measure_carriers
from readout.circuit.claim import TITLES, Claim, Part
from readout.circuit.edits import Add, Intervention
from readout.circuit.engine import intervene
from readout.circuit.evidence import (
    Component,
    flip_p_values,
    joint,
    joint_p,
    joint_rule,
    lack_of_behaviour,
    paired_shares,
    rank_p,
    shares,
)
from readout.circuit.readers import size
from readout.circuit.repeats import Contrast, Openness, contrast, lack_of_repeats, openness
from readout.circuit.setting import Setting
from readout.circuit.share_claim import untested
from readout.circuit.signal import FEWEST_DIRECTIONS, PLACES, Gate, find_gate, patched_by_place
from readout.statistics import cluster_difference, cluster_mean

MOST_GRID_LAYERS = 16
"""Layers of the patching grid; more are thinned out evenly."""


def claim_4(setting: Setting, known: Mapping[int, Claim], progress: bool = False) -> Claim:
    """Test whether a repeated label opens the readout, and find its signal.

    Prompts with a repeated label against the same prompts with a fresh label at every showing of a label but its last,
    so that none repeats; the control replaces as many labels by fresh ones, but each throughout, so that they repeat.

    Parameters
    ----------
    setting
        Model and prompts.
    known
        Claim 3 names the readers; without it they are the heads of the widest attention gap.
    progress
        Not used: each pass is short.

    Returns
    -------
    Claim
        Components: mass on the labels, the first reader's first-token attention, and the signal: adding the
        difference of means at the place chosen on the other half. The other readers are in ``curves["openness"]``.
    """
    if why := lack_of_repeats(setting):
        return untested(4, "probability of the prompt's labels with a repeat minus without", why, *size(setting))
    gate = find_gate(setting, known)
    pairs = contrast(setting, setting.testing)
    found, logit_difference = _measured(setting, gate, pairs)
    components = [_mass(found, pairs, setting.seed), _sink(found, pairs, setting.seed, gate)]
    signal, place = _signal(setting, gate, pairs, found)
    components.append(signal)
    parts = (place, *measure_carriers(setting, gate, pairs, find_carriers(setting, gate)))
    lack = lack_of_behaviour(logit_difference, pairs.contexts)
    mass = components[0]
    notes = [one.note() for one in components]
    if not gate.named:
        notes.append("no reader is known: the heads of the widest attention gap stand in")
    return Claim(
        number=4,
        title=TITLES[4],
        measure=f"{mass.measure}; the verdict is on all components",
        effect=mass.effect,
        control=mass.control,
        difference=mass.difference,
        p=joint_p(components),
        p_method="largest of the components' p (all must hold): sign flips of contexts; rank among directions",
        n_prompts=len(pairs.repeated),
        n_contexts=len(set(pairs.contexts.tolist())),
        supported="undecided" if lack else joint(components),
        rule=joint_rule(components),
        parts=parts,
        curves={
            "components": [one.to_dict() for one in components],
            "signal": {"place": gate.place, "layer": gate.layer, "measured_by": gate.measured_by},
            "readers": [f"L{layer}H{head}" for layer, head in gate.readers],
            "openness": _table(found, pairs, gate),
            "patching": _grid(setting, gate, pairs, found),
        },
        notes=(*([lack] if lack else []), *notes),
    )


def _measured(setting: Setting, gate: Gate, pairs: Contrast) -> tuple[dict[str, Openness], np.ndarray]:
    """How open the readout is in prompts of each kind, and the logit difference of the repeated ones."""
    found, difference = {}, np.zeros(0)
    for name in ("repeated", "single", "relabelled"):
        prompts = getattr(pairs, name)
        outcome = intervene(setting.model, prompts, [Intervention("", ())], watch=gate.readers, normalise=True)
        found[name] = openness(outcome, outcome.unedited, prompts)
        if name == "repeated":
            difference = outcome.logit_difference(outcome.unedited)
    return found, difference


def _mass(found: dict[str, Openness], pairs: Contrast, seed: int) -> Component:
    mass = {name: one.mass for name, one in found.items()}
    return _change(
        "label mass",
        "probability of the prompt's labels with a repeat minus without; control: with a repeat minus relabelled",
        mass["repeated"] - mass["single"],
        mass["repeated"] - mass["relabelled"],
        float(mass["repeated"].mean()) / 10,
        pairs,
        seed,
    )


def _sink(found: dict[str, Openness], pairs: Contrast, seed: int, gate: Gate) -> Component:
    """Of the first reader alone: how many others are named depends on how many prompts there are."""
    sink = {name: one.sink[:, 0] for name, one in found.items()}
    layer, head = gate.readers[0]
    return _change(
        "first-token attention",
        f"of L{layer}H{head}, without a repeat minus with one; control: relabelled minus with one",
        sink["single"] - sink["repeated"],
        sink["relabelled"] - sink["repeated"],
        float(found["repeated"].labels[:, 0].mean()) / 10,
        pairs,
        seed,
    )


def _change(
    name: str, measure: str, effect: np.ndarray, control: np.ndarray, negligible: float, pairs: Contrast, seed: int
) -> Component:
    return Component(
        name,
        measure,
        cluster_mean(effect, pairs.contexts),
        cluster_mean(control, pairs.contexts),
        cluster_difference(effect, control, pairs.contexts),
        float(np.nan_to_num(flip_p_values((effect - control)[:, None], pairs.contexts, seed)[0], nan=1.0)),
        negligible,
    )


def _signal(setting: Setting, gate: Gate, pairs: Contrast, found: dict[str, Openness]) -> tuple[Component, Part]:
    """Add the direction to prompts without a repeat, beside random directions and differences of shuffled halves."""
    draws = max(FEWEST_DIRECTIONS, setting.draws // 2)
    random, shuffled = gate.random(draws, setting.seed), gate.shuffled(draws, setting.seed + 1)
    edits = [Intervention.of("", (gate.site, Add(one))) for one in (gate.direction, *random, *shuffled)]
    outcome = intervene(setting.model, pairs.single, edits, watch=gate.readers, normalise=True)
    after = gate.opening(openness(outcome, outcome.edited, pairs.single))
    moved = after - gate.opening(found["single"])
    whole = gate.opening(found["repeated"]) - gate.opening(found["single"])
    control = moved[1 : 1 + draws].mean(0)
    effect, other, difference = paired_shares(moved[0], control, whole, pairs.contexts)
    own, means = moved[0].mean(), moved[1:].mean(1)
    p = max(rank_p(own, means[:draws]), rank_p(own, means[draws:]))
    measure = (
        f"share of the gate ({gate.measured_by}) that adding the difference of means at the {gate.place} entering "
        f"layer {gate.layer} makes; control: random directions"
    )
    from_shuffled = shares(moved[1 + draws :].mean(0)[:, None], whole, pairs.contexts)[0]
    part = Part(
        role="gate",
        name=f"{gate.place} entering L{gate.layer}",
        layer=gate.layer,
        head=-1,
        definition="place where adding the difference of means (with a repeat minus without) opens most",
        effect=effect,
        control=other,
        p=p,
        p_method=f"rank among {draws} random and {draws} shuffled directions of the same norm, the larger p",
        evidence={
            "norm": float(np.linalg.norm(gate.direction)),
            "shuffled": from_shuffled.value,
            "largest of the random": float(means[:draws].max() / whole.mean()) if whole.mean() else np.nan,
            "largest of the shuffled": float(means[draws:].max() / whole.mean()) if whole.mean() else np.nan,
        },
    )
    return Component("signal", measure, effect, other, difference, p, 0.1), part


def _table(found: dict[str, Openness], pairs: Contrast, gate: Gate) -> dict[str, Any]:
    """Estimates by kind of prompt."""
    table: dict[str, Any] = {}
    for name, one in found.items():
        readers = {
            f"L{layer}H{head}": {
                "first token": cluster_mean(one.sink[:, number], pairs.contexts).to_dict(),
                "labels": cluster_mean(one.labels[:, number], pairs.contexts).to_dict(),
            }
            for number, (layer, head) in enumerate(gate.readers)
        }
        table[name] = {
            "label mass": cluster_mean(one.mass, pairs.contexts).to_dict(),
            "preference": cluster_mean(one.preference, pairs.contexts).to_dict(),
            "readers": readers,
        }
    return table


def _grid(setting: Setting, gate: Gate, pairs: Contrast, found: dict[str, Openness]) -> dict[str, Any]:
    """Shares of the gate and of the label mass moved by patching the residual stream, by place and layer."""
    every = [part.layer for part in setting.model.wiring.attentions]
    step = -(-len(every) // MOST_GRID_LAYERS)
    layers = sorted({*every[::step], gate.layer, every[-1]})
    wholes = (
        gate.opening(found["repeated"]) - gate.opening(found["single"]),
        found["repeated"].mass - found["single"].mass,
    )
    grid: dict[str, Any] = {"layers": layers, "places": list(PLACES), "measures": [gate.measured_by, "label mass"]}
    for name, by_place in patched_by_place(setting, gate, pairs, layers).items():
        grid[name] = {
            place: [
                [one.to_dict() for one in shares(moved[number].T, whole, pairs.contexts)]
                for number, whole in enumerate(wholes)
            ]
            for place, moved in by_place.items()
        }
    return grid
