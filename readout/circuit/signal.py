"""The gate's signal: where in the residual stream a repeat opens the reader, and its direction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float

from readout.circuit.claim import Claim
from readout.circuit.edits import Add, Intervention, Patch, Residual
from readout.circuit.engine import intervene
from readout.circuit.positions import QUERY, Positions
from readout.circuit.repeats import Contrast, Heads, Openness, contrast, openness
from readout.circuit.setting import Setting
from readout.circuit.states import keep_states
from readout.models import LanguageModel
from readout.prompts import TokenizedPrompt
from readout.statistics import cluster_mean, generator

PLACES: dict[str, Positions] = {
    "query": QUERY,
    "last label": Positions("label", "last"),
    "last cue": Positions("cue", "last"),
}
"""One token each, and the same token with and without a repeat: patching a changed token would fake an effect."""
MOST_READERS = 4
FEWEST_DIRECTIONS = 20
"""Least number of random directions, and of shuffled ones."""
LEAST_MOVE = 0.01
# First-token attention that a repeat moves by less is not what the gate acts on.
LEAST_NORM = 1e-3
# Of the direction's own norm.
_CHUNK = 16
# Prompts whose kept passes exist at once while residual streams are read.

MeasuredBy = Literal["first-token attention", "label mass"]


@dataclass(frozen=True, eq=False)
class Gate:
    """What the choosing half says about the gate.

    Attributes
    ----------
    readers : the strongest first
    named : whether claim 3 named them; otherwise they are the heads of the widest gap
    measured_by : the first reader's first-token attention where a repeat moves it, otherwise the mass on the labels
    place, layer : where adding the direction opens most, entering the layer
    differences : float32 [prompts, width], residual stream with a repeat minus without, there, prompt by prompt
    """

    readers: Heads
    named: bool
    measured_by: MeasuredBy
    place: str
    layer: int
    differences: Float[np.ndarray, "prompts width"]

    @property
    def direction(self) -> Float[np.ndarray, " width"]:
        """Difference of means."""
        return self.differences.mean(0)  # type: ignore[no-any-return]

    @property
    def site(self) -> Residual:
        """Where the direction is added."""
        return Residual(self.layer, PLACES[self.place])

    def random(self, draws: int, seed: int) -> Float[np.ndarray, "draws width"]:
        """Random directions of the same norm."""
        drawn = generator(seed).standard_normal((draws, self.differences.shape[1]))
        return _of_norm(drawn, self.direction)

    def shuffled(self, draws: int, seed: int) -> Float[np.ndarray, "draws width"]:
        """Differences of means of halves that hold as many prompts with a repeat as without, of the same norm."""
        rng, n = generator(seed), len(self.differences)
        # As many of each sign, and none for the one left over of an odd number: the common part cancels.
        balanced = np.r_[np.arange(n - n % 2) % 2 * 2.0 - 1, np.zeros(n % 2)]
        signs = np.stack([rng.permutation(balanced) for _ in range(draws)])
        return _of_norm(signs @ self.differences.astype(np.float64) / n, self.direction)

    def opening(self, found: Openness) -> Float[np.ndarray, "*interventions prompts"]:
        """What opening raises: minus the first reader's first-token attention, or the mass on the labels."""
        return found.mass if self.measured_by == "label mass" else -found.sink[..., 0]


def _of_norm(drawn: Float[np.ndarray, "draws width"], like: Float[np.ndarray, " width"]) -> np.ndarray:
    norm, wanted = np.linalg.norm(drawn, axis=1, keepdims=True), np.linalg.norm(like)
    # Halves that do not differ have no direction to bring to a norm: rounding errors would be blown up.
    factor = np.where(norm > LEAST_NORM * wanted, wanted / np.where(norm > 0, norm, 1.0), 0.0)
    return np.asarray(drawn * factor)


def gate_readers(setting: Setting, known: Mapping[int, Claim]) -> tuple[Heads, bool]:
    """The readers of claim 3, or the heads of the widest gap on the choosing half; and whether they were named."""
    if 3 in known:
        named = tuple((part.layer, part.head) for part in known[3].parts if part.role == "reader")
        if named:
            return named[:MOST_READERS], True
    heads = setting.model.heads
    outcome = intervene(setting.model, setting.choosing, [Intervention("", ())], watch=heads)
    order = np.argsort(-outcome.gap(outcome.unedited).mean(0), kind="stable")
    return tuple(heads[int(one)] for one in order[:MOST_READERS]), False


def gate_from(setting: Setting, claim: Claim, known: Mapping[int, Claim]) -> Gate:
    """The gate that claim 4 found, its direction taken again from the choosing half."""
    told = claim.curves["signal"]
    readers, named = gate_readers(setting, known)
    pairs = contrast(setting, setting.choosing)
    at, layer = PLACES[told["place"]], int(told["layer"])
    sides = [_residuals(setting.model, prompts, at, [layer])[:, 0] for prompts in (pairs.repeated, pairs.single)]
    return Gate(readers, named, told["measured_by"], told["place"], layer, sides[0] - sides[1])


def find_gate(setting: Setting, known: Mapping[int, Claim]) -> Gate:
    """Find readers, measure and direction on the choosing half."""
    readers, named = gate_readers(setting, known)
    pairs = contrast(setting, setting.choosing)
    layers = [layer for layer in _layers(setting.model)[1:] if layer <= readers[0][0]] or _layers(setting.model)[:1]
    both = {
        place: _residuals(setting.model, pairs.repeated, at, layers)
        - _residuals(setting.model, pairs.single, at, layers)
        for place, at in PLACES.items()
    }
    closed, opened = watch_both(setting.model, pairs, readers)
    sink = cluster_mean(closed.sink[:, 0] - opened.sink[:, 0], pairs.contexts)
    measured_by: MeasuredBy = "label mass"
    if sink.low > 0 and sink.value >= LEAST_MOVE:
        measured_by = "first-token attention"
    candidates = [
        Gate(readers, named, measured_by, place, layer, both[place][:, number])
        for place in PLACES
        for number, layer in enumerate(layers)
    ]
    added = [Intervention.of("", (one.site, Add(one.direction))) for one in candidates]
    outcome = intervene(setting.model, pairs.single, added, watch=readers, normalise=True)
    moved = candidates[0].opening(openness(outcome, outcome.edited, pairs.single)).mean(1)
    return candidates[int(moved.argmax())]


def watch_both(model: LanguageModel, pairs: Contrast, readers: Heads) -> tuple[Openness, Openness]:
    """How open the readout is without and with a repeat."""
    none = [Intervention("", ())]
    found = []
    for prompts in (pairs.single, pairs.repeated):
        outcome = intervene(model, prompts, none, watch=readers, normalise=True)
        found.append(openness(outcome, outcome.unedited, prompts))
    return found[0], found[1]


def patched_by_place(
    setting: Setting, gate: Gate, pairs: Contrast, layers: Sequence[int]
) -> dict[str, dict[str, np.ndarray]]:
    """Patch the residual stream at each place and layer between prompts with and without a repeat.

    Returns
    -------
    dict
        "opened" (from repeated to single prompts) and "closed" (back) -> place -> float64 [2, layers, prompts]: change
        of `Gate.opening` and of the label mass, in the direction that the source pulls.
    """
    places = [(place, layer) for place in PLACES for layer in layers]
    edits = [Intervention.of("", (Residual(layer, PLACES[place]), Patch("twin"))) for place, layer in places]
    found: dict[str, dict[str, np.ndarray]] = {}
    for name, prompts, twins, sign in (
        ("opened", pairs.single, pairs.repeated, 1.0),
        ("closed", pairs.repeated, pairs.single, -1.0),
    ):
        outcome = intervene(setting.model, prompts, edits, sources={"twin": twins}, watch=gate.readers, normalise=True)
        after, before = (openness(outcome, one, prompts) for one in (outcome.edited, outcome.unedited))
        moved = np.stack([gate.opening(after) - gate.opening(before), after.mass - before.mass])
        moved = sign * moved.reshape(2, len(PLACES), len(layers), -1)
        found[name] = {place: moved[:, number] for number, place in enumerate(PLACES)}
    return found


def _layers(model: LanguageModel) -> list[int]:
    return [part.layer for part in model.wiring.attentions]


def _residuals(
    model: LanguageModel, prompts: Sequence[TokenizedPrompt], at: Positions, layers: Sequence[int]
) -> Float[np.ndarray, "prompts layers width"]:
    """The residual stream that enters layers, at one token of each prompt."""
    rows = []
    for start in range(0, len(prompts), _CHUNK):
        states = keep_states(model, prompts[start : start + _CHUNK])
        for number, one in enumerate(states.prompts):
            token = int(states.places[number][at.find(one)[0]])
            row = int(states.rows[number])
            rows.append(torch.stack([states.residuals[layer][row, token].float().cpu() for layer in layers]).numpy())
    return np.stack(rows)
