"""Predicting a held-out distribution: errors next to baselines, controls and the ceiling; free of torch."""

from readout.validation.baselines import BASELINES, baseline_predictions
from readout.validation.behaviour import Behaviour, measure_behaviour
from readout.validation.calibration import Calibration, calibrate
from readout.validation.choose import Choice, choose
from readout.validation.choose_match import MatchChoice, choose_match
from readout.validation.metrics import METRICS, attention_errors, prompt_errors
from readout.validation.report import ValidationReport
from readout.validation.validate import validate

__all__ = [
    "BASELINES",
    "METRICS",
    "Behaviour",
    "Calibration",
    "Choice",
    "MatchChoice",
    "ValidationReport",
    "attention_errors",
    "baseline_predictions",
    "calibrate",
    "choose",
    "choose_match",
    "measure_behaviour",
    "prompt_errors",
    "validate",
]
