"""readout train: grow the small transformer from scratch."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("train")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="folder of the run")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="seed of weights and data")
@click.option("--preset", default="tiny", show_default=True, help="recipe by name")
@click.option("--json", "as_json", is_flag=True, help="print history.json and nothing else")
def command(out: Path, seed: int, preset: str, as_json: bool) -> None:
    """Train the small transformer from scratch and measure what grows in it.

    Writes model/ (to be used as --model OUT/model), checkpoints/ and history.json. A stopped run goes on where it
    stopped, with the same result.

    \b
    readout train --out runs/tiny3 --seed 3
    readout run --model runs/tiny3/model --task synthetic
    """
    from readout.training.run import train

    run = train(out, seed, preset, quiet=as_json)
    click.echo((out / "history.json").read_text() if as_json else f"\n{run.summary()}\n\nwritten to {out}")
