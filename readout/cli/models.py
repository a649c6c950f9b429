"""readout models: which models there are, and the self-test of one."""

from __future__ import annotations

import click


@click.command("models")
@click.option("--check", "checked", default=None, help="load this model and print its self-test")
@click.option("--dtype", default="float32", show_default=True)
def command(checked: str | None, dtype: str) -> None:
    """List the models that need no download, or test whether a model can be read.

    \b
    readout models
    readout models --check Qwen/Qwen3-0.6B
    """
    from readout.models.sources import PACKAGED, known_names

    if checked is None:
        for name in known_names():
            click.echo(f"{name:<16} {PACKAGED[name].note if name in PACKAGED else 'built in'}")
        click.echo("or a hub id, a local folder, a .gguf file; readout models --check NAME tests one")
        return
    from readout.models import check, load_model

    click.echo(check(load_model(checked, dtype, self_test=False)).summary())
