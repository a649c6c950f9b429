"""Copy the trained models into the package: the median seed as `tiny`, every seed as `tiny0` ... `tiny4`.

    python fits/ship_tiny.py --runs runs/training

The rule, stated before these runs were looked at: of the seeds in fits/growth.json the one with the median held-out KL
(`held_out`, on the main job's own fit and target distributions, 384 prompts each) becomes `tiny`.
"""

import argparse
import json
import shutil
from pathlib import Path

import readout

HERE = Path(__file__).parent
ASSETS = Path(readout.__file__).parent / "assets"


def main() -> None:
    """Choose by the rule and copy."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, default=Path("runs/training"))
    options = parser.parse_args()
    seeds = json.loads((HERE / "growth.json").read_text())["seeds"]
    by_kl = sorted(seeds, key=lambda seed: seeds[seed]["held_out"]["readout_kl"])
    median = by_kl[len(by_kl) // 2]
    for name, seed in [("tiny", median), *((f"tiny{seed}", seed) for seed in sorted(seeds))]:
        target = ASSETS / name
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(options.runs / f"tiny-{seed}" / "model", target)
        print(f"{name}: seed {seed}, held-out KL {seeds[seed]['held_out']['readout_kl']:.4f}")


if __name__ == "__main__":
    main()
