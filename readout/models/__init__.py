"""Loading causal language models and reading and editing their attention."""

from readout.models.attention import OutputEdit, ScoreEdit, Session
from readout.models.check import CheckReport, check
from readout.models.language_model import Edits, LanguageModel, Reading
from readout.models.load import load_model
from readout.models.packing import PackedBatch, pack
from readout.models.sources import known_names

__all__ = [
    "CheckReport",
    "Edits",
    "LanguageModel",
    "OutputEdit",
    "PackedBatch",
    "Reading",
    "ScoreEdit",
    "Session",
    "check",
    "known_names",
    "load_model",
    "pack",
]
