"""readout circuit: test the claims of the circuit on a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from readout.cli.options import distribution_from, distribution_options, load, model_options, whole_numbers


@click.command("circuit")
@model_options
@click.option("--out", type=click.Path(path_type=Path), required=True, help="folder to write")
@click.option(
    "--claims", default="1,2,3,4,5,6,7,8", show_default=True, help="test these; those that they need are added"
)
@click.option(
    "--contexts",
    type=click.IntRange(1),
    default=None,
    help="contexts, half to choose and half to test; claim 8 draws its own  [default: 32]",
)
@click.option("--draws", type=click.IntRange(1), default=100, show_default=True, help="random draws of the controls")
@click.option("--permuted", is_flag=True, help="give demonstrations labels at random: the null")
@click.option(
    "--main-job", type=click.Path(path_type=Path), default=None, help="folder of a finished readout run, for claim 8"
)
@click.option("--strict", is_flag=True, help="exit with code 3 if the model does not do the task")
@click.option("--json", "as_json", is_flag=True, help="print circuit.json and nothing else")
@distribution_options()
@click.pass_context
def command(
    context: click.Context,
    /,
    out: Path,
    claims: str,
    contexts: int | None,
    draws: int,
    permuted: bool,
    main_job: Path | None,
    strict: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Test the claims about the circuit: readers, writers, gate, suppressors, steering, sufficiency, transfer.

    Writes each claim as it is finished, circuit.json and figures. Stopped runs go on where they stopped. --seed is of
    the prompts and of every draw.

    \b
    readout circuit --model tiny --out runs/circuit-tiny
    readout circuit --model smollm2-135m --claims 3,4 --out runs/circuit
    """
    from readout.circuit.run import claims_with_needs, run_circuit
    from readout.circuit.setting import DEFAULT_CONTEXTS, default_distribution, make_setting
    from readout.cli import NO_GROUND
    from readout.figures import save
    from readout.figures.circuit import FIGURES
    from readout.files import writable_folder
    from readout.pipeline import RunReport, default_task

    wanted = claims_with_needs(whole_numbers(claims, "claims", "3,4"))
    task = distribution_from(options).task if options["task"] or options["spec"] else default_task(options["model"])
    distribution = distribution_from(options, base=default_distribution(task))
    # Bad input is found before the model is loaded.
    distribution.load()
    if main_job is not None:
        RunReport.load(main_job / "report.json")
    writable_folder(out)
    setting = make_setting(
        load(options), distribution, contexts or options["size"] or DEFAULT_CONTEXTS, draws, distribution.seed, permuted
    )
    report = run_circuit(setting, out, wanted, main_job=main_job, progress=not as_json)
    plain = report.to_dict()
    for name, draw in FIGURES.items():
        figure = draw(plain)
        if figure is not None:
            save(figure, out / "figures" / name)
    click.echo(json.dumps(plain, allow_nan=False) if as_json else f"\n{report.summary()}\n\nwritten to {out}")
    if strict and not report.has_ground:
        context.exit(NO_GROUND)
