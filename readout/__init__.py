"""Measure, fit and test the key-value readout of in-context learning in causal language models."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from readout.fitting import Observations, SoftmaxReadout
    from readout.models import LanguageModel, load_model
    from readout.pipeline import default_pair, run
    from readout.prompts import PromptDistribution
    from readout.records import extract, open_record
    from readout.validation import validate

__version__ = "0.1.0"

_HOMES = {
    "LanguageModel": "readout.models",
    "Observations": "readout.fitting",
    "PromptDistribution": "readout.prompts",
    "SoftmaxReadout": "readout.fitting",
    "default_pair": "readout.pipeline",
    "extract": "readout.records",
    "load_model": "readout.models",
    "open_record": "readout.records",
    "run": "readout.pipeline",
    "validate": "readout.validation",
}
__all__ = [
    "LanguageModel",
    "Observations",
    "PromptDistribution",
    "SoftmaxReadout",
    "default_pair",
    "extract",
    "load_model",
    "open_record",
    "run",
    "validate",
]


def __getattr__(name: str) -> Any:
    # Imported on first use: fitting and validation work without torch, and the command line starts at once.
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'readout' has no attribute {name!r}")
