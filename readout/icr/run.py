"""What `readout icr` does: directions, training, evaluation and ablations, written to a folder."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from readout.errors import ReadoutError
from readout.files import write_json, write_text
from readout.icr.directions import DirectionReport, report_directions
from readout.icr.importance import importance_of
from readout.icr.latency import measure_latency
from readout.icr.methods.routed import Routed, Variant
from readout.icr.registry import CONTROLS, REFERENCES, SEEDLESS, is_other, known_methods, make_method
from readout.icr.router import RouterSettings
from readout.icr.routing import Weights
from readout.icr.scores import summarise
from readout.icr.study import Study
from readout.models.sources import is_built_in

LATENCY_LENGTHS = (64, 128, 256, 512, 1024, 2048)
EVALUATED = (*REFERENCES, "icr", "icr, random basis", "icr, constant router", "icr, random encoder")
"""Routing, and what always stands beside it."""


def default_variant(model: str) -> Variant:
    """How a model is routed: the built-in one in all layers at rank 4, others in the last third at rank 8."""
    if is_built_in(model):
        settings = RouterSettings(hidden=64, cross_entropy="answers", batch=8, epochs=8, learning_rate=3e-3)
        return Variant(rank=4, layers="all", settings=settings)
    return Variant(settings=RouterSettings(cross_entropy="answers", batch=8))


def find_directions(study: Study, rank: int, seed: int = 0) -> DirectionReport:
    """Extract a seed's directions and measure them; writes ``directions.json``."""
    report = report_directions(study.vectors(seed), rank)
    write_json(study.folder / "directions.json", report.to_dict())
    return report


def train_router(study: Study, variant: Variant, seed: int = 0, name: str = "icr") -> Routed:
    """Train a router and keep it in ``seed-N/NAME``; writes ``training.json``."""
    method = Routed(name, variant)
    method.fit(study.ground(seed))
    assert method.training is not None
    write_json(study.folder / f"seed-{seed}" / "training.json", method.training.to_dict())
    return method


def evaluate(
    study: Study,
    variant: Variant,
    methods: Sequence[str] = EVALUATED,
    seeds: Sequence[int] = (0, 1, 2),
    latency: Sequence[int] = (),
) -> dict[str, Any]:
    """Try methods on all data sets.

    Parameters
    ----------
    study : Study
    variant : Variant
        What the controls among the methods change.
    methods : sequence of str
        `readout.icr.registry.known_methods`; zero-shot is always tried, controls that change nothing are not.
    seeds : sequence of int
        Of what is drawn and trained.
    latency : sequence of int
        Numbers of tokens at which routed and plain passes are timed.

    Returns
    -------
    dict
        What is written to ``icr.json``: per method and data set accuracy, recovery and collapses; settings; what the
        trained router uses; latency.

    Raises
    ------
    ReadoutError
        If a method is unknown.
    """
    unknown = [name for name in methods if name not in known_methods()]
    if unknown:
        raise ReadoutError(f"no method {', '.join(unknown)}; known are {', '.join(known_methods())}")
    right: dict[str, Mapping[str, np.ndarray]] = {}
    others = [name for name in methods if is_other(name, variant, study.settings.encoder)]
    for name in dict.fromkeys(("zero-shot", *others)):
        right[name] = study.right(make_method(name, variant), seeds[:1] if name in SEEDLESS else seeds)
    result = study.scores(right).to_dict() | {
        "model": study.model.name,
        "provenance": study.model.provenance,
        "seeds": list(seeds),
        "settings": study.settings.to_dict(),
        "router": variant.settings.to_dict(),
        "training": training_losses(study, list(right), seeds),
    }
    if "icr" in right:
        result |= use_of_router(study, variant, seeds[0], latency)
    return result


def use_of_router(study: Study, variant: Variant, seed: int = 0, latency: Sequence[int] = ()) -> dict[str, Any]:
    """What a trained router uses on each data set, and what it costs.

    Parameters
    ----------
    study, variant
    seed : int
        Of the router, trained if it is not there.
    latency : sequence of int
        Numbers of tokens at which routed and plain passes are timed.

    Returns
    -------
    dict
        ``routing`` (routed layers, and by data set their importance and the heads' gates) and, where lengths are given,
        ``latency``.
    """
    method = Routed("icr", variant)
    method.fit(study.ground(seed))
    names = (*study.settings.in_domain, *study.settings.out_of_domain)
    used = importance_of(method, {name: study.test(name) for name in names})
    assert method.carrier is not None
    told: dict[str, Any] = {
        "routing": {
            "layers": list(method.carrier.layers),
            "sets": {name: one.to_dict() for name, one in used.items()},
        }
    }
    if latency:
        told["latency"] = _latency(study, method, latency)
    return told


def _latency(study: Study, method: Routed, lengths: Sequence[int]) -> list[dict[str, Any]]:
    from readout.icr.carriers import RoutedAttention

    assert isinstance(method.carrier, RoutedAttention)
    weights = method.trainer.router(method.trainer.features[:1]).detach()
    # an untrained or silent router would take the short way of no bias
    weights = Weights(weights.alpha + 1e-3, weights.gamma)
    own = int(getattr(study.model.model.config, "max_position_embeddings", 0)) or max(lengths)
    fits = [one for one in lengths if one <= own]
    found = measure_latency(study.model, method.carrier.routing, weights, fits, rounds=3)
    return [one.to_dict() for one in found]


def training_losses(study: Study, methods: Sequence[str], seeds: Sequence[int]) -> dict[str, Any]:
    """Loss by epoch of every trained router, and whether it was flat at the end."""
    found: dict[str, Any] = {}
    for name in methods:
        for seed in seeds:
            folder = study.folder / f"seed-{seed}" / name.replace(" ", "_")
            for path in sorted(folder.glob("epoch-*/history.json"))[-1:]:
                totals = [one["total"] for one in json.loads(path.read_text())["epochs"]]
                change = (totals[-1] - totals[-2]) / totals[-2] if len(totals) > 1 else None
                found.setdefault(name, {})[str(seed)] = {"loss": totals, "last_change": change}
    return found


def ablate(
    study: Study, variant: Variant, controls: Sequence[str] = tuple(CONTROLS), seeds: Sequence[int] = (0,)
) -> dict[str, Any]:
    """Try in-context routing and its controls, each trained in the same way.

    Raises
    ------
    ReadoutError
        If a control is unknown.
    """
    unknown = [name for name in controls if name not in CONTROLS]
    if unknown:
        raise ReadoutError(f"no control {', '.join(unknown)}; known are {', '.join(CONTROLS)}")
    prompts = study.settings.prompts * len(study.settings.in_domain)
    widest = min(study.vectors(seeds[0]).key[study.layer].shape[1], prompts)
    fitting = [name for name in controls if int(CONTROLS[name].get("rank", variant.rank)) <= widest]
    return evaluate(study, variant, fitting, seeds)


def write_result(result: Mapping[str, Any], folder: Path, name: str = "icr") -> str:
    """Write ``NAME.json`` and its table ``NAME.txt``; returns the table."""
    write_json(folder / f"{name}.json", dict(result))
    table = summarise(result)
    write_text(folder / f"{name}.txt", table + "\n")
    return table


def with_settings(variant: Variant, **changes: Any) -> Variant:
    """The variant with some of its router's settings changed; None changes nothing."""
    given = {name: value for name, value in changes.items() if value is not None}
    return replace(variant, settings=replace(variant.settings, **given))
