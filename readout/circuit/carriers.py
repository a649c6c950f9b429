"""Carriers of the gate's signal: heads whose output, taken from a prompt with a repeat, opens one without."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from readout.circuit.claim import Part
from readout.circuit.edits import Heads, Intervention, Patch
from readout.circuit.engine import intervene
from readout.circuit.evidence import flip_p_values, paired_shares
from readout.circuit.repeats import Contrast, contrast, openness
from readout.circuit.setting import Setting
from readout.circuit.signal import PLACES, Gate
from readout.prompts import TokenizedPrompt
from readout.statistics import Estimate

AT = ("query", "last label")
"""Places where heads are patched."""
MOST_CARRIERS = 8
LEAST_SHARE = 0.05
"""A carrier's share of the gate, on the choosing half."""
MOST_LAYERS = 4
# At the last label heads are tried one by one in so many layers: those whose heads together open most.

Carrier = tuple[int, int, str]
"""Layer, head, place."""


def find_carriers(setting: Setting, gate: Gate) -> list[Carrier]:
    """Name carriers on the choosing half: heads below the first reader that open most, the strongest first.

    Parameters
    ----------
    setting
        Its choosing half is used.
    gate
        What is measured.

    Returns
    -------
    list of (layer, head, place)
        Share of the gate at least `LEAST_SHARE` and p below .05, corrected over all heads tried.
    """
    pairs = contrast(setting, setting.choosing)
    below = [(layer, head) for layer, head in setting.model.heads if layer < gate.readers[0][0]]
    if not below:
        return []
    label_layers = _strongest_layers(setting, gate, pairs, sorted({layer for layer, _ in below}))
    tried = [(*one, "query") for one in below] + [(*one, "last label") for one in below if one[0] in label_layers]
    moved, whole = _opened(setting, gate, pairs, tried, [pairs.repeated])
    p = flip_p_values(moved[0].T, pairs.contexts, setting.seed)
    share = moved[0].mean(1) / whole.mean() if whole.mean() > 0 else np.zeros(len(tried))
    order = np.argsort(-share, kind="stable")[:MOST_CARRIERS]
    return [tried[int(one)] for one in order if share[one] >= LEAST_SHARE and p[one] < 0.05]


def measure_carriers(setting: Setting, gate: Gate, pairs: Contrast, carriers: Sequence[Carrier]) -> tuple[Part, ...]:
    """Measure named carriers on prompts that did not name them.

    The control patches the same head at the same place from another context's prompt without a repeat.
    """
    if not carriers:
        return ()
    others = [pairs.single[number - 1] for number in range(len(pairs.single))]
    (moved, control), whole = _opened(setting, gate, pairs, carriers, [pairs.repeated, others])
    closing = _closed(setting, gate, pairs, carriers)
    p = flip_p_values((moved - control).T, pairs.contexts, setting.seed)
    parts = []
    for number, (layer, head, place) in enumerate(carriers):
        effect, other, difference = paired_shares(moved[number], control[number], whole, pairs.contexts)
        back = paired_shares(closing[number], closing[number], whole, pairs.contexts)[0]
        parts.append(_part(layer, head, place, gate, effect, other, float(p[number]), difference, back))
    return tuple(parts)


def _part(
    layer: int, head: int, place: str, gate: Gate, effect: Estimate, control: Estimate, p: float,
    difference: Estimate, back: Estimate,
) -> Part:  # fmt: skip
    return Part(
        role="gate",
        name=f"L{layer}H{head}",
        layer=layer,
        head=head,
        definition=(
            f"its output at the {place}, patched from a prompt with a repeated label, opens one without: share of the "
            f"gate by {gate.measured_by}; control: patched from another prompt without a repeat"
        ),
        effect=effect,
        control=control,
        p=p,
        p_method="sign flips of contexts, max-T over the named heads",
        evidence={
            "difference": difference.value,
            "difference low": difference.low,
            "closes by": back.value,
            "closes by, low": back.low,
            "at the query": float(place == "query"),
        },
    )


def _strongest_layers(setting: Setting, gate: Gate, pairs: Contrast, layers: Sequence[int]) -> set[int]:
    if len(layers) <= MOST_LAYERS:
        return set(layers)
    edits = [Intervention.of("", (Heads(layer, (), PLACES["last label"]), Patch("twin"))) for layer in layers]
    moved = _moved(setting, gate, pairs.single, pairs.repeated, edits).mean(1)
    return {layers[int(one)] for one in np.argsort(-moved)[:MOST_LAYERS]}


def _opened(
    setting: Setting,
    gate: Gate,
    pairs: Contrast,
    carriers: Sequence[Carrier],
    sources: Sequence[Sequence[TokenizedPrompt]],
) -> tuple[Float[np.ndarray, "sources carriers prompts"], Float[np.ndarray, " prompts"]]:
    """How far heads' outputs from each list of sources open prompts without a repeat, and the gate's whole."""
    edits = [_patch(one) for one in carriers]
    moved = np.stack([_moved(setting, gate, pairs.single, twins, edits) for twins in sources])
    none = [Intervention("", ())]
    ends = []
    for prompts in (pairs.single, pairs.repeated):
        outcome = intervene(setting.model, prompts, none, watch=gate.readers, normalise=True)
        ends.append(gate.opening(openness(outcome, outcome.unedited, prompts)))
    return moved, ends[1] - ends[0]


def _closed(
    setting: Setting, gate: Gate, pairs: Contrast, carriers: Sequence[Carrier]
) -> Float[np.ndarray, "carriers prompts"]:
    return -_moved(setting, gate, pairs.repeated, pairs.single, [_patch(one) for one in carriers])


def _patch(carrier: Carrier) -> Intervention:
    layer, head, place = carrier
    return Intervention.of("", (Heads(layer, (head,), PLACES[place]), Patch("twin")))


def _moved(
    setting: Setting,
    gate: Gate,
    prompts: Sequence[TokenizedPrompt],
    twins: Sequence[TokenizedPrompt],
    edits: Sequence[Intervention],
) -> Float[np.ndarray, "edits prompts"]:
    outcome = intervene(setting.model, prompts, edits, sources={"twin": twins}, watch=gate.readers, normalise=True)
    after, before = (openness(outcome, one, prompts) for one in (outcome.edited, outcome.unedited))
    return np.asarray(gate.opening(after) - gate.opening(before))
