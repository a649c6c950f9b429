"""What grows in the transformer trained from scratch, against the training step, five seeds and random weights.

    python paper_figures/growth.py

Draws paper_figures/output/growth.{png,pdf} from fits/growth.json. A triangle marks the end of the first phase.
"""

import json

from draw import FITS, HERE

from readout.figures import save
from readout.figures.growth import growth

if __name__ == "__main__":
    for file in save(growth(json.loads((FITS / "growth.json").read_text())), HERE / "output" / "growth"):
        print(file.relative_to(HERE.parent))
