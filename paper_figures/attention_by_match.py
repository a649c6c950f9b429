"""Attention from the query to matching and to other label positions, head by head.

    python paper_figures/attention_by_match.py [FIT ...]

Draws paper_figures/output/attention_by_match-FIT.{png,pdf} from fits/FIT.json.
"""

from draw import draw_for_fits

if __name__ == "__main__":
    draw_for_fits("attention_by_match")
