"""Methods and controls by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from readout.errors import ReadoutError
from readout.icr.methods.base import Make, Method
from readout.icr.methods.beyond import DomainGated, GainGated, Gated, Shrunk
from readout.icr.methods.function_vectors import FunctionVectors
from readout.icr.methods.i2cl import ImplicitContext
from readout.icr.methods.icv import InContextVectors
from readout.icr.methods.lora_head import LoraHead
from readout.icr.methods.plain import FewShot, ZeroShot
from readout.icr.methods.references import ContextualCalibration, EncoderOnly, LabelBias
from readout.icr.methods.routed import Routed, Variant
from readout.icr.methods.task_vectors import TaskVectors
from readout.icr.router import RouterSettings

Changes = Mapping[str, Any]
CONTROLS: Final[dict[str, Changes]] = {
    "icr": {},
    "icr, random basis": {"basis": "random"},
    "icr, unmatched random basis": {"basis": "random-unmatched", "scale": "raw"},
    "icr, within-domain pca": {"basis": "pca-within"},
    "icr, paper's scale": {"scale": "raw"},
    "icr, constant router": {"router": "constant"},
    "icr, centroid router": {"router": "centroid"},
    "icr, shuffled router": {"router": "shuffled"},
    "icr, random encoder": {"encoder": "random"},
    "icr, own encoder": {"encoder": "own"},
    "bias trained directly": {"carrier": "trained", "router": "constant"},
    "residual stream": {"carrier": "residual"},
    "icr, last row": {"rows": "last"},
    "icr, no confidence": {"settings": {"confidence": 0.0}},
    "icr, no sparsity": {"settings": {"sparsity": 0.0}},
    "icr, no gating": {"settings": {"gating": 0.0}},
    "icr, strong confidence": {"settings": {"confidence": 0.3}},
    "icr, rank 4": {"rank": 4},
    "icr, rank 12": {"rank": 12},
    "icr, early layers": {"layers": "early"},
    "icr, middle layers": {"layers": "middle"},
    "icr, all layers": {"layers": "all"},
}
"""What each control changes of in-context routing; everything else is the same, training included."""
PLAIN: Final[dict[str, Make]] = {
    "zero-shot": ZeroShot,
    "few-shot": FewShot,
    "label bias, fitted": LabelBias,
    "contextual calibration": ContextualCalibration,
    "encoder only": EncoderOnly,
    "task vectors": TaskVectors,
    "function vectors": FunctionVectors,
    "icv": InContextVectors,
    "i2cl": ImplicitContext,
    "lora on the head": LoraHead,
}
BEYOND: Final[dict[str, Callable[[Routed], Method]]] = {
    "icr, distance gate": Gated,
    "icr, domain gate": DomainGated,
    "icr, gain gate": GainGated,
    "icr, shrunk alpha": Shrunk,
}
"""Beyond the paper: what holds the trained router back out of domain."""
REFERENCES: Final = ("zero-shot", "few-shot", "label bias, fitted", "contextual calibration", "encoder only")
"""What always stands beside in-context routing."""
SEEDLESS: Final = ("zero-shot",)


def variant_of(name: str, base: Variant) -> Variant:
    """A control's variant, out of the one that it changes.

    Raises
    ------
    ReadoutError
        If there is no such control.
    """
    if name not in CONTROLS:
        raise ReadoutError(f"no control {name!r}; known are {', '.join(CONTROLS)}")
    changes = dict(CONTROLS[name])
    settings: RouterSettings = replace(base.settings, **changes.pop("settings", {}))
    return replace(base, **changes, settings=settings)


def is_other(name: str, base: Variant, encoder: str) -> bool:
    """Whether a method is another one than "icr" itself; where all layers are routed, "icr, all layers" is not.

    Parameters
    ----------
    name, base
        As in `variant_of`; methods that are no controls always are others.
    encoder : str
        The study's own.
    """
    if name not in CONTROLS or name == "icr":
        return True
    own = variant_of(name, base)
    return (replace(own, encoder="ground") if own.encoder == encoder else own) != base


def make_method(name: str, base: Variant | None = None) -> Make:
    """What makes a method.

    Parameters
    ----------
    name : str
        A key of `PLAIN`, `CONTROLS` or `BEYOND`.
    base : Variant, optional
        What controls change.

    Raises
    ------
    ReadoutError
        If there is no such method; the message lists the known ones.
    """
    if name in PLAIN:
        return PLAIN[name]
    if name in BEYOND:
        # the router is the one trained as "icr": it is found in its folder
        return lambda: BEYOND[name](Routed("icr", base))
    if name not in CONTROLS:
        raise ReadoutError(f"no method {name!r}; known are {', '.join(known_methods())}")
    variant = variant_of(name, base or Variant())
    return lambda: Routed(name, variant)


def known_methods() -> tuple[str, ...]:
    """All names."""
    return (*PLAIN, *CONTROLS, *BEYOND)
