"""Claim 1: the residual stream at a label token encodes which label it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from readout.circuit.claim import Claim
from readout.circuit.edits import Intervention, Residual
from readout.circuit.evidence import FLIPS, flip_p_values
from readout.circuit.pairs import Pairs, label_pairs
from readout.circuit.positions import LABELS, TEXTS, Positions, given
from readout.circuit.readers import size
from readout.circuit.setting import Setting
from readout.circuit.share_claim import plain, share_claim, untested
from readout.circuit.swaps import PARTNER, Swaps, swap
from readout.errors import InterventionError
from readout.models import LanguageModel
from readout.statistics import generator

MEASURE = (
    "how far the logit difference moves to the label-swapped prompt's when the residual stream at the label positions "
    "is that prompt's: 1 is all the way"
)
MOST_LAYERS = 12
"""A deeper model is patched at about so many layers, evenly spaced."""
HALF_WAY = 0.5
"""Share of the way that a layer must move on the choosing half to be the stated one."""
RANDOM_DRAWS = 5
"""Sets of random positions at the stated layer."""


def claim_1(setting: Setting, known: Mapping[int, Claim], progress: bool = False) -> Claim:
    """Labels: patched into one another at label positions, beside text positions and random ones.

    Parameters
    ----------
    setting : Setting
        Model and prompts with at least two labels.
    known : mapping of int to Claim
        Not used.
    progress : bool
        Whether to show bars.

    Returns
    -------
    Claim
        At the last layer at which the label positions still move half of the way on the choosing half; never at the
        first, where patching replaces the token itself. Its curves, shares of the way on the testing half by `layer`
        (that the patched residual stream enters): `labels`, `texts` and `random` positions, each with `low` and `high`.
    """
    model, layers = setting.model, _layers(setting.model)
    try:
        pairs, choosing = label_pairs(setting.testing), label_pairs(setting.choosing)
    except InterventionError as error:
        return untested(1, MEASURE, str(error), *size(setting))
    chosen = _stated_layer(model, choosing, layers, progress)
    draws = [_random_positions(pairs, setting.seed + number) for number in range(RANDOM_DRAWS)]
    where = {"labels": LABELS, "texts": TEXTS, "random": draws[0]}
    interventions = [_patch(layer, at) for at in where.values() for layer in layers]
    found = swap(model, pairs, interventions + [_patch(chosen, at) for at in draws[1:]], (), progress)
    by_role = {role: found[slice(n * len(layers), (n + 1) * len(layers))] for n, role in enumerate(where)}
    place = layers.index(chosen)
    moved, texts = by_role["labels"].moved[place], by_role["texts"].moved[place]
    random = np.concatenate([by_role["random"].moved[place : place + 1], found.moved[3 * len(layers) :]]).mean(0)
    p = [float(flip_p_values((moved - one)[:, None], found.contexts, setting.seed)[0]) for one in (texts, random)]
    stronger, control = ("text", texts) if texts.mean() > random.mean() else ("random", random)
    return share_claim(
        1,
        MEASURE,
        moved,
        control,
        found.total,
        found.contexts,
        max(p),
        f"{FLIPS} sign flips of contexts, the larger one of the differences from text and from random positions",
        (),
        {"stated_layer": chosen, "layer": layers, **{role: _curve(one) for role, one in by_role.items()}},
        [
            pairs.note,
            f"stated at layer {chosen} of {layers[-1] + 1}, the last at which label positions move half of the way on "
            f"the choosing half; the control is at {stronger} positions, the stronger of the two",
        ],
    )


def _layers(model: LanguageModel) -> list[int]:
    """All layers but the first, or about `MOST_LAYERS` of them, the last among them."""
    every = sorted({layer for layer, _ in model.heads})
    later = every[1:] or every
    return later[::-1][:: max(1, round(len(later) / MOST_LAYERS))][::-1]


def _stated_layer(model: LanguageModel, pairs: Pairs, layers: Sequence[int], progress: bool) -> int:
    found = swap(model, pairs, [_patch(layer, LABELS) for layer in layers], (), progress)
    share = found.moved.mean(1) / (found.total.mean() or np.nan)
    enough = [layer for layer, own in zip(layers, share, strict=True) if own >= HALF_WAY]
    return enough[-1] if enough else layers[int(np.nan_to_num(share, nan=-np.inf).argmax())]


def _patch(layer: int, at: Positions) -> Intervention:
    return Intervention.of("", (Residual(layer, at), PARTNER))


def _random_positions(pairs: Pairs, seed: int) -> Positions:
    """As many positions as there are labels, neither labels nor the query, where the answer itself is."""
    rng, found = generator(seed), []
    for one in pairs.prompts:
        others = np.setdiff1d(np.arange(one.query_position), one.label_positions)
        found.append(np.sort(rng.choice(others, min(len(one.label_positions), len(others)), replace=False)))
    return given(found)


def _curve(found: Swaps) -> dict[str, Any]:
    shares = found.shares()
    return {
        "share": plain(np.array([one.value for one in shares])),
        "low": plain(np.array([one.low for one in shares])),
        "high": plain(np.array([one.high for one in shares])),
    }
