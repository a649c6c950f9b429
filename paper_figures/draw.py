"""What the figure scripts share: read committed results, draw, write PNG and PDF."""

import json
import sys
from pathlib import Path

from readout.figures import FIGURES, save
from readout.figures.circuit import FIGURES as CIRCUIT_FIGURES

HERE = Path(__file__).parent
FITS = HERE.parent / "fits"
MAIN_JOB_FITS = ("smollm2_words", "smollm2_trec", "smollm2_agnews")
CIRCUIT_FITS = ("circuit_tiny", "circuit_smollm2")


def draw_for_fits(name: str) -> None:
    """Draw one figure of the main job for the fits named on the command line, or for all."""
    for fit in sys.argv[1:] or MAIN_JOB_FITS:
        report = json.loads((FITS / f"{fit}.json").read_text())
        for file in save(FIGURES[name](report), HERE / "output" / f"{name}-{fit}"):
            print(file.relative_to(HERE.parent))


def draw_circuit(name: str) -> None:
    """Draw one figure of the circuit for the fits named on the command line, or for all."""
    for fit in sys.argv[1:] or [one for one in CIRCUIT_FITS if (FITS / f"{one}.json").exists()]:
        figure = CIRCUIT_FIGURES[name](json.loads((FITS / f"{fit}.json").read_text()))
        if figure is None:
            print(f"{name}: the claims that it shows are not in fits/{fit}.json")
            continue
        for file in save(figure, HERE / "output" / f"circuit_{name}-{fit}"):
            print(file.relative_to(HERE.parent))
