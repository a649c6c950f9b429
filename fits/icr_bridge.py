"""Routed heads in the circuit's terms: fits/icr_bridge_MODEL.json.

    python fits/icr_bridge.py [tiny] [smollm2]

Takes the circuit from fits/circuit_MODEL.json. The built-in model's routers are trained here (seconds each); SmolLM2's
are those that fits/icr.py has trained, of the seeds for which both routers are there.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from main_job import HERE, RUNS, rounded

from readout.icr.bridge import Bridge, CircuitHeads, build_bridge
from readout.icr.methods.plain import FewShot
from readout.icr.methods.routed import Routed, Variant
from readout.icr.queries import join
from readout.icr.registry import variant_of
from readout.icr.run import default_variant
from readout.icr.study import TINY, Study
from readout.models import load_model

ROUTERS = ("icr", "icr, random basis")
SEEDS = (0, 1, 2)
ITEMS = {"tiny": 56, "smollm2": 40}
"""Test queries of each in-domain set."""


def bridge_of(study: Study, base: Variant, name: str) -> Bridge:
    """Measure the trained routers on the in-domain sets' test queries."""
    circuit = CircuitHeads.of(json.loads((HERE / f"circuit_{name}.json").read_text()))
    seeds = [seed for seed in SEEDS if name == "tiny" or all(_trained(study, seed, one) for one in ROUTERS)]
    routers: dict[str, list[Routed]] = {one: [] for one in ROUTERS}
    for router in ROUTERS:
        for seed in seeds:
            method = Routed(router, variant_of(router, base))
            method.fit(study.ground(seed))
            routers[router].append(method)
    few_shot = FewShot()
    few_shot.fit(study.ground(seeds[0]))
    queries = join([study.test(one).of(range(ITEMS[name])) for one in study.settings.in_domain])
    return build_bridge(study.model, queries, routers, circuit, few_shot)


def _trained(study: Study, seed: int, router: str) -> bool:
    return any((study.folder / f"seed-{seed}" / router.replace(" ", "_")).glob("epoch-*/history.json"))


def tiny() -> tuple[Study, Variant]:
    """The built-in model's study."""
    return Study(load_model("tiny", device="cpu"), TINY, RUNS / "icr_tiny", SEEDS), default_variant("tiny")


def smollm2() -> tuple[Study, Variant]:
    """The study of fits/icr.py."""
    from icr import SETTINGS, variant

    folder: Path = RUNS / "icr_smollm2"
    chosen = json.loads((folder / "choice.json").read_text())
    best = max((one for one in chosen if one != "zero-shot"), key=lambda one: chosen[one])
    return Study(load_model("smollm2-135m", device="cpu"), SETTINGS, folder, SEEDS, True), variant(best)


STUDIES: dict[str, Callable[[], tuple[Study, Variant]]] = {"tiny": tiny, "smollm2": smollm2}

if __name__ == "__main__":
    torch.set_num_threads(1)
    for model in sys.argv[1:] or ["tiny"]:
        found = bridge_of(*STUDIES[model](), model)
        result = {"command": f"python fits/icr_bridge.py {model}", "items": ITEMS[model], **found.to_dict()}
        (HERE / f"icr_bridge_{model}.json").write_text(json.dumps(rounded(result), allow_nan=False, indent=1) + "\n")
        print(found.summary())
