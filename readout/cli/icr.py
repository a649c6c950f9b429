"""readout icr: in-context routing and its controls."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from readout.cli.options import load, model_options, names, whole_numbers


def _study_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Options that all four share: model, folder, data sets, sizes, seeds."""
    whole = click.IntRange(1)
    added = [
        click.option("--out", type=click.Path(path_type=Path), required=True, help="folder to write"),
        click.option("--in-domain", default=None, help="data sets to train on, separated by commas"),
        click.option("--out-of-domain", default=None, help="further data sets to test on"),
        click.option("--data", default=None, help="folder of data sets that do not come with StaICC"),
        click.option("--encoder", default=None, help="minilm, own, random, or the folder of a sentence encoder"),
        click.option("--train", type=whole, default=None, help="training queries of each set"),
        click.option("--test", type=whole, default=None, help="test queries of each set"),
        click.option("--prompts", type=whole, default=None, help="few-shot prompts of each set, for the directions"),
        click.option("--max-words", type=click.IntRange(0), default=None, help="cut texts to this many words"),
        click.option("--rank", type=whole, default=None, help="pairs of directions"),
        click.option("--layers", type=click.Choice(["early", "middle", "late", "all"]), default=None),
        click.option("--epochs", type=whole, default=None, help="passes over the training queries"),
        click.option("--learning-rate", type=float, default=None),
        click.option("--seeds", default=None, help="seeds, separated by commas  [default: 0,1,2; ablate: 0]"),
        click.option("--json", "as_json", is_flag=True, help="print the result as JSON and nothing else"),
    ]
    for option in reversed(added):
        command = option(command)
    return model_options(command)


@click.group("icr")
def command() -> None:
    """In-context routing: a bias on attention logits out of few-shot directions, put on by a trained router.

    The four commands share one folder: what one has made, the others find.

    \b
    readout icr directions --model tiny --out runs/icr
    readout icr train      --model tiny --out runs/icr --seeds 0
    readout icr evaluate   --model tiny --out runs/icr
    readout icr ablate     --model tiny --out runs/icr --controls "icr;residual stream"
    """


@command.command("directions")
@_study_options
def directions(out: Path, as_json: bool, **options: Any) -> None:
    """Extract directions of few-shot prompts and measure them.

    Writes directions.json: the energy held, the share between domains, and how far two halves of the prompts agree.
    """
    from readout.icr.run import find_directions

    study, variant, seeds = _study(out, as_json, options)
    report = find_directions(study, variant.rank, seeds[0])
    click.echo(json.dumps(report.to_dict()) if as_json else f"\n{report.summary()}\n\nwritten to {out}")


@command.command("train")
@_study_options
def train(out: Path, as_json: bool, **options: Any) -> None:
    """Train a router for each seed; a stopped run goes on where it stopped."""
    from readout.icr.run import train_router

    study, variant, seeds = _study(out, as_json, options)
    for seed in seeds:
        method = train_router(study, variant, seed)
        assert method.training is not None
        told = method.training
        click.echo(json.dumps(told.to_dict()) if as_json else f"\nseed {seed}: {told.summary()}")


@command.command("evaluate")
@_study_options
@click.option("--methods", default=None, help="methods, separated by semicolons; all references by default")
@click.option("--latency", default="", help="numbers of tokens at which a pass is timed, such as 64,512,2048")
def evaluate(out: Path, as_json: bool, methods: str | None, latency: str, **options: Any) -> None:
    """Accuracy of in-context routing beside zero-shot, few-shot, label bias, the encoder alone, and its controls.

    Writes icr.json, icr.txt and figures.
    """
    from readout.icr.run import EVALUATED
    from readout.icr.run import evaluate as run

    study, variant, seeds = _study(out, as_json, options)
    chosen = _list(methods) or EVALUATED
    _finish(run(study, variant, chosen, seeds, whole_numbers(latency, "latency")), out, "icr", as_json)


@command.command("ablate")
@_study_options
@click.option("--controls", default=None, help="controls, separated by semicolons  [default: all]")
def ablate(out: Path, as_json: bool, controls: str | None, **options: Any) -> None:
    """Every control of in-context routing, trained in the same way.

    Writes ablations.json, ablations.txt and figures.
    """
    from readout.icr.registry import CONTROLS
    from readout.icr.run import ablate as run

    study, variant, seeds = _study(out, as_json, options, "0")
    _finish(run(study, variant, _list(controls) or tuple(CONTROLS), seeds), out, "ablations", as_json)


def _list(text: str | None) -> tuple[str, ...]:
    # names hold commas ("icr, random basis"), so lists of them are separated by semicolons
    return tuple(part.strip() for part in (text or "").split(";") if part.strip())


def _study(out: Path, quiet: bool, options: dict[str, Any], default_seeds: str = "0,1,2") -> Any:
    """The study, the way to route, and the seeds that the options ask for."""
    from dataclasses import replace

    from readout.errors import ReadoutError
    from readout.files import writable_folder
    from readout.icr.run import default_variant, with_settings
    from readout.icr.study import Study, default_settings

    writable_folder(out)
    sizes = ("data", "encoder", "train", "test", "prompts", "max_words", "layers")
    given = {name: options[name] for name in sizes if options[name] is not None}
    given |= {name: names(options[name]) for name in ("in_domain", "out_of_domain") if options[name] is not None}
    seeds = whole_numbers(options["seeds"] or default_seeds, "seeds")
    if not seeds or min(seeds) < 0:
        raise ReadoutError("seeds: expected whole numbers that are not negative, such as 0,1,2")
    variant = with_settings(
        default_variant(options["model"]), epochs=options["epochs"], learning_rate=options["learning_rate"]
    )
    variant = replace(variant, rank=options["rank"] or variant.rank, layers=options["layers"] or variant.layers)
    settings = replace(default_settings(options["model"]), **given)
    # Test queries must share no text with any seed's training queries, so the study knows all that may be asked for.
    every = tuple(sorted({0, 1, 2, *seeds}))
    return Study(load(options), settings, out, every, progress=not quiet), variant, seeds


def _finish(result: dict[str, Any], out: Path, name: str, as_json: bool) -> None:
    from readout.figures import save
    from readout.figures.icr import FIGURES
    from readout.icr.run import write_result

    table = write_result(result, out, name)
    for figure_name, draw in FIGURES.items():
        figure = draw(result)
        if figure is not None:
            save(figure, out / "figures" / f"{name}-{figure_name}")
    click.echo(json.dumps(result, allow_nan=False) if as_json else f"\n{table}\n\nwritten to {out}")
