"""Readers and suppressors ablated, against every draw of as many random heads of the same layers.

    python paper_figures/circuit_ablation.py [FIT ...]

Draws paper_figures/output/circuit_ablation-FIT.{png,pdf} from fits/FIT.json.
"""

from draw import draw_circuit

if __name__ == "__main__":
    draw_circuit("ablation")
