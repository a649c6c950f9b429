"""Does a recipe make readers park on the first token, or grow suppressors? Writes fits/parking_search.json.

    python fits/parking_search.py --runs runs/training [--seeds 0]

Each variant changes one or two things of the recipe `tiny`, with the last phase cut to 250 steps. Parking is a reader's
attention to the first token without a repeated label, minus with one (or with all labels repeated); a suppressor
attends more to the last label than to others, has a negative direct effect on it, and lets it rise when ablated. A
stopped call goes on where it stopped.
"""

import argparse
import dataclasses
import json
from pathlib import Path

from growth import HERE, header, summarise
from parking import parking, suppressors

from readout.training.presets import TINY, Preset
from readout.training.run import train

GATED = {"distinct": 0.4, "masked_until_repeat": True, "novel": True}


def variant(
    name: str,
    gate_from_start: bool = False,
    repeat_weight: float | None = None,
    gate: dict[str, float] | None = None,
    **size: int,
) -> Preset:
    """Return the recipe with other sizes, gate data from the start, another gate phase, or a recent-label skew."""
    phases = []
    for phase in TINY.phases:
        if phase.name == "noise":
            phase = dataclasses.replace(phase, steps=250)
        if gate_from_start and phase.name in ("copy", "bridge", "classes"):
            # Ten different labels in a sequence need more than the first phase's eight.
            labels = max(phase.label_pool, 16)
            phase = dataclasses.replace(phase, **GATED, cover_first=False, until_leak=0.0, label_pool=labels)
        if gate and phase.name == "gate":
            phase = dataclasses.replace(phase, **gate)
        if repeat_weight is not None and phase.name != "copy":
            phase = dataclasses.replace(phase, repeat_weight=repeat_weight)
        phases.append(phase)
    return dataclasses.replace(TINY, name=name, phases=tuple(phases), checkpoint_every=10_000, **size)


VARIANTS = {
    "plain": (variant("plain"), "the recipe, shortened"),
    "narrow": (
        variant("narrow", feed_forward=8),
        "almost no MLP: only heads can gate after the readers",
    ),
    "gate-first": (variant("gate-first", gate_from_start=True), "gate data before any reader has grown"),
    "narrow-gate-first": (
        variant("narrow-gate-first", gate_from_start=True, feed_forward=8),
        "gate data before any reader has grown, and almost no MLP",
    ),
    "three-layers-narrow": (
        variant("three-layers-narrow", layers=3, feed_forward=8),
        "one layer less, so that there is less room after the readers",
    ),
    "skew": (variant("skew", repeat_weight=0.02), "a class hardly ever follows itself, from the second phase on"),
    "skew-narrow": (variant("skew-narrow", repeat_weight=0.02, feed_forward=8), "the same with almost no MLP"),
    "gate-more": (
        variant("gate-more", gate={"batch": 64, "until_leak": 0.05, "steps": 500}),
        "three times as much gate data, from the gate phase",
    ),
}


def main() -> None:
    """Train, measure and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, default=Path("runs/training"))
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--variants", default=",".join(VARIANTS))
    parser.add_argument("--out", type=Path, default=HERE / "parking_search.json")
    options = parser.parse_args()
    result = header(f"python fits/parking_search.py --seeds {options.seeds} --variants {options.variants}")
    result["variants"] = {name: {"what": VARIANTS[name][1], "seeds": {}} for name in options.variants.split(",")}
    # The recipe itself, where fits/growth.py has trained it.
    finished = sorted(options.runs.glob("tiny-*/model"))
    result["recipe"] = {m.parent.name[-1]: {"parking": parking(m), "suppressors": suppressors(m)} for m in finished}
    for seed in map(int, options.seeds.split(",")):
        for name, found in result["variants"].items():
            run = train(options.runs / f"search-{name}-{seed}", seed, VARIANTS[name][0], quiet=True)
            found["seeds"][str(seed)] = summarise(run) | {
                "parking": parking(run.model_folder),
                "suppressors": suppressors(run.model_folder),
            }
            options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
