"""Five seeds of one recipe, measured while they grow: writes fits/growth.json.

    python fits/growth.py --runs runs/training [--preset tiny] [--seeds 0,1,2,3,4]

A stopped call goes on where it stopped; each seed is written as it finishes. The checkpoint of step 0 is the control:
the same measures on random weights.
"""

import argparse
import json
import platform
import statistics
import time
from dataclasses import fields
from pathlib import Path

import torch
import transformers
from ground import clean_accuracy, held_out

from readout.models import load_model
from readout.training.growth import Growth, measure_growth
from readout.training.run import TrainingRun, train

HERE = Path(__file__).parent


def main() -> None:
    """Train, measure and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, default=Path("runs/training"))
    parser.add_argument("--preset", default="tiny")
    parser.add_argument("--seeds", default="0,1,2,3,4")
    parser.add_argument("--out", type=Path, default=HERE / "growth.json")
    options = parser.parse_args()
    result = collect(options.preset, [int(seed) for seed in options.seeds.split(",")], options.runs, options.out)
    print(json.dumps({seed: run["accuracy_by_classes"] for seed, run in result["seeds"].items()}))


def collect(preset: str, seeds: list[int], runs: Path, out: Path) -> dict:
    """Train each seed (or read its finished run) and write all that is known after each."""
    result = header(f"python fits/growth.py --preset {preset} --seeds {','.join(map(str, seeds))}") | {"seeds": {}}
    for seed in seeds:
        run = train(runs / f"{preset}-{seed}", seed, preset)
        result["seeds"][str(seed)] = summarise(run)
        out.write_text(json.dumps(result, indent=1) + "\n")
    return result


def header(command: str) -> dict:
    """Where the numbers of a file come from."""
    return {
        "command": command,
        "machine": f"{platform.machine()}, one thread",
        "gigaflops": matrix_speed(),
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
    }


def matrix_speed(size: int = 1024, repeats: int = 20) -> float:
    """GFLOP/s of a float32 matrix product on one thread, the median: what CPU seconds depend on between machines."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    a, b = torch.randn(2, size, size)
    seconds = []
    for _ in range(repeats):
        started = time.thread_time()
        a @ b
        seconds.append(time.thread_time() - started)
    torch.set_num_threads(threads)
    return round(2 * size**3 / statistics.median(seconds) / 1e9, 1)


def summarise(run: TrainingRun) -> dict:
    """What is kept of a run."""
    return {
        "cpu_seconds": run.cpu_seconds,
        "phases": [{key: phase[key] for key in ("name", "end", "reason")} for phase in run.phases],
        "accuracy_by_classes": clean_accuracy(run.model_folder),
        "held_out": held_out(run.model_folder),
        "checkpoints": [_complete(run, row) for row in run.checkpoints],
    }


def _complete(run: TrainingRun, row: dict[str, float]) -> dict[str, float]:
    """The row with every measure that there is by now, rounded: measures may be younger than the run."""
    if not {field.name for field in fields(Growth)} <= set(row):
        model = load_model(str(run.folder / "checkpoints" / f"step-{int(row['step']):06d}"), self_test=False)
        row = row | measure_growth(model.model, model.tokenizer)
    return {key: round(float(value), 5) for key, value in row.items()}


if __name__ == "__main__":
    main()
