"""Label mass and readers' attention with a repeated label, without one, and with other labels that repeat.

    python paper_figures/circuit_gate.py [FIT ...]

Draws paper_figures/output/circuit_gate-FIT.{png,pdf} from fits/FIT.json.
"""

from draw import draw_circuit

if __name__ == "__main__":
    draw_circuit("gate")
