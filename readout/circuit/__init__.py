"""The circuit: interventions, the parts that they name, and the claims that they test."""

from readout.circuit.edits import (
    Add,
    Block,
    Edges,
    Edit,
    Heads,
    Intervention,
    Mean,
    Patch,
    Resample,
    Residual,
    Scale,
    Zero,
    ablate,
)
from readout.circuit.engine import intervene
from readout.circuit.outcome import Answers, Outcome
from readout.circuit.positions import CUES, FIRST, LABELS, QUERY, TEXTS, Positions, given

__all__ = [
    "CUES",
    "FIRST",
    "LABELS",
    "QUERY",
    "TEXTS",
    "Add",
    "Answers",
    "Block",
    "Edges",
    "Edit",
    "Heads",
    "Intervention",
    "Mean",
    "Outcome",
    "Patch",
    "Positions",
    "Resample",
    "Residual",
    "Scale",
    "Zero",
    "ablate",
    "given",
    "intervene",
]
