"""The main job's result: everything that a summary, a figure or a reader of ``report.json`` needs."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from readout.errors import FitError
from readout.files import write_json
from readout.pipeline.fit_stage import FitStage
from readout.prompts import PromptDistribution
from readout.validation import Behaviour, ValidationReport
from readout.wording import counted

FORMAT = "readout.report/1"


@dataclass(frozen=True)
class BesideReport:
    """A further target: what the model does on it, and how well the frozen readout predicts it."""

    distribution: PromptDistribution
    behaviour: Behaviour
    validation: ValidationReport

    def line(self, name: str) -> str:
        """The result in one line."""
        row = self.validation.links[self.validation.chosen_link]
        frequency = self.validation.baselines["label_frequency"]["kl"]
        return (
            f"beside it, {name} ({self.distribution.task}): accuracy {self.behaviour.accuracy}, KL {row['kl']} "
            f"(label frequency {frequency.value:.3f}), agreement {row['agreement'].summary(2)}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {
            "distribution": self.distribution.to_dict(),
            "behaviour": self.behaviour.to_dict(),
            "validation": self.validation.to_dict(),
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> BesideReport:
        """Read what `to_dict` wrote."""
        return cls(
            PromptDistribution.from_dict(data["distribution"]),
            Behaviour.from_dict(data["behaviour"]),
            ValidationReport.from_dict(data["validation"]),
        )


@dataclass(frozen=True)
class RunReport:
    """Fit on one prompt distribution, prediction of another.

    Attributes
    ----------
    model : name, source, precision and versions
    fit_distribution, target_distribution : the two specifications
    shared : classes and labels that occur in both
    stage : what the fit distribution taught
    target_behaviour : what the model does on the target
    validation : errors on the target
    mass_points : per head, observed against predicted label mass on the target
    label_grid : counts of labels by predicted (rows) and actual probability on the target, and the cells' edges
    beside : further targets by name, predicted by the same frozen readout
    """

    model: dict[str, Any]
    fit_distribution: PromptDistribution
    target_distribution: PromptDistribution
    shared: dict[str, list[str]]
    stage: FitStage
    target_behaviour: Behaviour
    validation: ValidationReport
    mass_points: dict[str, list[dict[str, Any]]]
    label_grid: dict[str, Any]
    beside: dict[str, BesideReport] = field(default_factory=dict)

    @property
    def notes(self) -> tuple[str, ...]:
        """What makes this a result without ground."""
        target = self.target_behaviour
        more = () if target.does_task else (f"target: accuracy {target.accuracy} is not above chance",)
        return (*self.stage.notes, *more)

    def summary(self) -> str:
        """The result on one screen."""
        stage, validation = self.stage, self.validation
        lines = [
            f"model    {self.model.get('name')}: {self.model.get('note') or self.model.get('architecture')}, "
            f"{self.model.get('dtype')}",
            f"fit      {_line(self.fit_distribution)}",
            f"         {stage.behaviour.summary()}",
            f"target   {_line(self.target_distribution)}",
            f"         {self.target_behaviour.summary()}",
            f"         in both: {' and '.join(_listed(self.shared[what], what) for what in ('classes', 'labels'))}",
            "",
            stage.readers.summary(6),
            "",
            *([] if stage.match is None else [stage.match.summary(), ""]),
            f"constants of {counted(len(stage.choice.heads), 'chosen head')} (number and link {stage.choice.link}: "
            f"{stage.choice.rule}):",
        ]
        for head, row in stage.readout.constants_.items():
            r2 = validation.attention.get(head, {}).get("r2")
            told = f"held-out label-mass R^2 {r2.summary(2)}" if r2 else stage.readout.status_[head]
            lines.append(f"  {head:<8} base {row['base'].summary(2)}   match {row['match'].summary(2)}   {told}")
        lines += ["", validation.summary()]
        lines += [one.line(name) for name, one in self.beside.items()]
        lines += [f"WITHOUT GROUND: {note}" for note in self.notes]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON; the keys are documented in the README."""
        fit = self.stage.to_dict()
        return {
            "format": FORMAT,
            "model": self.model,
            "fit_distribution": self.fit_distribution.to_dict(),
            "target_distribution": self.target_distribution.to_dict(),
            "shared": self.shared,
            "has_ground": not self.notes,
            "notes": list(self.notes),
            "behaviour": fit["behaviour"],
            "target_behaviour": self.target_behaviour.to_dict(),
            "readers": list(self.stage.readers.readers),
            "heads": list(self.stage.choice.heads),
            "link": self.stage.choice.link,
            "match": fit["match"],
            "constants": {
                head: {term: estimate.to_dict() for term, estimate in row.items()}
                for head, row in self.stage.readout.constants_.items()
            },
            "validation": self.validation.to_dict(),
            "mass_points": self.mass_points,
            "label_grid": self.label_grid,
            "beside": {name: one.to_dict() for name, one in self.beside.items()},
            "stage": fit,
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> RunReport:
        """Read what `to_dict` wrote."""
        if data.get("format") != FORMAT:
            raise FitError(f"report: expected format {FORMAT!r}, got {data.get('format')!r}")
        return cls(
            data["model"],
            PromptDistribution.from_dict(data["fit_distribution"]),
            PromptDistribution.from_dict(data["target_distribution"]),
            data["shared"],
            FitStage.from_dict(data["stage"]),
            Behaviour.from_dict(data["target_behaviour"]),
            ValidationReport.from_dict(data["validation"]),
            data["mass_points"],
            data["label_grid"],
            {name: BesideReport.from_dict(one) for name, one in data.get("beside", {}).items()},
        )

    def save(self, path: str | Path) -> None:
        """Write the report as JSON."""
        write_json(path, self.to_dict())

    @classmethod
    def load(cls, path: str | Path) -> RunReport:
        """Read what `save` wrote."""
        try:
            return cls.from_dict(json.loads(Path(path).read_text()))
        except (OSError, json.JSONDecodeError) as error:
            raise FitError(f"report {path}: cannot be read as JSON ({error}); give one of readout run") from error


def _line(one: PromptDistribution) -> str:
    shots = "/".join(",".join(map(str, counts)) for counts in one.count_lists())
    return (
        f"{one.task}, shots {shots}, labels {one.labels}:{one.label_half}, {one.size} contexts x {one.queries} queries"
    )


def _listed(names: list[str], what: str) -> str:
    if not names:
        return f"no {what}"
    return f"{len(names)} {what} ({', '.join(names[:4])}{', ...' if len(names) > 4 else ''})"
