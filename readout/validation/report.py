"""The result of a validation, as one frozen object with its JSON form."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from readout.files import write_json
from readout.statistics import Estimate
from readout.statistics.checks import check_format, fields_of, load_json, reading
from readout.validation.calibration import Calibration
from readout.wording import counted

Table = dict[str, dict[str, Estimate]]
FORMAT = "readout.validation/1"
_TABLES = ("links", "baselines", "controls", "ceiling", "attention")
_ROWS = ("differences", "noise_floor")


@dataclass(frozen=True)
class ValidationReport:
    """Errors on a held-out target, always next to baselines, controls and the ceiling.

    Parameters
    ----------
    chosen_link, heads
        What was frozen before the target was scored.
    links, baselines, controls, ceiling
        name -> metric -> Estimate; metrics are kl, tv, mae, brier, agreement. Controls ("random_heads",
        "permuted_match") carry the range over draws as their interval. The ceiling is the target's observed attention
        through the same link. It is no bound: where observed attention on a label is nearly 0, a few prompts
        dominate KL (the share link above all), and the readout, which is smoother, may do better.
    skill
        1 - KL / KL of label frequency, for the chosen link.
    ceiling_share
        Share of the ceiling's skill that is reached; it means nothing where the observed attention does not beat label
        frequency, and `notes` says so.
    differences
        KL of the chosen link minus that of each other prediction, paired.
    attention
        head or "pooled" -> r2, mae, bias of label masses.
    calibration
        Of the chosen link.
    noise_floor
        Metric on the target minus metric on the same target drawn again, of either sign; None without a second draw.
    constants
        Link constants and baseline constants, by name.
    n_prompts, n_contexts
        Size of the target.
    notes
        What a reader must know (a control that could not be made, a degenerate head).
    """

    chosen_link: str
    heads: tuple[str, ...]
    links: Table
    baselines: Table
    controls: Table
    ceiling: Table
    skill: Estimate
    ceiling_share: Estimate
    differences: dict[str, Estimate]
    attention: Table
    calibration: Calibration
    noise_floor: dict[str, Estimate] | None
    constants: dict[str, list[float]]
    n_prompts: int
    n_contexts: int
    notes: tuple[str, ...] = ()

    def summary(self) -> str:
        """The comparison on one screen."""
        kinds = (
            ("baseline", self.baselines),
            ("control", self.controls),
            ("link", self.links),
            ("observed attention (ceiling),", self.ceiling),
        )
        width = max(len(f"{kind} {name}") for kind, table in kinds for name in table)
        lines = [
            f"Held-out target: {counted(self.n_prompts, 'prompt')} in {counted(self.n_contexts, 'context')}; "
            f"{counted(len(self.heads), 'head')} "
            f"({', '.join(self.heads[:8])}), link {self.chosen_link}",
            f"  {'':<{width}} {'KL(model || prediction)':<24} {'total variation':<22} agreement",
        ]
        for kind, table in kinds:
            for name, row in table.items():
                mark = "*" if kind == "link" and name == self.chosen_link else " "
                lines.append(
                    f"{mark} {kind + ' ' + name:<{width}} {row['kl'].summary():<24} {row['tv'].summary():<22} "
                    f"{row['agreement'].summary(2)}" + (" range over draws" if kind == "control" else "")
                )
        lines.append("observed attention is no bound: where it is nearly 0 on a label, a few prompts dominate KL")
        lines.append(f"skill {self.skill}, share of the ceiling's skill {self.ceiling_share}")
        lines += [f"KL minus {name}: {e}" for name, e in self.differences.items()]
        r2 = ", ".join(f"{head} {row['r2'].summary(2)}" for head, row in list(self.attention.items())[:4])
        lines.append(f"label-mass R^2: {r2}")
        lines.append(self.calibration.summary())
        if self.noise_floor is not None:
            lines.append(f"noise floor: target drawn again, difference in KL: {self.noise_floor['kl']}")
        return "\n".join(lines + [f"note: {note}" for note in self.notes])

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        data: dict[str, Any] = {"format": FORMAT}
        for f in fields(self):
            value = getattr(self, f.name)
            if f.name in _TABLES:
                value = {name: _row(row) for name, row in value.items()}
            elif f.name in _ROWS:
                value = None if value is None else _row(value)
            elif isinstance(value, Estimate | Calibration):
                value = value.to_dict()
            elif isinstance(value, tuple):
                value = list(value)
            data[f.name] = value
        return data

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> ValidationReport:
        """Read what `to_dict` wrote.

        Raises
        ------
        FitError
            When it is not such a dictionary.
        """
        check_format(data, FORMAT, "validation report")
        fields_of(data, (f.name for f in fields(cls)), "validation report")
        values = {f.name: data[f.name] for f in fields(cls)}
        with reading("validation report"):
            for name in _TABLES:
                values[name] = {key: _estimates(row) for key, row in data[name].items()}
            for name in _ROWS:
                values[name] = None if data[name] is None else _estimates(data[name])
            for name in ("skill", "ceiling_share"):
                values[name] = Estimate.from_dict(data[name])
            values["calibration"] = Calibration.from_dict(data["calibration"])
            return cls(**{**values, "heads": tuple(data["heads"]), "notes": tuple(data["notes"])})

    def save(self, path: str | Path) -> None:
        """Write the report as JSON."""
        write_json(path, self.to_dict())

    @classmethod
    def load(cls, path: str | Path) -> ValidationReport:
        """Read what `save` wrote."""
        return cls.from_dict(load_json(path, "validation report"))


def _row(row: dict[str, Estimate]) -> dict[str, Any]:
    return {name: estimate.to_dict() for name, estimate in row.items()}


def _estimates(row: dict[str, Any]) -> dict[str, Estimate]:
    return {name: Estimate.from_dict(value) for name, value in row.items()}
