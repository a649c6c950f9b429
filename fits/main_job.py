"""What the fit-and-predict scripts share: run the main job in a folder that resumes, keep the report and its origin."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from readout.models import load_model
from readout.pipeline import run
from readout.prompts import PromptDistribution

HERE = Path(__file__).parent
RUNS = HERE.parent / "runs" / "fits"
DIGITS = 6


def regenerate(
    name: str, fit: PromptDistribution, target: PromptDistribution, model: str = "smollm2-135m", replicate: bool = True
) -> dict[str, Any]:
    """Run the main job and write ``fits/NAME.json``: the report, the command, and how long this call took.

    Records stay in ``runs/fits/NAME`` (not committed), so a stopped call goes on where it stopped.
    """
    start = time.perf_counter()
    folder = RUNS / name
    had_records = folder.exists()
    report = run(load_model(model, device="cpu"), fit, target, folder, replicate=replicate, progress=True)
    result = {
        "command": f"python fits/{Path(sys.argv[0]).name}",
        "seconds": round(time.perf_counter() - start, 1),
        "records_were_there": had_records,
        **rounded(report.to_dict()),
    }
    (HERE / f"{name}.json").write_text(json.dumps(result, allow_nan=False) + "\n")
    print(report.summary())
    return result


def rounded(value: Any) -> Any:
    """Numbers to six significant digits: beyond that they differ between machines, and files stay small."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, dict):
        return {key: rounded(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [rounded(entry) for entry in value]
    return value
