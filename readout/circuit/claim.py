"""A claim with its evidence: effect, control, verdict by a stated rule, and the parts that it names."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from readout.errors import InterventionError
from readout.statistics import Estimate
from readout.statistics.checks import fields_of, reading
from readout.statistics.estimate import number_or_nan, number_or_none
from readout.wording import p_value

Verdict = Literal["true", "false", "undecided"]

TITLES = {
    1: "each label token's residual stream encodes the label's identity",
    2: "middle-layer heads (writers) write the demonstration's class into the label position",
    3: "upper-layer heads (readers) match the query's class to the keys and copy out the label",
    4: "an early signal that some label has repeated gates the readout",
    5: "other heads (suppressors) push down the most recently seen label",
    6: "steering with the model's own signals moves the behaviour",
    7: "the named heads are enough",
    8: "a softmax readout with two constants a head, fitted on one distribution, predicts another",
}
LEVEL = 0.05
_TO_JSON: dict[str, bool | str] = {"true": True, "false": False, "undecided": "undecided"}


def verdict(effect: Estimate, difference: Estimate, p: float, negligible: float) -> Verdict:
    """Whether a claim is supported.

    Parameters
    ----------
    effect
        Oriented so that the claim predicts a positive one.
    difference
        Effect minus control, paired by context.
    p
        Corrected for the number of tests made.
    negligible
        A tenth of the effect that the claim predicts in full.

    Returns
    -------
    str
        "true" when both intervals are above 0 and p is below .05; "false" when the effect's interval lies below
        `negligible`; otherwise, and wherever an interval or p is missing, "undecided".
    """
    # Comparisons with NaN are false, so that what could not be measured stays undecided.
    if effect.low > 0 and difference.low > 0 and p < LEVEL:
        return "true"
    return "false" if effect.high < negligible else "undecided"


def rule(negligible: float, unit: str = "") -> str:
    """The rule of `verdict` in words, with the bound that a claim uses."""
    bound = f"{negligible:.3g}{' ' + unit if unit else ''}"
    return (
        "true: the 95 % intervals of the effect and of its difference from the control lie above 0, and p < .05; "
        f"false: the effect's interval lies below {bound}, a tenth of the whole; otherwise undecided"
    )


@dataclass(frozen=True)
class Part:
    """One named head, or a place in the residual stream, with evidence from prompts that did not choose it.

    Parameters
    ----------
    role
        reader, writer, gate, suppressor, anti-copying, previous-token, duplicate-token or induction.
    name
        Such as "L18H6".
    layer, head
        The head; -1 for a place in the residual stream.
    definition
        What makes a head one of this role, in one sentence.
    effect, control
        Measured on prompts that did not choose it.
    p, p_method
        p-value, corrected by the method that is named.
    evidence
        Further numbers by name.
    """

    role: str
    name: str
    layer: int
    head: int
    definition: str
    effect: Estimate
    control: Estimate | None
    p: float
    p_method: str = ""
    evidence: dict[str, float] = field(default_factory=dict)

    @property
    def holds(self) -> bool:
        """Whether the effect is above 0 on the testing prompts, by its interval and its p-value."""
        return bool(self.effect.low > 0 and self.p < LEVEL)

    def summary(self) -> str:
        """One line."""
        control = f", control {self.control.value:.3f}" if self.control else ""
        return f"{self.role} {self.name}: {self.effect.summary()}{control}, {p_value(self.p)}"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {
            "role": self.role,
            "name": self.name,
            "layer": self.layer,
            "head": self.head,
            "definition": self.definition,
            "effect": self.effect.to_dict(),
            "control": self.control.to_dict() if self.control else None,
            "p": number_or_none(self.p),
            "p_method": self.p_method,
            "evidence": {name: number_or_none(value) for name, value in self.evidence.items()},
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Part:
        """Read what `to_dict` wrote.

        Raises
        ------
        FitError
            When it is not such a dictionary.
        """
        fields_of(data, cls.__dataclass_fields__, "part")
        with reading("part"):
            control = data["control"]
            return cls(
                **{name: data[name] for name in ("role", "name", "layer", "head", "definition", "p_method")},
                effect=Estimate.from_dict(data["effect"]),
                control=None if control is None else Estimate.from_dict(control),
                p=number_or_nan(data["p"]),
                evidence={name: number_or_nan(value) for name, value in data["evidence"].items()},
            )


@dataclass(frozen=True)
class Claim:
    """The test of one claim.

    Parameters
    ----------
    number, title
        Of the claim.
    measure
        What the effect is, in words, with its unit.
    effect, control, difference
        The claim predicts a positive effect, 1 being the whole of it where that is natural; difference is effect minus
        control, paired by context.
    p, p_method
        p-value, corrected by the method that is named.
    n_prompts, n_contexts
        Of the prompts that the effect is reported on.
    supported, rule
        The verdict and how it is reached.
    parts
        Heads and places that the claim names.
    curves
        Plain lists, numbers and texts for figures; None stands for what could not be measured.
    notes
        What a reader must know.
    """

    number: int
    title: str
    measure: str
    effect: Estimate
    control: Estimate
    difference: Estimate
    p: float
    p_method: str
    n_prompts: int
    n_contexts: int
    supported: Verdict
    rule: str
    parts: tuple[Part, ...] = ()
    curves: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.supported not in _TO_JSON:
            raise InterventionError(f"supported must be one of {', '.join(_TO_JSON)}; got {self.supported!r}")

    def summary(self) -> str:
        """Verdict, effect and control in a few lines."""
        lines = [
            f"claim {self.number}: {self.supported.upper()}   {self.title}",
            f"  {self.measure}: {self.effect.summary()}, control {self.control.summary()}, {p_value(self.p)}, "
            f"n {self.n_prompts} in {self.n_contexts} contexts",
        ]
        return "\n".join(lines + [f"  note: {note}" for note in self.notes])

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON; `supported` is true, false or "undecided"."""
        return {
            "claim": self.number,
            "title": self.title,
            "measure": self.measure,
            "effect": number_or_none(self.effect.value),
            "low": number_or_none(self.effect.low),
            "high": number_or_none(self.effect.high),
            "control": number_or_none(self.control.value),
            "p": number_or_none(self.p),
            "p_method": self.p_method,
            "n": self.n_prompts,
            "contexts": self.n_contexts,
            "supported": _TO_JSON[self.supported],
            "rule": self.rule,
            "parts": [part.to_dict() for part in self.parts],
            "curves": self.curves,
            "notes": list(self.notes),
            "estimates": {name: getattr(self, name).to_dict() for name in ("effect", "control", "difference")},
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Claim:
        """Read what `to_dict` wrote.

        Raises
        ------
        FitError
            When it is not such a dictionary.
        """
        fields_of(data, ("claim", "supported", "estimates", "parts"), "claim")
        with reading("claim"):
            verdicts: dict[Any, Any] = {one: name for name, one in _TO_JSON.items()}
            return cls(
                number=int(data["claim"]),
                title=data["title"],
                measure=data["measure"],
                effect=Estimate.from_dict(data["estimates"]["effect"]),
                control=Estimate.from_dict(data["estimates"]["control"]),
                difference=Estimate.from_dict(data["estimates"]["difference"]),
                p=number_or_nan(data["p"]),
                p_method=data["p_method"],
                n_prompts=int(data["n"]),
                n_contexts=int(data["contexts"]),
                supported=verdicts[data["supported"]],
                rule=data["rule"],
                parts=tuple(Part.from_dict(part) for part in data["parts"]),
                curves=data["curves"],
                notes=tuple(data["notes"]),
            )
