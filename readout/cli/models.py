"""readout models: which models there are, the self-test of one, and what a lower precision does to it."""

from __future__ import annotations

import json
from dataclasses import replace

import click


@click.command("models")
@click.option("--check", "checked", default=None, help="load this model and print its self-test")
@click.option("--precision", "measured", default=None, help="how far bfloat16 and float16 move what is read of it")
@click.option("--dtype", default="float32", show_default=True, help="of --check: float32, bfloat16, float16")
@click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda, mps")
@click.option(
    "--contexts", type=click.IntRange(1), default=16, show_default=True, help="of --precision, on the default task"
)
@click.option("--json", "as_json", is_flag=True, help="of --precision: print JSON and nothing else")
def command(checked: str | None, measured: str | None, dtype: str, device: str, contexts: int, as_json: bool) -> None:
    """List the models that need no download, test whether a model can be read, or measure its precisions.

    \b
    readout models
    readout models --check Qwen/Qwen3-0.6B
    readout models --precision smollm2-135m
    """
    from readout.models.sources import PACKAGED, known_names

    if checked is None and measured is None:
        for name in known_names():
            click.echo(f"{name:<16} {PACKAGED[name].note if name in PACKAGED else 'built in'}")
        click.echo("or a hub id, a local folder, a .gguf file; readout models --check NAME tests one")
        return
    from readout.models.load import quiet_transformers

    quiet_transformers()
    if checked is not None:
        from readout.models import check, load_model

        model = load_model(checked, dtype, device, self_test=False)
        click.echo(check(model).summary())
        if model.wiring.without_attention:
            attending = ", ".join(str(part.layer) for part in model.wiring.attentions)
            click.echo(f"a hybrid: heads are read in the layers that attend ({attending}) and in no other")
    if measured is not None:
        from readout.pipeline import default_pair, default_task
        from readout.records.precision import measure_precision

        distribution = replace(default_pair(default_task(measured))[0], size=contexts)
        report = measure_precision(measured, distribution, device=device)
        click.echo(json.dumps(report.to_dict(), allow_nan=False) if as_json else report.summary())
