"""readout fit: from a record to a frozen readout."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click


@click.command("fit")
@click.argument("record", type=click.Path())
@click.option("--out", type=click.Path(path_type=Path), required=True, help="JSON file to write")
@click.option(
    "--link",
    "links",
    multiple=True,
    help="choose among these links only: share, power, gain, gain_per_head; several by commas, or --link several times",
)
@click.option(
    "--match",
    type=click.Choice(["auto", "graded", "binary"]),
    default="auto",
    show_default=True,
    help="same class or not, or a graded similarity of residual streams, if RECORD keeps them",
)
@click.option(
    "--seed",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="seed of halves, permutations, folds and bootstrap",
)
@click.option("--strict", is_flag=True, help="exit with code 3 if the fit has no ground: task not done, or no reader")
@click.option("--json", "as_json", is_flag=True, help="print the JSON and nothing else")
@click.pass_context
def command(
    context: click.Context,
    record: str,
    out: Path,
    links: tuple[str, ...],
    match: Any,
    seed: int,
    strict: bool,
    as_json: bool,
) -> None:
    """Measure behaviour, choose readers and link, and fit two constants a head to RECORD, a folder or a URL.

    \b
    readout fit runs/words.zarr --out runs/words-fit.json
    """
    from readout.cli import NO_GROUND
    from readout.cli.options import names
    from readout.files import writable_file
    from readout.pipeline import fit_stage
    from readout.records import open_record

    writable_file(out)
    only = tuple(dict.fromkeys(names(",".join(links))))
    stage = fit_stage(open_record(record), links=only or None, match=match, seed=seed)
    stage.save(out)
    click.echo(out.read_text() if as_json else f"{stage.summary()}\n\nwritten to {out}")
    if strict and not stage.has_ground:
        context.exit(NO_GROUND)
