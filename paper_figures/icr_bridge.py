"""Routed heads in the circuit's terms: gates against ablation, and what opens at zero shot.

    python paper_figures/icr_bridge.py

Draws paper_figures/output/icr_bridge-MODEL.{png,pdf} from fits/icr_bridge_MODEL.json.
"""

import json

from draw import FITS, HERE

from readout.figures import save
from readout.figures.icr_bridge import bridge

if __name__ == "__main__":
    for path in sorted(FITS.glob("icr_bridge_*.json")):
        name = path.stem.removeprefix("icr_bridge_")
        for file in save(bridge(json.loads(path.read_text())), HERE / "output" / f"icr_bridge-{name}"):
            print(file.relative_to(HERE.parent))
