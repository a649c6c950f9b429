"""How much of the logit difference the named heads keep, and the curve over the number of heads.

    python paper_figures/circuit_sufficiency.py [FIT ...]

Draws paper_figures/output/circuit_sufficiency-FIT.{png,pdf} from fits/FIT.json.
"""

from draw import draw_circuit

if __name__ == "__main__":
    draw_circuit("sufficiency")
