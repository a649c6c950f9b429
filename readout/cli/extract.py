"""readout extract: record what a model does on a prompt distribution."""

from __future__ import annotations

from typing import Any

import click

from readout.cli.options import distribution_from, distribution_options, load, model_options, whole_numbers


@click.command("extract")
@model_options
@distribution_options()
@click.option("--out", type=click.Path(), required=True, help="folder or URL (s3://, gs://) of the record (zarr)")
@click.option(
    "--residual-layers",
    default="",
    help="keep the residual stream entering these layers, e.g. 13,18, or middle: what a graded match is made of",
)
@click.option("--label-residuals", is_flag=True, help="keep it at the labels too")
@click.option("--blind", is_flag=True, help="keep it of a second pass too, in which nobody attends to labels")
@click.option("--quiet", is_flag=True, help="no progress bar")
def command(out: str, residual_layers: str, label_residuals: bool, blind: bool, quiet: bool, **options: Any) -> None:
    """Record attention, label probabilities and direct effects; run again to go on after a stop.

    \b
    readout extract --model smollm2-135m --task words --shots 8 --out runs/words.zarr
    """
    from readout.records import ExtractionOptions, extract, middle_layers
    from readout.records.places import writable_place

    distribution = distribution_from(options)
    layers = () if residual_layers == "middle" else whole_numbers(residual_layers, "residual-layers")
    writable_place(out)
    distribution.load()  # bad input is found before the model is loaded
    model = load(options)
    if residual_layers == "middle":
        layers = middle_layers(len(model.wiring.attentions))
    kept = ExtractionOptions(residual_layers=layers, label_residuals=label_residuals, blind=blind)
    record = extract(model, distribution, out, kept, progress=not quiet)
    sizes = record.sizes
    click.echo(
        f"{out}: {sizes['prompt']} prompts, {sizes['head']} heads, up to {sizes['demonstration']} demonstrations"
    )
