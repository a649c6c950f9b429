"""readout prompts: show prompts as the model sees them."""

from __future__ import annotations

from typing import Any

import click

from readout.cli.options import distribution_from, distribution_options


@click.command("prompts")
@distribution_options()
@click.option("--model", default=None, help="mark the tokens of this model's tokenizer")
@click.option("--show", "shown", type=click.IntRange(1), default=2, show_default=True, help="number of prompts to show")
@click.option("--json", "as_json", is_flag=True, help="print the specification as JSON and nothing else")
def command(model: str | None, shown: int, as_json: bool, **options: Any) -> None:
    """Show some prompts of a distribution, label tokens marked.

    \b
    readout prompts --task words --classes 3 --shots 2
    readout prompts --task trec --model smollm2-135m --show 1
    """
    from readout.prompts import show

    distribution = distribution_from(options)
    if as_json:
        click.echo(distribution.to_json())
        return
    tokenizer = None
    if model is not None:
        from readout.models.load import load_tokenizer

        tokenizer = load_tokenizer(model)
    shown_prompts = show(distribution.prompts()[:shown], tokenizer, distribution.label_pieces)
    click.echo(f"{distribution.summary()}\n\n{shown_prompts}")
