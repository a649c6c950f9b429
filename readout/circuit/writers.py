"""Claim 2: writers, the heads that write the demonstration's class into its label position, as the label's key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from readout.circuit.claim import Claim, Part
from readout.circuit.edits import Block, Edges, Heads, Intervention, Residual
from readout.circuit.evidence import flip_p_values, rank_p
from readout.circuit.pairs import class_pairs
from readout.circuit.positions import LABELS, TEXTS
from readout.circuit.random_heads import Head, RandomSets, random_sets
from readout.circuit.readers import claim_3, named, size
from readout.circuit.setting import Setting
from readout.circuit.share_claim import corrected_over, plain, share_claim, untested
from readout.circuit.swaps import PARTNER, Swaps, swap
from readout.errors import InterventionError
from readout.models import LanguageModel
from readout.records.schema import head_name
from readout.statistics import Estimate, generator

WRITER = (
    "replacing its output at the label positions by that of the class-swapped prompt moves the readers' attention gap "
    "and the logit difference towards that prompt's"
)
MEASURE = (
    "how far the logit difference moves to the class-swapped prompt's when all writers' outputs at the label positions "
    "are that prompt's: 1 is all the way"
)
SEARCH_PROMPTS = 8
"""Prompts of the choosing half on which every head is tried."""
LEAST_SHARE = 0.05
"""Share of the way, of the gap and of the logit difference, that a head must move to be named."""
MOST_WRITERS = 5
MOST_LAYERS = 40
"""A deeper model's residual stream is patched at so many layers, evenly spaced."""
WINDOWS = 6
BESIDE = 4
"""Other heads of its layer that a writer is compared to."""
FEWEST_DRAWS, DRAWS_SHARE = 20, 0.4
"""Random sets as a share of the setting's draws: an edit at the labels costs a pass over nearly all of the prompt."""


def claim_2(setting: Setting, known: Mapping[int, Claim], progress: bool = False) -> Claim:
    """Writers: found by swapping every head's output at label positions, tested together against random heads.

    Parameters
    ----------
    setting : Setting
        Model and prompts, of two classes whose texts can be exchanged in place.
    known : mapping of int to Claim
        Claim 3 names the readers whose gap is watched; it is tested first where it is missing.
    progress : bool
        Whether to show bars.

    Returns
    -------
    Claim
        With parts "writer", the strongest on the choosing half first. Its curves, shares of the way of logit difference
        and gap: `layers` (all heads of a layer) and `heads` (each alone) on the choosing half; `named`,
        `random`, and falls with `edges` from labels to their `own` demonstration's text or to `another` one's cut, by
        `windows` of layers, on the testing half; `residual`: the logit difference (nats) that the swapped prompt's
        residual stream at the label positions leaves, by layer.
    """
    readers = named(known[3] if 3 in known else claim_3(setting, {}, progress), "reader")
    if not readers:
        why = "no reader is named, so that nothing reads the labels' keys (claim 3)"
        return untested(2, MEASURE, why, *size(setting))
    model, last = setting.model, max(layer for layer, _ in readers)
    if last == model.heads[0][0]:
        return untested(2, MEASURE, "the readers are in the first layer: nothing can write before them", *size(setting))
    try:
        pairs, _ = class_pairs(setting.testing), class_pairs(setting.choosing[:SEARCH_PROMPTS])
    except InterventionError as error:
        return untested(2, MEASURE, str(error), *size(setting))
    search = search_writers(setting, readers, last, progress)
    writers, spread = search.named, sorted({layer for layer, _ in model.heads})
    draws = min(setting.draws, max(FEWEST_DRAWS, round(DRAWS_SHARE * setting.draws)))
    sets = random_sets(model, writers, draws, setting.seed)
    plan = _Plan(model, writers, sets, last, spread, setting.seed)
    found = swap(model, pairs, plan.interventions, readers, progress)
    together, random = found[plan.together], found[plan.random]
    gap = together.gap_shares()[0]
    ranks = [
        rank_p(float(one.mean()), beside.mean(1))
        for one, beside in ((together.moved[0], random.moved), (together.gap_moved[0], random.gap_moved))
    ]
    curves = {
        **search.curves,
        "named": {"logit_difference": together.shares()[0].to_dict(), "gap": gap.to_dict()},
        "random": _shares(random),
        "edges": plan.edges_curve(found),
        "residual": plan.residual_curve(found),
    }
    notes = [
        pairs.note,
        sets.note,
        search.note,
        f"the readers' gap moves {gap.summary()} of the way, against {np.mean(_shares(random)['gap']):.3f} for random "
        "heads",
    ]
    return share_claim(
        2,
        MEASURE,
        together.moved[0],
        random.moved.mean(0),
        found.total,
        found.contexts,
        max(ranks),
        f"rank among {draws} draws of {len(writers)} random heads from the same layers, the larger one of "
        "logit difference and gap",
        plan.parts(found, search),
        curves,
        notes,
    )


@dataclass(frozen=True, eq=False)
class Search:
    """Every layer and head below the last reader, swapped on the choosing half.

    Attributes
    ----------
    named : the heads that move most, at most `MOST_WRITERS`
    moves : by head, shares of the way of logit difference and of gap
    curves, note : for the claim
    """

    named: tuple[Head, ...]
    moves: Mapping[Head, tuple[float, float]]
    curves: dict[str, Any]
    note: str


def search_writers(setting: Setting, readers: Sequence[Head], below: int, progress: bool = False) -> Search:
    """Swap the outputs of each layer, and of each single head, at label positions, below a layer.

    Parameters
    ----------
    setting : Setting
        Only its choosing half is used: all of it for layers, `SEARCH_PROMPTS` for heads.
    readers : sequence of (int, int)
        Heads whose gap is read.
    below : int
        Layers below this one are tried.
    progress : bool
        Whether to show bars.

    Returns
    -------
    Search
        Named are the heads that move both gap and logit difference by `LEAST_SHARE` or more, by the smaller of the two;
        the best one where none does.
    """
    model = setting.model
    layers = sorted({layer for layer, _ in model.heads if layer < below})
    heads = [head for head in model.heads if head[0] < below]
    whole = swap(model, class_pairs(setting.choosing), [_swapped([(layer, -1)]) for layer in layers], readers, progress)
    few = class_pairs(setting.choosing[:SEARCH_PROMPTS])
    each = swap(model, few, [_swapped([head]) for head in heads], readers, progress)
    by_layer, by_head = _shares(whole), _shares(each)
    moves = dict(zip(heads, zip(by_head["logit_difference"], by_head["gap"], strict=True), strict=True))
    ranked = sorted(heads, key=lambda head: -min(moves[head]))
    chosen = [head for head in ranked if min(moves[head]) >= LEAST_SHARE][:MOST_WRITERS]
    note = ""
    if not chosen:
        chosen = ranked[:1]
        note = f"no single head moves {LEAST_SHARE:.0%} of the way on the choosing half: the best one is tested"
    curves = {
        "layers": {"layer": layers, **by_layer},
        "heads": {"heads": [head_name(*head) for head in heads], **by_head},
    }
    return Search(tuple(chosen), moves, curves, note)


def _swapped(heads: Sequence[Head], name: str = "") -> Intervention:
    """Heads' outputs at label positions from the partner; head -1 stands for all of its layer."""
    by_layer: dict[int, list[int]] = {}
    for layer, head in heads:
        by_layer.setdefault(layer, []).extend([head] if head >= 0 else [])
    return Intervention.of(
        name, *((Heads(layer, tuple(own), LABELS), PARTNER) for layer, own in sorted(by_layer.items()))
    )


def _shares(found: Swaps) -> dict[str, list[float]]:
    """Shares of the way, of means over prompts; 0 where there is no way to go."""
    curves = {}
    for name, moved, total in (
        ("logit_difference", found.moved, found.total),
        ("gap", found.gap_moved, found.gap_total),
    ):
        whole = float(total.mean())
        curves[name] = (moved.mean(1) / whole if whole else np.zeros(len(moved))).tolist()
    return curves


class _Plan:
    """The interventions of the test, and where each kind of them is."""

    def __init__(
        self,
        model: LanguageModel,
        writers: Sequence[Head],
        sets: RandomSets,
        last: int,
        layers: Sequence[int],
        seed: int,
    ) -> None:
        self.writers, self.seed = writers, seed
        self.interventions: list[Intervention] = []
        self.together = self._add([_swapped(writers)])
        self.single = self._add([_swapped([head]) for head in writers])
        rng = generator(seed)
        self.beside: list[slice] = []
        for layer, _ in writers:
            others = [head for head in model.heads if head[0] == layer and head not in writers]
            picked = [others[place] for place in rng.permutation(len(others))[:BESIDE]]
            self.beside.append(self._add([_swapped([head]) for head in picked]))
        self.random = self._add([_swapped(one) for one in sets.sets])
        step = max(1, len(layers) // MOST_LAYERS)
        self.layers = list(layers)[::step]
        self.residual = self._add([Intervention.of("", (Residual(layer, LABELS), PARTNER)) for layer in self.layers])
        parts = np.array_split([layer for layer in layers if layer <= last], WINDOWS)
        self.windows = [part.tolist() for part in parts if len(part)]
        self.edges = {kind: self._add([_cut(own, kind) for own in self.windows]) for kind in ("own", "another")}

    def _add(self, more: Sequence[Intervention]) -> slice:
        start = len(self.interventions)
        self.interventions += more
        return slice(start, len(self.interventions))

    def parts(self, found: Swaps, search: Search) -> list[Part]:
        single = found[self.single]
        p = flip_p_values(single.moved.T, found.contexts, self.seed)
        return [self._part(number, found, single, p, search) for number in range(len(self.writers))]

    def _part(self, number: int, found: Swaps, single: Swaps, p: np.ndarray, search: Search) -> Part:
        layer, head = self.writers[number]
        beside = found[self.beside[number]]
        gap = single.gap_shares()[number]
        return Part(
            "writer",
            head_name(layer, head),
            layer,
            head,
            WRITER,
            single.shares()[number],
            _mean_share(beside) if len(beside.names) else None,
            float(p[number]),
            corrected_over(len(self.writers), "writers"),
            {
                "gap_share": gap.value,
                "gap_share_low": gap.low,
                "gap_share_high": gap.high,
                "logit_difference_after": single.after()[number].value,
                "gap_after": float((found.gap - single.gap_moved[number]).mean()),
                "share_on_choosing_half": search.moves[layer, head][0],
                "gap_share_on_choosing_half": search.moves[layer, head][1],
            },
        )

    def edges_curve(self, found: Swaps) -> dict[str, Any]:
        """Falls, as shares of the unedited values, when edges are cut."""
        curve: dict[str, Any] = {"windows": [[own[0], own[-1]] for own in self.windows]}
        for kind, where in self.edges.items():
            cut = found[where]
            curve[kind] = {
                "logit_difference": plain(cut.moved.mean(1) / found.unedited.mean()),
                "gap": plain(cut.gap_moved.mean(1) / found.gap.mean()),
            }
        return curve

    def residual_curve(self, found: Swaps) -> dict[str, Any]:
        """Logit difference that patching the residual stream leaves, by the layer that it enters."""
        patched = found[self.residual]
        after = patched.after()
        return {
            "layer": self.layers,
            "logit_difference": plain(np.array([one.value for one in after])),
            "low": plain(np.array([one.low for one in after])),
            "high": plain(np.array([one.high for one in after])),
            "gap": plain((found.gap - patched.gap_moved).mean(1)),
        }


def _mean_share(found: Swaps) -> Estimate:
    averaged = replace(
        found, names=("",), moved=found.moved.mean(0, keepdims=True), gap_moved=found.gap_moved.mean(0, keepdims=True)
    )
    return averaged.shares()[0]


def _cut(layers: Sequence[int], pairing: str) -> Intervention:
    """Cut all heads' edges from labels to texts in some layers."""
    return Intervention.of("", *((Edges(layer, (), LABELS, TEXTS, pairing), Block()) for layer in layers))
