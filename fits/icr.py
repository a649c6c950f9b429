"""In-context routing's committed results: fits/icr_smollm2.json and, of the built-in model, icr_tiny.json.

    python fits/icr.py smollm2 [--until STAGE]
    python fits/icr.py tiny

SmolLM2's stages, each resumed where it stopped: choose (cross-entropy's form, on development queries), main (three
seeds, 500 items), controls (one seed), methods (one seed), layers (early, middle, all; no cached inputs, so slow), use
(what the first seed's router uses of layers and heads, and its latency).
What is read or trained stays in runs/fits/icr_smollm2 (not committed); the JSON and every method's answers are written
after each method, and a clone goes on from them.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import torch
from main_job import HERE, RUNS, rounded

from readout.icr.directions import report_directions
from readout.icr.methods.base import accuracy
from readout.icr.methods.beyond import GainGated, Gated, Shrunk
from readout.icr.methods.routed import Routed, Variant
from readout.icr.registry import BEYOND, REFERENCES, SEEDLESS, known_methods, make_method
from readout.icr.router import RouterSettings
from readout.icr.run import LATENCY_LENGTHS, default_variant, evaluate, training_losses, use_of_router
from readout.icr.scores import right_answers, summarise
from readout.icr.study import Study, StudySettings, default_settings
from readout.models import load_model

SETTINGS = StudySettings(train=160, prompts=24, max_words=20)
SEEDS = (0, 1, 2)
CHOICES = ("answers", "vocabulary")
FEW_ITEMS = 150
"""Items of each set for controls out of domain and for other methods."""
MAIN = ("icr", "icr, random basis")
IN_DOMAIN_MAIN = ("icr, constant router", "icr, random encoder")
CONTROLS = (
    "residual stream", "icr, centroid router", "bias trained directly", "icr, shuffled router",
    "icr, within-domain pca",
    "icr, paper's scale", "icr, no confidence", "icr, no sparsity", "icr, no gating", "icr, strong confidence",
    "icr, rank 4", "icr, rank 12", "icr, own encoder", "icr, last row",
)  # fmt: skip
METHODS = ("task vectors", "icv", "lora on the head", "function vectors", "i2cl")
LAYERS = ("icr, middle layers", "icr, early layers", "icr, all layers")
ANSWERS = HERE / "icr_smollm2_answers.npz"
RESULT = HERE / "icr_smollm2.json"
STAGES = ("choose", "main", "controls", "methods", "layers", "use")


def variant(cross_entropy: str) -> Variant:
    """How the study routes, but for what is chosen on development queries."""
    return Variant(settings=RouterSettings(cross_entropy=cross_entropy, batch=8, epochs=8))  # type: ignore[arg-type]


class Run:
    """The study and what has come of it."""

    def __init__(self) -> None:
        self.study = Study(load_model("smollm2-135m", device="cpu"), SETTINGS, RUNS / "icr_smollm2", SEEDS, True)
        unpack(self.study.folder / "answers")
        self.right: dict[str, dict[str, np.ndarray]] = {}
        self.told: dict[str, Any] = {"command": "python fits/icr.py smollm2", "settings": SETTINGS.to_dict()}
        kept = json.loads(RESULT.read_text()) if RESULT.exists() else {}
        self.kept = kept if kept.get("settings") == SETTINGS.to_dict() else {}

    def choose(self) -> Variant:
        """Train with each form of cross-entropy and keep the one that is best on development queries."""
        path = self.study.folder / "choice.json"
        if not path.exists() and "development" in self.kept:
            path.write_text(json.dumps(self.kept["development"]))
        if not path.exists():
            found = {}
            for form in CHOICES:
                ground = self.study.ground(0)
                method = Routed(f"choose {form}", variant(form))
                method.fit(ground)
                found[form] = accuracy(method.answer(ground.development), ground.development)
                print("development", form, round(found[form], 3), flush=True)
            found["zero-shot"] = accuracy(ground.development.zero_shot, ground.development)
            path.write_text(json.dumps(found))
        self.told["development"] = json.loads(path.read_text())
        best = max(CHOICES, key=lambda form: self.told["development"][form])
        chosen = self.study.folder / "seed-0" / "icr"
        trained = self.study.folder / "seed-0" / f"choose_{best}"
        if trained.exists() and not chosen.exists():
            shutil.copytree(trained, chosen)
        self.told["chosen"] = best
        return variant(best)

    def add(self, name: str, base: Variant, seeds: tuple[int, ...], sets: Any = None, items: int | None = None) -> None:
        """Try a method and write what there is."""
        make = make_method(name, base)
        self.right.setdefault(name, {}).update(self.study.right(make, seeds, sets, items))
        self.write()
        pack(self.study.folder / "answers")

    def write(self) -> None:
        """Write the committed result."""
        if "zero-shot" not in self.right:
            return
        losses = training_losses(self.study, list(self.right), SEEDS)
        result = self.told | {"training": self._losses(losses)} | self.study.scores(self.right).to_dict()
        RESULT.write_text(json.dumps(rounded(result), allow_nan=False, indent=1) + "\n")

    def _losses(self, found: dict[str, Any]) -> dict[str, Any]:
        """Losses of what was trained in this folder, else those that were written before."""
        before = self.kept.get("training", {})
        return {name: before.get(name, {}) | found.get(name, {}) for name in (*before, *found)}


def pack(folder: Path) -> None:
    """Keep every method's answers in fits/, so that a fresh clone goes on from them."""
    np.savez_compressed(ANSWERS, **{path.stem: np.load(path) for path in sorted(folder.glob("*.npy"))})


def unpack(folder: Path) -> None:
    """The answers kept in fits/, where they are not there already."""
    if not ANSWERS.exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    with np.load(ANSWERS, allow_pickle=False) as kept:
        for name in kept.files:
            if not (folder / f"{name}.npy").exists():
                np.save(folder / f"{name}.npy", kept[name])


def main_stage(run: Run, base: Variant) -> None:
    """References and routing on all sets, three seeds; then the gates."""
    settings = run.study.settings
    run.add("zero-shot", base, (0,), settings.in_domain)
    for number in range(len(SEEDS)):
        for name in (*MAIN, *IN_DOMAIN_MAIN):
            run.add(name, base, SEEDS[: number + 1], settings.in_domain)
        for name in REFERENCES:
            if name not in (*SEEDLESS, "few-shot"):
                run.add(name, base, SEEDS[: number + 1], settings.in_domain)
        if number == 0:
            run.add("zero-shot", base, (0,))
            run.add("few-shot", base, (0,), settings.in_domain)
        for name in (*MAIN, "contextual calibration", "label bias, fitted", "encoder only"):
            run.add(name, base, SEEDS[: number + 1])
        run.told["directions"] = report_directions(run.study.vectors(0), base.rank).to_dict()
        beyond(run, base, SEEDS[: number + 1])
    run.add("few-shot", base, (0,))


def beyond(run: Run, base: Variant, seeds: tuple[int, ...]) -> None:
    """What holds the trained router back, chosen on the held-out set or on development queries; no new training."""
    told: dict[str, dict[str, Any]] = {}
    for name in BEYOND:
        by_set: dict[str, list[np.ndarray]] = {}
        for seed in seeds:
            method = make_method(name, base)()
            method.fit(run.study.ground(seed))
            told.setdefault(name, {})[str(seed)] = chosen_by(method)
            for test, logits in run.study.answers(make_method("icr", base), seed).items():
                queries = run.study.test(test)
                if isinstance(method, Gated):
                    logits = method.mix(queries, logits)
                elif isinstance(method, Shrunk) and method.factor != 1:
                    logits = method.answer(queries)
                by_set.setdefault(test, []).append(right_answers(logits, queries.answers))
        run.right[name] = {test: np.stack(own) for test, own in by_set.items()}
    run.told["beyond"] = {"held_out": list(run.study.settings.held_out), "chosen": told}
    run.write()


def chosen_by(method: Any) -> Any:
    """What a method has settled on."""
    if isinstance(method, GainGated):
        return method.gains
    found = method.factor if isinstance(method, Shrunk) else method.bound
    return found if np.isfinite(found) else str(found)


def tiny() -> None:
    """Every method and control on the built-in model, three seeds."""
    model = load_model("tiny", device="cpu")
    study = Study(model, default_settings("tiny"), RUNS / "icr_tiny", SEEDS, True)
    result = evaluate(study, default_variant("tiny"), known_methods(), SEEDS)
    result["directions"] = report_directions(study.vectors(0), 4).to_dict()
    told = {"command": "python fits/icr.py tiny"}
    (HERE / "icr_tiny.json").write_text(json.dumps(rounded(told | result), allow_nan=False, indent=1) + "\n")
    print(summarise(result))


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", choices=["smollm2", "tiny"], default="smollm2")
    parser.add_argument("--until", choices=STAGES, default=STAGES[-1])
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.model == "tiny":
        tiny()
        return
    run = Run()
    last = STAGES.index(options.until)
    base = run.choose()
    if last >= 1:
        main_stage(run, base)
    few = {"controls": CONTROLS, "methods": METHODS, "layers": LAYERS}
    for stage in STAGES[2 : last + 1]:
        for name in few.get(stage, ()):
            run.add(name, base, (0,), run.study.settings.in_domain, FEW_ITEMS)
            run.add(name, base, (0,), run.study.settings.out_of_domain, FEW_ITEMS)
    if STAGES[last] == "use":
        kept = {key: run.kept[key] for key in ("routing", "latency") if key in run.kept}
        run.told |= kept or use_of_router(run.study, base, SEEDS[0], LATENCY_LENGTHS)
    run.write()
    print(summarise(run.study.scores(run.right).to_dict()))


if __name__ == "__main__":
    main()
