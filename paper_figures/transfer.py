"""Graded and binary matches on held-out distributions, and the constants that move or stay.

    python paper_figures/transfer.py

Draws paper_figures/output/transfer_errors.{png,pdf} and transfer_constants.{png,pdf} from fits/transfer.json.
"""

import json

from draw import FITS, HERE

from readout.figures import save
from readout.figures.transfer import FIGURES

if __name__ == "__main__":
    study = json.loads((FITS / "transfer.json").read_text())
    for name, draw in FIGURES.items():
        for file in save(draw(study), HERE / "output" / f"transfer_{name}"):
            print(file.relative_to(HERE.parent))
