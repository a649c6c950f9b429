"""Run the claims of the circuit in their order, keeping each as it is finished."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from readout.circuit.claim import Claim
from readout.circuit.setting import Setting

MODULES = {
    1: "identity",
    2: "writers",
    3: "readers",
    4: "gate",
    5: "suppressors",
    6: "steering",
    7: "sufficiency",
    8: "transfer",
}


def run_claim(number: int, setting: Setting, known: Mapping[int, Claim], progress: bool = False) -> Claim:
    """Test one claim."""
    module = import_module(f"readout.circuit.{MODULES[number]}")
    claim: Claim = getattr(module, f"claim_{number}")(setting, known, progress)
    return claim
