"""What each part of the recipe is for: the recipe without it, with seeds; writes fits/recipe_ablations.json.

    python fits/recipe_ablations.py --runs runs/training [--seeds 0,1,2]

Measures every 400 steps. A stopped call goes on where it stopped; each run is written as it finishes.
"""

import argparse
import json
from pathlib import Path

from growth import HERE, header, summarise

from readout.training.run import train

ABLATIONS = {
    "no-echo": "no echo text in the first phase",
    "no-gate": "no distinct sequences and no masked loss in any phase",
    "no-curriculum": "the last phase from the start, with echo text, for about as much CPU time",
}


def main() -> None:
    """Train, measure and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, default=Path("runs/training"))
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--out", type=Path, default=HERE / "recipe_ablations.json")
    options = parser.parse_args()
    seeds = [int(seed) for seed in options.seeds.split(",")]
    result = header(f"python fits/recipe_ablations.py --seeds {options.seeds}")
    result["ablations"] = {name: {"what": what, "seeds": {}} for name, what in ABLATIONS.items()}
    for seed in seeds:
        for name in ABLATIONS:
            run = train(options.runs / f"{name}-{seed}", seed, name, quiet=True)
            result["ablations"][name]["seeds"][str(seed)] = summarise(run)
            options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
