"""Label mass observed on the held-out target against the mass predicted by two constants a head.

    python paper_figures/observed_against_predicted_mass.py [FIT ...]

Draws paper_figures/output/observed_against_predicted_mass-FIT.{png,pdf} from fits/FIT.json.
"""

from draw import draw_for_fits

if __name__ == "__main__":
    draw_for_fits("observed_against_predicted_mass")
