"""The main job: extract, fit, predict another distribution, report. Resumes where it was stopped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import xarray as xr

from readout.errors import FitError, RecordError
from readout.files import writable_folder
from readout.fitting import FEWEST_CONTEXTS, Observations, label_mass
from readout.pipeline.defaults import drawn_again
from readout.pipeline.fit_stage import FitStage, fit_stage
from readout.pipeline.report import BesideReport, RunReport
from readout.prompts import PromptDistribution
from readout.records import provenance
from readout.records.schema import Identity
from readout.validation import measure_behaviour, validate
from readout.validation.cells import label_grid, mass_points
from readout.validation.choose_match import MatchMode
from readout.wording import counted

if TYPE_CHECKING:
    from readout.models import LanguageModel


def run(
    model: LanguageModel,
    fit: PromptDistribution,
    target: PromptDistribution,
    out: str | Path,
    *,
    replicate: bool = True,
    beside: Mapping[str, PromptDistribution] | None = None,
    match: MatchMode = "auto",
    seed: int = 0,
    progress: bool = False,
) -> RunReport:
    """Run the main job and write its folder.

    Parameters
    ----------
    model
        A loaded model.
    fit, target
        What the readout is fitted to, and what it must predict.
    out
        Folder for ``fit/record.zarr``, ``target/record.zarr``, ``replicate/record.zarr``, ``fit.json``,
        ``report.json`` and ``figures/``. Records that are there already are used, unfinished ones finished.
    replicate
        Draw the target a second time with another seed, for the noise floor.
    beside
        Further targets by name, predicted by the same frozen readout; recorded in ``NAME/record.zarr``.
    match
        "binary", "graded" or "auto" (`readout.validation.choose_match`); unless binary, the records keep the residual
        stream of the middle layers.
    seed
        Of halves, permutations, folds and bootstrap.
    progress
        Show a bar for each extraction.

    Returns
    -------
    RunReport
    """
    from readout.records.extraction import extract
    from readout.records.options import ExtractionOptions, middle_layers

    if fit.size < FEWEST_CONTEXTS:
        raise FitError(
            f"the fit distribution has {counted(fit.size, 'context')}, readers need at least {FEWEST_CONTEXTS}: "
            "ask for a larger size"
        )
    out = writable_folder(out)
    wanted = {"fit": fit, "target": target}
    if replicate:
        wanted["replicate"] = drawn_again(target)
    wanted |= beside or {}
    layers = () if match == "binary" else middle_layers(len(model.wiring.attentions))
    options = ExtractionOptions(residual_layers=layers)
    records = {}
    for name, distribution in wanted.items():
        if progress:
            print(f"{name}: {distribution.size * distribution.queries} prompts")
        records[name] = extract(model, distribution, out / name / "record.zarr", options, progress=progress)
    stage = fit_stage(records["fit"], match=match, seed=seed)
    stage.save(out / "fit.json")
    more = {name: records[name] for name in beside or {}}
    report = report_on(stage, records["fit"], records["target"], records.get("replicate"), more, seed=seed)
    report.save(out / "report.json")
    return report


def report_on(
    stage: FitStage,
    fit: xr.Dataset,
    target: xr.Dataset,
    replicate: xr.Dataset | None = None,
    beside: Mapping[str, xr.Dataset] | None = None,
    *,
    seed: int = 0,
) -> RunReport:
    """Score a frozen readout on a target record.

    Parameters
    ----------
    stage
        What `fit_stage` made of ``fit``.
    fit, target, replicate
        Records; ``replicate`` is the target drawn again, or None.
    beside
        Records of further targets, by name.
    seed
        Of the bootstrap and of the controls' draws.

    Returns
    -------
    RunReport
    """
    _check_records(stage, fit, target, replicate, beside or {})
    seen, held_out = _observed(stage, fit), _observed(stage, target)
    again = None if replicate is None else _observed(stage, replicate)
    validation = validate(stage.readout, seen, held_out, replicate=again, seed=seed)
    heads = stage.readout.usable_heads_
    own = held_out.select_heads(heads)
    observed = label_mass(own.attention, own.label, own.label_mask.shape[1])
    predicted = stage.readout.predict_mass(held_out)
    points = {
        head: [
            point.to_dict()
            for point in mass_points(observed[:, place], predicted[:, place], own.label_mask, own.context)
        ]
        for place, head in enumerate(heads)
    }
    made = provenance(target)
    return RunReport(
        made["model"] | {"versions": made["versions"]},
        PromptDistribution.from_json(fit.attrs["distribution"]),
        PromptDistribution.from_json(target.attrs["distribution"]),
        {"classes": _both("class_names", fit, target), "labels": _both("label_words", fit, target)},
        stage,
        measure_behaviour(held_out),
        validation,
        points,
        label_grid(held_out.label_probability, stage.readout.predict_proba(held_out), held_out.label_mask),
        {name: _beside(stage, seen, record, seed) for name, record in (beside or {}).items()},
    )


def _check_records(
    stage: FitStage,
    fit: xr.Dataset,
    target: xr.Dataset,
    replicate: xr.Dataset | None,
    beside: Mapping[str, xr.Dataset],
) -> None:
    """Refuse records of which the report would say something false."""
    own = Identity.of(fit)
    if own != stage.fitted_to:
        raise RecordError("the readout was fitted to another record than the one given: give that record")
    others = {"target": target} | ({} if replicate is None else {"replicate": replicate}) | dict(beside)
    for name, record in others.items():
        found = Identity.of(record)
        if found.model != own.model:
            raise RecordError(
                f"{name}: its record is of another model ({found.model}) than the fit's ({own.model}); extract it with "
                "the fit's model"
            )
        if found.prompts == own.prompts:
            raise RecordError(f"{name}: its prompts are those of the fit, so nothing would be held out; give others")
    if replicate is not None:
        first, again = (PromptDistribution.from_json(one.attrs["distribution"]) for one in (target, replicate))
        if first.seed == again.seed or replace(again, seed=first.seed) != first:
            raise RecordError("replicate: expected the target's specification with another seed, got another one")


def _beside(stage: FitStage, seen: Observations, record: xr.Dataset, seed: int) -> BesideReport:
    target = _observed(stage, record)
    return BesideReport(
        PromptDistribution.from_json(record.attrs["distribution"]),
        measure_behaviour(target),
        validate(stage.readout, seen, target, seed=seed),
    )


def _observed(stage: FitStage, record: xr.Dataset) -> Observations:
    """A record's observations with the match that the readout was fitted with."""
    return stage.readout.observations(record, fitted_to=True)


def _both(name: str, one: xr.Dataset, other: xr.Dataset) -> list[str]:
    return sorted(set(one.attrs[name]) & set(other.attrs[name]))
