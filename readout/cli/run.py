"""readout run: the main job, end to end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from readout.cli.options import distribution_from, distribution_options, load, model_options


@click.command("run")
@model_options
@click.option(
    "--out", type=click.Path(path_type=Path), default=None, help="folder to write  [default: runs/MODEL-TASK]"
)
@distribution_options("", "fit")
@distribution_options("target-", "target")
@click.option(
    "--match",
    type=click.Choice(["auto", "graded", "binary"]),
    default="auto",
    show_default=True,
    help="same class or not, or a graded similarity; auto lets cross-validation on the fit prompts decide",
)
@click.option("--no-replicate", is_flag=True, help="do not draw the target again for the noise floor")
@click.option(
    "--run-seed",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="seed of halves, permutations, folds and bootstrap",
)
@click.option("--strict", is_flag=True, help="exit with code 3 if the fit has no ground: task not done, or no reader")
@click.option("--json", "as_json", is_flag=True, help="print report.json and nothing else")
@click.pass_context
def command(
    context: click.Context,
    /,
    out: Path | None,
    match: Any,
    no_replicate: bool,
    run_seed: int,
    strict: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Fit the readout on one prompt distribution and predict another.

    Writes a record of each distribution, fit.json, report.json and figures. Stopped runs go on where they stopped.
    Without options the fit is on word concepts and the target has more classes, unbalanced counts, other concepts and
    other labels.

    \b
    readout run --model smollm2-135m --out runs/words
    readout run --task trec --out runs/trec
    readout run --task reviews.csv --label-column stars --target-shots 2,6 --out runs/reviews
    """
    from readout.cli import NO_GROUND
    from readout.figures import FIGURES, save
    from readout.files import writable_folder
    from readout.pipeline import default_beside, default_pair, default_task, run, target_for

    if options["task"] is None and options["spec"] is None:
        options["task"] = default_task(options["model"])
    task = distribution_from(options).task
    fit = distribution_from(options, base=default_pair(task)[0])
    target = distribution_from(options, "target-", base=target_for(fit))
    for distribution in (fit, target):
        distribution.load()  # bad input is found before the model is loaded
    folder = out or Path("runs") / f"{Path(options['model']).name}-{Path(task).stem}"
    writable_folder(folder)
    report = run(
        load(options),
        fit,
        target,
        folder,
        replicate=not no_replicate,
        beside=default_beside(target),
        match=match,
        seed=run_seed,
        progress=not as_json,
    )
    plain = report.to_dict()
    for name, draw in FIGURES.items():
        save(draw(plain), folder / "figures" / name)
    click.echo(json.dumps(plain, allow_nan=False) if as_json else f"\n{report.summary()}\n\nwritten to {folder}")
    if strict and report.notes:
        context.exit(NO_GROUND)
