"""The circuit's result: claims, parts, settings and versions, to and from ``circuit.json``."""

from __future__ import annotations

import json
import math
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from readout.circuit.claim import Claim, Part
from readout.circuit.evidence import LEAST_LOGIT_DIFFERENCE
from readout.errors import FitError
from readout.files import write_json
from readout.statistics import Estimate
from readout.statistics.checks import check_format, fields_of, load_json, reading

FORMAT = "readout.circuit/1"
_WIDTH = 118
_MOST_NAMES = 8


@dataclass(frozen=True)
class CircuitReport:
    """All claims that were tested on one model.

    Parameters
    ----------
    model
        Name, source, precision and versions.
    settings
        Distribution, contexts, draws, seed and whether labels were permuted.
    behaviour
        "accuracy" among the prompt's labels and "logit difference" (nats), on the testing half, and "chance".
    claims
        In the order of their numbers.
    token_heads
        Previous-token, duplicate-token and induction heads, told on random tokens that repeat.
    token_curves
        Their scores, for every head.
    """

    model: dict[str, Any]
    settings: dict[str, Any]
    behaviour: dict[str, Any]
    claims: tuple[Claim, ...]
    token_heads: tuple[Part, ...] = ()
    token_curves: dict[str, Any] | None = None

    @property
    def has_ground(self) -> bool:
        """Whether the model does the task on these prompts."""
        found = self.behaviour["logit difference"]
        return bool(found.low > 0 and found.value >= LEAST_LOGIT_DIFFERENCE)

    def __getitem__(self, number: int) -> Claim:
        for claim in self.claims:
            if claim.number == number:
                return claim
        raise KeyError(number)

    @property
    def parts(self) -> tuple[Part, ...]:
        """Of all claims, and the token heads."""
        return (*(part for claim in self.claims for part in claim.parts), *self.token_heads)

    def summary(self) -> str:
        """The result on one screen."""
        told = self.settings
        accuracy, difference = self.behaviour["accuracy"], self.behaviour["logit difference"]
        lines = [
            f"model    {self.model.get('name')}: {self.model.get('note') or self.model.get('architecture')}, "
            f"{self.model.get('dtype')}",
            f"prompts  {told['distribution']['task']}, {told['contexts']} contexts, half to choose and half to test; "
            f"{told['draws']} random draws, seed {told['seed']}" + (", LABELS PERMUTED" if told["permuted"] else ""),
            f"         accuracy {accuracy.summary(2)} (chance {self.behaviour['chance']:.2f}), logit difference "
            f"{difference.summary(2)} nats",
            "",
            f"  claim  supported  {'effect':<25}{'control':>8}{'p':>8}   what is claimed",
        ]
        for claim in self.claims:
            lines.append(_line(claim))
            lines += [_component(one) for one in claim.curves.get("components", ())]
        lines += ["", "supported by a rule that circuit.json gives with each claim, as it does measures and notes"]
        lines += ["", *self._roles()]
        if not self.has_ground:
            lines.append("WITHOUT GROUND: the model does not do this task; no claim can be supported")
        return "\n".join(lines)

    def _roles(self) -> list[str]:
        """Names by role."""
        lines = []
        for role in dict.fromkeys(part.role for part in self.parts):
            own = list(dict.fromkeys(part.name for part in self.parts if part.role == role and part.holds))
            more = f", ... ({len(own)})" if len(own) > _MOST_NAMES else ""
            lines.append(f"  {role:<16}{', '.join(own[:_MOST_NAMES]) or 'none on the testing half'}{more}")
        return lines

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON; the keys are documented in the README."""
        behaviour = {name: one.to_dict() if isinstance(one, Estimate) else one for name, one in self.behaviour.items()}
        return {
            "format": FORMAT,
            "model": self.model,
            "settings": self.settings,
            "has_ground": self.has_ground,
            "behaviour": behaviour,
            "claims": {str(claim.number): claim.to_dict() for claim in self.claims},
            "token_heads": [part.to_dict() for part in self.token_heads],
            "token_curves": self.token_curves,
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> CircuitReport:
        """Read what `to_dict` wrote.

        Raises
        ------
        FitError
            When it is not such a dictionary.
        """
        check_format(data, FORMAT, "circuit report")
        fields_of(data, ("model", "settings", "behaviour", "claims", "token_heads", "token_curves"), "circuit report")
        with reading("circuit report"):
            behaviour = {
                name: Estimate.from_dict(one) if isinstance(one, dict) else one
                for name, one in data["behaviour"].items()
            }
            return cls(
                data["model"],
                data["settings"],
                behaviour,
                tuple(Claim.from_dict(data["claims"][number]) for number in sorted(data["claims"], key=int)),
                tuple(Part.from_dict(part) for part in data["token_heads"]),
                data["token_curves"],
            )

    def save(self, path: str | Path) -> None:
        """Write the report as JSON."""
        write_json(path, self.to_dict())

    @classmethod
    def load(cls, path: str | Path) -> CircuitReport:
        """Read what `save` wrote."""
        return cls.from_dict(load_json(path, "circuit report"))


def _line(claim: Claim) -> str:
    told = f"{claim.p:.4f}" if claim.p == claim.p else "-"
    control = f"{claim.control.value:.3f}" if claim.control.value == claim.control.value else "-"
    effect = claim.effect.summary() if claim.effect.value == claim.effect.value else "-"
    start = f"  {claim.number:>5}  {claim.supported:<9}  {effect:<25}{control:>8}{told:>8}   "
    return start + textwrap.shorten(claim.title, max(20, _WIDTH - len(start)), placeholder=" ...")


def _component(one: Mapping[str, Any]) -> str:
    """A claim of several components is as good as its worst; each is shown."""
    effect, control, p = Estimate.from_dict(one["effect"]), one["control"]["value"], one["p"]
    told = [effect.summary() if math.isfinite(effect.value) else "-"]
    told += [
        "-" if value is None or not math.isfinite(value) else f"{value:.{digits}f}"
        for value, digits in ((control, 3), (p, 4))
    ]
    return f"         {one['supported']:<9}  {told[0]:<25}{told[1]:>8}{told[2]:>8}     {one['name']}"


def load_claim(path: Path) -> Claim:
    """A claim that was finished before.

    Raises
    ------
    FitError
        When the file cannot be read.
    """
    try:
        return Claim.from_dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise FitError(f"{path} cannot be read as a claim ({error}); delete it to test the claim again") from error
