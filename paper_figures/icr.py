"""In-context routing: accuracies, differences to zero-shot, layers, heads and latency, where a result has them.

    python paper_figures/icr.py [icr_tiny] [icr_smollm2]

Draws paper_figures/output/icr_FIGURE-RESULT.{png,pdf} from fits/RESULT.json.
"""

import json
import sys

from draw import FITS, HERE

from readout.figures import save
from readout.figures.icr import FIGURES

RESULTS = ("icr_tiny", "icr_smollm2")

if __name__ == "__main__":
    for result in sys.argv[1:] or [one for one in RESULTS if (FITS / f"{one}.json").exists()]:
        told = json.loads((FITS / f"{result}.json").read_text())
        for name, draw in FIGURES.items():
            figure = draw(told)
            if figure is not None:
                for file in save(figure, HERE / "output" / f"icr_{name}-{result}"):
                    print(file.relative_to(HERE.parent))
