"""Figures, drawn from results only."""

from readout.figures.main_job import FIGURES
from readout.figures.style import save, styled

__all__ = ["FIGURES", "save", "styled"]
