"""readout validate: score a frozen readout on the record of another distribution."""

from __future__ import annotations

import json
from pathlib import Path

import click


@click.command("validate")
@click.argument("fit", type=click.Path(path_type=Path))
@click.option("--record", type=click.Path(), required=True, help="the record that FIT was fitted to")
@click.option("--target", type=click.Path(), required=True, help="the held-out record")
@click.option("--replicate", type=click.Path(), default=None, help="the target drawn again")
@click.option("--out", type=click.Path(path_type=Path), default=None, help="write report.json and figures here")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="seed of bootstrap and controls")
@click.option("--json", "as_json", is_flag=True, help="print the report as JSON and nothing else")
def command(
    fit: Path, record: str, target: str, replicate: str | None, out: Path | None, seed: int, as_json: bool
) -> None:
    """Predict the target record with FIT, a file written by readout fit; nothing is fitted to the target.
    Records are folders or URLs.

    \b
    readout validate runs/words-fit.json --record runs/words.zarr --target runs/other.zarr
    """
    from readout.files import writable_folder
    from readout.pipeline import FitStage, report_on
    from readout.records import open_record

    if out is not None:
        writable_folder(out)
    stage = FitStage.load(fit)
    again = None if replicate is None else open_record(replicate)
    report = report_on(stage, open_record(record), open_record(target), again, seed=seed)
    if out is not None:
        from readout.figures import FIGURES, save

        report.save(out / "report.json")
        for name, draw in FIGURES.items():
            save(draw(report.to_dict()), out / "figures" / name)
    click.echo(json.dumps(report.to_dict(), allow_nan=False) if as_json else report.summary())
