"""What the figure scripts share: read committed results, draw, write PNG and PDF."""

import json
import sys
from pathlib import Path

from readout.figures import FIGURES, save

HERE = Path(__file__).parent
FITS = HERE.parent / "fits"
MAIN_JOB_FITS = ("smollm2_words", "smollm2_trec", "smollm2_agnews")


def draw_for_fits(name: str) -> None:
    """Draw one figure of the main job for the fits named on the command line, or for all."""
    for fit in sys.argv[1:] or MAIN_JOB_FITS:
        report = json.loads((FITS / f"{fit}.json").read_text())
        for file in save(FIGURES[name](report), HERE / "output" / f"{name}-{fit}"):
            print(file.relative_to(HERE.parent))
