"""First half of the main job: from the fit record to a frozen readout. The target plays no part here."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import xarray as xr

from readout.errors import FitError
from readout.files import write_json
from readout.fitting import Observations, SoftmaxReadout
from readout.fitting.readers import ReaderTable, choose_readers
from readout.matching import Binary
from readout.records.schema import Identity
from readout.validation import Behaviour, Choice, MatchChoice, choose, choose_match, measure_behaviour
from readout.validation.choose import fold_of
from readout.validation.choose_match import MatchMode, fold_matches

FORMAT = "readout.stage/1"
STAND_INS = 3


@dataclass(frozen=True)
class FitStage:
    """What the fit distribution taught: behaviour, readers, the choice of heads and link, and the fitted readout.

    Attributes
    ----------
    behaviour : accuracy against chance, mass on the labels
    readers : every head with its kind, chosen on one half of the contexts and reported on the other
    choice : number of heads and link, by cross-validation on the fit distribution
    readout : fitted to the whole fit distribution, with bootstrap intervals beside the sandwich's
    notes : what makes the fit one without ground, if anything
    fitted_to : the record, by model and prompts
    match : binary or graded match, by cross-validation on the fit distribution; None in files of before there was one
    """

    behaviour: Behaviour
    readers: ReaderTable
    choice: Choice
    readout: SoftmaxReadout
    notes: tuple[str, ...]
    fitted_to: Identity
    match: MatchChoice | None = None

    @property
    def has_ground(self) -> bool:
        """Whether the model does the task and has readers."""
        return not self.notes

    def summary(self, rows: int = 10) -> str:
        """Behaviour, readers and constants."""
        parts = [self.behaviour.summary(), self.readers.summary(rows)]
        parts += [self.readout.summary() if self.match is None else f"{self.match.summary()}\n{self.readout.summary()}"]
        return "\n".join(parts + [f"WITHOUT GROUND: {note}" for note in self.notes])

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {
            "format": FORMAT,
            "behaviour": self.behaviour.to_dict(),
            "readers": self.readers.to_dict(),
            "choice": self.choice.to_dict(),
            "fit": self.readout.to_dict(),
            "notes": list(self.notes),
            "fitted_to": asdict(self.fitted_to),
            "match": None if self.match is None else self.match.to_dict(),
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> FitStage:
        """Read what `to_dict` wrote."""
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            raise FitError(f"not a file that readout fit or readout run wrote as fit.json (no format {FORMAT!r})")
        return cls(
            Behaviour.from_dict(data["behaviour"]),
            ReaderTable.from_dict(data["readers"]),
            Choice.from_dict(data["choice"]),
            SoftmaxReadout.from_dict(data["fit"]),
            tuple(data["notes"]),
            Identity(**data["fitted_to"]),
            None if data.get("match") is None else MatchChoice.from_dict(data["match"]),
        )

    def save(self, path: str | Path) -> None:
        """Write the stage as JSON."""
        write_json(path, self.to_dict())

    @classmethod
    def load(cls, path: str | Path) -> FitStage:
        """Read what `save` wrote."""
        try:
            return cls.from_dict(json.loads(Path(path).read_text()))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise FitError(f"{path} cannot be read as a fit: {error}") from error


def fit_stage(
    record: xr.Dataset,
    *,
    links: tuple[str, ...] | None = None,
    match: MatchMode = "auto",
    bootstrap: int = 1000,
    seed: int = 0,
) -> FitStage:
    """Measure behaviour, choose readers, choose the match, then heads and link, and fit.

    Parameters
    ----------
    record
        Of the fit distribution, all heads of the model.
    links
        Links to choose among; None tries all.
    match
        "binary", "graded", or "auto": graded where cross-validation says so and the record keeps residual streams.
    bootstrap
        Cluster-bootstrap draws for the constants.
    seed
        Of halves, permutations, folds and bootstrap.

    Returns
    -------
    FitStage
    """
    fit = Observations.from_record(record)
    behaviour = measure_behaviour(fit)
    readers = choose_readers(fit, seed=seed)
    notes = []
    if not behaviour.does_task:
        notes.append(f"accuracy {behaviour.accuracy} is not above chance ({behaviour.chance:.3f})")
    candidates = readers.readers
    if not candidates:
        candidates = _widest_gaps(readers)
        notes.append("no head is a reader; heads of the widest attention gap stand in")
    matched = choose_match(record, fit, candidates, match, folds="counts", seed=seed)
    options: dict[str, Any] = {} if links is None else {"links": links}
    if isinstance(matched.similarity, Binary):
        similarity = None
    else:
        similarity = matched.similarity
        fold, _, _ = fold_of(fit, "counts", seed)
        options["matches"] = fold_matches(similarity, record, fold)
    choice = choose(fit, candidates, folds="counts", seed=seed, **options)
    readout = SoftmaxReadout(link=choice.link, heads=choice.heads, match=similarity, bootstrap=bootstrap, seed=seed)
    readout.fit(readout.observations(record, fitted_to=True))
    return FitStage(behaviour, readers, choice, readout, tuple(notes), Identity.of(record), matched)


def _widest_gaps(readers: ReaderTable) -> tuple[str, ...]:
    measured = [row for row in readers.rows if row.selected_gap == row.selected_gap]
    return tuple(row.head for row in sorted(measured, key=lambda row: -row.selected_gap)[:STAND_INS])
