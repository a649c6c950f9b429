"""Residual stream patched by layer and position: from label-swapped prompts, and a repeat put in and taken out.

    python paper_figures/circuit_patching.py [FIT ...]

Draws paper_figures/output/circuit_patching-FIT.{png,pdf} from fits/FIT.json.
"""

from draw import draw_circuit

if __name__ == "__main__":
    draw_circuit("patching")
