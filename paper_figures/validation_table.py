"""Held-out error of baselines, controls, links and ceilings, with intervals.

    python paper_figures/validation_table.py [FIT ...]

Draws paper_figures/output/validation_table-FIT.{png,pdf} from fits/FIT.json.
"""

from draw import draw_for_fits

if __name__ == "__main__":
    draw_for_fits("validation_table")
