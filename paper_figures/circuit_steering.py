"""Dose-response of the gate's direction, added without a repeat and subtracted with one, beside random directions.

    python paper_figures/circuit_steering.py [FIT ...]

Draws paper_figures/output/circuit_steering-FIT.{png,pdf} from fits/FIT.json.
"""

from draw import draw_circuit

if __name__ == "__main__":
    draw_circuit("steering")
