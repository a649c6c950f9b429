"""Claim 6: steering with the model's own signals moves the behaviour."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from readout.circuit.claim import TITLES, Claim
from readout.circuit.edits import Add, Intervention, Patch, Residual
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
from readout.circuit.pairs import class_pairs
from readout.circuit.positions import LABELS, TEXTS
from readout.circuit.readers import size
from readout.circuit.repeats import Contrast, contrast, lack_of_repeats, openness
from readout.circuit.setting import Setting
from readout.circuit.share_claim import untested
from readout.circuit.signal import FEWEST_DIRECTIONS, Gate, find_gate, gate_from
from readout.errors import InterventionError
from readout.prompts import TokenizedPrompt
from readout.statistics import cluster_means

STRENGTHS = (-1.0, -0.5, 0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0)
"""Of the dose-response, in units of the difference of means; positive is the way that the claim predicts."""


def claim_6(setting: Setting, known: Mapping[int, Claim], progress: bool = False) -> Claim:
    """Test whether the model's own signals steer it.

    Parameters
    ----------
    setting
        Model and prompts; the gate's direction comes from the choosing half.
    known
        Claim 3 names the readers, claim 4 where the direction is added; what is missing is found here.
    progress
        Not used.

    Returns
    -------
    Claim
        Components: opening (the direction added where no label repeats), closing (subtracted where one does) and keys
        (the residual stream at the labels, entering the first reader's layer, from the class-swapped prompt).
    """
    if why := lack_of_repeats(setting):
        return untested(6, "share of the gate that adding its direction makes", why, *size(setting))
    gate = gate_from(setting, known[4], known) if 4 in known else find_gate(setting, known)
    pairs = contrast(setting, setting.testing)
    ends = {
        name: intervene(setting.model, prompts, [Intervention("", ())], watch=gate.readers, normalise=True)
        for name, prompts in (("repeated", pairs.repeated), ("single", pairs.single))
    }
    unedited = {name: openness(one, one.unedited, getattr(pairs, name)) for name, one in ends.items()}
    opening = {name: gate.opening(one) for name, one in unedited.items()}
    mass = {name: one.mass for name, one in unedited.items()}
    components, dose = [], {}
    for name, prompts, sign in (("opening", "single", 1.0), ("closing", "repeated", -1.0)):
        whole = opening["repeated"] - opening["single"], mass["repeated"] - mass["single"]
        component, curve = _steered(setting, gate, pairs, name, getattr(pairs, prompts), sign, whole)
        components.append(component)
        dose[name] = curve
    keys = _keys(setting, gate)
    if keys is not None:
        components.append(keys)
    lack = lack_of_behaviour(ends["repeated"].logit_difference(ends["repeated"].unedited), pairs.contexts)
    notes = [lack] if lack else []
    notes += [one.note() for one in components]
    if keys is None:
        notes.append("keys not tested: no prompt has a class-swapped one of equal length; undecided")
    first = components[0]
    return Claim(
        number=6,
        title=TITLES[6],
        measure=f"{first.measure}; the verdict is on all components",
        effect=first.effect,
        control=first.control,
        difference=first.difference,
        p=joint_p(components),
        p_method="largest of the components' p (all must hold): rank among directions; sign flips of contexts",
        n_prompts=len(pairs.repeated),
        n_contexts=len(set(pairs.contexts.tolist())),
        supported="undecided" if lack or keys is None else joint(components),
        rule=joint_rule(components),
        curves={
            "components": [one.to_dict() for one in components],
            "signal": {"place": gate.place, "layer": gate.layer, "measured_by": gate.measured_by},
            "dose": {"strengths": list(STRENGTHS), **dose},
        },
        notes=tuple(notes),
    )


def _steered(
    setting: Setting,
    gate: Gate,
    pairs: Contrast,
    name: str,
    prompts: Sequence[TokenizedPrompt],
    sign: float,
    whole: tuple[Float[np.ndarray, " prompts"], Float[np.ndarray, " prompts"]],
) -> tuple[Component, dict[str, Any]]:
    """Steer one kind of prompt by the gate's direction and by random and shuffled ones."""
    many, few = max(FEWEST_DIRECTIONS, setting.draws // 2), FEWEST_DIRECTIONS
    random = gate.random(many, setting.seed + 2)
    shuffled = gate.shuffled(many, setting.seed + 3)
    runs = [(gate.direction, strength) for strength in STRENGTHS]
    runs += [(one, strength) for one in random[:few] for strength in STRENGTHS]
    runs += [(one, 1.0) for one in (*random[few:], *shuffled)]
    edits = [Intervention.of("", (gate.site, Add(one, sign * strength))) for one, strength in runs]
    outcome = intervene(setting.model, prompts, edits, watch=gate.readers, normalise=True)
    after, before = (openness(outcome, one, prompts) for one in (outcome.edited, outcome.unedited))
    moved = sign * np.stack([gate.opening(after) - gate.opening(before), after.mass - before.mass])
    n = len(STRENGTHS)
    own, others = moved[:, :n], moved[:, n : n + few * n].reshape(2, few, n, -1)
    rest = moved[:, n + few * n :]
    one = STRENGTHS.index(1.0)
    at_random = np.concatenate([others[0, :, one], rest[0, : many - few]])
    at_shuffled = rest[0, many - few :]
    effect, control, difference = paired_shares(own[0, one], at_random.mean(0), whole[0], pairs.contexts)
    reached = own[0, one].mean()
    p = max(rank_p(reached, draws.mean(1)) for draws in (at_random, at_shuffled))
    verb = "adding" if sign > 0 else "subtracting"
    where = "without a repeat" if sign > 0 else "with a repeat"
    measure = (
        f"share of the gate ({gate.measured_by}) that {verb} its direction at the {gate.place} entering layer "
        f"{gate.layer} makes in prompts {where}; control: random directions"
    )
    curve = {
        "measures": [gate.measured_by, "label mass"],
        "own": [_estimates(own[number], whole[number], pairs) for number in range(2)],
        "random": [_means(others[number], whole[number]) for number in range(2)],
        "random at 1": _means(at_random[:, None], whole[0]),
        "shuffled at 1": _means(at_shuffled[:, None], whole[0]),
        "label mass before": cluster_means(before.mass[:, None], pairs.contexts)[0].to_dict(),
        "label mass at 1": cluster_means(after.mass[one][:, None], pairs.contexts)[0].to_dict(),
    }
    return Component(name, measure, effect, control, difference, p, 0.1), curve


def _estimates(
    moved: Float[np.ndarray, "strengths prompts"], whole: Float[np.ndarray, " prompts"], pairs: Contrast
) -> list[dict[str, Any]]:
    return [one.to_dict() for one in shares(moved.T, whole, pairs.contexts)]


def _means(moved: Float[np.ndarray, "draws strengths prompts"], whole: Float[np.ndarray, " prompts"]) -> list[Any]:
    """Shares of each draw, a list a draw; None where there is no whole to be a share of."""
    total = float(whole.mean())
    found = moved.mean(-1) / total if total else np.full(moved.shape[:2], np.nan)
    return [[float(one) if np.isfinite(one) else None for one in row] for row in found]


def _keys(setting: Setting, gate: Gate) -> Component | None:
    """Swap what the labels' residual stream holds as keys for that of the class-swapped prompt."""
    try:
        pairs = class_pairs(setting.testing)
    except InterventionError:
        return None
    layer = gate.readers[0][0]
    edits = [Intervention.of("", (Residual(layer, at), Patch("swapped"))) for at in (LABELS, TEXTS)]
    outcome = intervene(setting.model, pairs.prompts, edits, sources={"swapped": pairs.partners})
    swapped = intervene(setting.model, pairs.partners, [Intervention("", ())])
    before = outcome.logit_difference(outcome.unedited)
    # The partner's right label is the other one: the prompt's own label is judged in both.
    whole = before - _difference(swapped.unedited.logits, outcome.answers)
    moved = -outcome.effect()
    effect, control, difference = paired_shares(moved[0], moved[1], whole, outcome.contexts)
    p = flip_p_values((moved[0] - moved[1])[:, None], outcome.contexts, setting.seed)[0]
    measure = (
        f"share of the way to the class-swapped prompt's logit difference that its residual stream at the labels "
        f"entering layer {layer} makes; control: at the texts"
    )
    return Component("keys", measure, effect, control, difference, float(np.nan_to_num(p, nan=1.0)), 0.1)


def _difference(logits: Float[np.ndarray, "prompts labels"], answers: np.ndarray) -> Float[np.ndarray, " prompts"]:
    """Logit of the label that is right in the prompt, minus the mean of the others."""
    right = np.take_along_axis(logits, answers[:, None], -1)[:, 0]
    return np.asarray(right - (np.nansum(logits, -1) - right) / (np.isfinite(logits).sum(-1) - 1))
