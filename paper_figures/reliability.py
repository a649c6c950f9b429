"""Predicted against actual label probabilities on the held-out target, with the reliability curve.

    python paper_figures/reliability.py [FIT ...]

Draws paper_figures/output/reliability-FIT.{png,pdf} from fits/FIT.json.
"""

from draw import draw_for_fits

if __name__ == "__main__":
    draw_for_fits("reliability")
