"""The circuit's committed results: fits/circuit_tiny.json, circuit_smollm2*.json, and the null in circuit_null.json.

    python fits/circuit.py tiny          all claims on the built-in model
    python fits/circuit.py smollm2       all claims on SmolLM2-135M
    python fits/circuit.py smollm2_2_shots, smollm2_4_shots, smollm2_8_shots
                                         the gate again, on other prompts
    python fits/circuit.py null          random weights, and permuted labels: how often a claim comes out true

Folders of the runs stay in runs/fits (not committed), so a stopped call goes on where it stopped.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from dataclasses import replace
from typing import Any

from main_job import HERE, RUNS, rounded

from readout.circuit.report import CircuitReport
from readout.circuit.run import ORDER, run_circuit
from readout.circuit.setting import Setting, default_distribution, make_setting
from readout.models import LanguageModel, load_model
from readout.statistics.checks import check_count
from readout.training.model import build_model
from readout.training.presets import TINY
from readout.training.tokenizer import build_tokenizer

CONTEXTS = {"tiny": 32, "smollm2": 96} | {f"smollm2_{shots}_shots": 96 for shots in (2, 4, 8)}
"""Half to choose and half to test; the larger model's effects are smaller and it has many more heads."""
GATE = (3, 4, 6)
"""Claims tested again: how the gate is measured was settled after its first run on 96 contexts, hence other prompts."""
FRESH_SEED = 1
NULL_RUNS, NULL_CONTEXTS, NULL_DRAWS = 20, 16, 40


def regenerate(name: str) -> CircuitReport:
    """Run the claims on one model and write ``fits/circuit_NAME.json``."""
    folder, kept = RUNS / f"circuit_{name}", HERE / f"circuit_{name}.json"
    start = time.perf_counter()
    found = (folder / "circuit.json").exists() and kept.exists()
    model = load_model("tiny" if name == "tiny" else "smollm2-135m", device="cpu")
    distribution, claims = default_distribution("synthetic" if name == "tiny" else "words"), tuple(ORDER)
    if name.endswith("_shots"):
        distribution, claims = replace(distribution, seed=FRESH_SEED, shots=int(name.split("_")[1])), GATE
    setting = make_setting(model, distribution, CONTEXTS[name], seed=distribution.seed)
    report = run_circuit(setting, folder, claims, progress=True)
    seconds = json.loads(kept.read_text())["seconds"] if found else round(time.perf_counter() - start, 1)
    told = {"command": f"python fits/circuit.py {name}", "seconds": seconds}
    write(f"circuit_{name}", told | report.to_dict())
    return report


def null_study(runs: int) -> dict[str, Any]:
    """How often each claim comes out true where nothing can be: random weights, and the built-in model on no task."""
    check_count(runs, "runs", 1)
    result: dict[str, Any] = {
        "command": f"python fits/circuit.py null --runs {runs}",
        "contexts": NULL_CONTEXTS,
        "draws": NULL_DRAWS,
        "nulls": {},
    }
    for name, make in (("random weights", untrained), ("permuted labels", without_task)):
        verdicts: dict[int, Counter[str]] = {number: Counter() for number in sorted(ORDER)}
        for seed in range(runs):
            folder = RUNS / f"circuit_null_{name.replace(' ', '_')}_{seed}"
            for claim in run_circuit(make(seed), folder).claims:
                verdicts[claim.number][claim.supported] += 1
            result["nulls"][name] = {
                "runs": seed + 1,
                "share true": {str(number): own["true"] / (seed + 1) for number, own in verdicts.items()},
                "verdicts": {str(number): dict(own) for number, own in verdicts.items()},
            }
            write("circuit_null", result)
            print(name, seed, result["nulls"][name]["share true"], flush=True)
    return result


def untrained(seed: int) -> Setting:
    """Random weights of the built-in model's size, each seed with other weights and other prompts."""
    model = LanguageModel(build_model(TINY, seed), build_tokenizer(), f"untrained-{seed}")
    return make_setting(model, default_distribution("synthetic", seed), NULL_CONTEXTS, NULL_DRAWS, seed)


def without_task(seed: int) -> Setting:
    """The built-in model on prompts whose labels tell nothing of classes."""
    model = load_model("tiny", device="cpu", self_test=False)
    return make_setting(model, None, NULL_CONTEXTS, NULL_DRAWS, seed, permuted=True)


def write(name: str, result: dict[str, Any]) -> None:
    """Write a committed result."""
    (HERE / f"{name}.json").write_text(json.dumps(rounded(result), allow_nan=False, indent=1) + "\n")


def main() -> None:
    """Make what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=[*CONTEXTS, "null"])
    parser.add_argument("--runs", type=int, default=NULL_RUNS, help="of each null")
    options = parser.parse_args()
    if options.what == "null":
        null_study(options.runs)
    else:
        print(regenerate(options.what).summary())


if __name__ == "__main__":
    main()
