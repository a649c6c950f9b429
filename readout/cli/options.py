"""Options that several commands share: a prompt distribution, given field by field or as a JSON specification."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

import click

from readout.errors import PromptError, ReadoutError
from readout.prompts import PromptDistribution

Command = TypeVar("Command", bound=Callable[..., Any])


def shots(text: str) -> Any:
    """Shots as the command line writes them: "4" (each class), "1,3,5" (per class), "8,8/4,12" (a mixture)."""
    try:
        lists = [tuple(int(count) for count in part.split(",")) for part in text.split("/")]
    except ValueError:
        raise PromptError(
            f"shots {text!r}: expected a count (4), counts per class (1,3,5), or several such lists (8,8/4,12)"
        ) from None
    if len(lists) > 1:
        return tuple(lists)
    return lists[0] if "," in text else lists[0][0]


def names(text: str) -> tuple[str, ...]:
    """Names separated by commas."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def whole_numbers(text: str, name: str, example: str = "13,18") -> tuple[int, ...]:
    """Whole numbers separated by commas."""
    try:
        return tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise ReadoutError(
            f"{name} {text!r}: expected whole numbers separated by commas: give numbers such as {example}"
        ) from None


_HELP = {
    "task": "words, trec, agnews, sst2, mr, ..., a .jsonl, .csv or .parquet file, or hf:NAME-OR-FOLDER",
    "classes": "classes in each prompt",
    "class_pool": "draw from these classes only, separated by commas",
    "class_half": "all, a or b: disjoint halves of the task's classes",
    "text_half": "all, a or b: disjoint halves of each class's texts",
    "shots": "demonstrations per class: 4, or 1,3,5, or a mixture 8,8/4,12",
    "labels": "words, letters, names, nonsense, own, swapped, or flipped",
    "label_half": "all, a or b: disjoint halves of the label pool",
    "order": "shuffled, grouped, or alternating",
    "template": "with {text} and {label}; \\n stands for a line break",
    "queries": "queries that share one context",
    "size": "number of contexts",
    "seed": "seed of the prompts",
    "label_pieces": "refuse labels of several tokens, or take the first",
    "max_words": "cut texts to this many words, 0 = never",
    "text_column": "column that holds the text",
    "label_column": "column that holds the class",
    "data_split": "split of a Hugging Face data set",
}
_PARSE: dict[str, Callable[[str], Any]] = {
    "shots": shots,
    "class_pool": names,
    "template": lambda text: text.replace("\\n", "\n"),
}


def distribution_options(prefix: str = "", what: str = "the prompts") -> Callable[[Command], Command]:
    """Add ``--{prefix}task``, ``--{prefix}classes``, ... and ``--{prefix}spec`` to a command."""

    def add(command: Command) -> Command:
        for field in reversed(fields(PromptDistribution)):
            flag = f"--{prefix}{field.name.replace('_', '-')}"
            kind = int if isinstance(field.default, int) and field.name not in _PARSE else str
            command = click.option(flag, type=kind, default=None, help=f"{what}: {_HELP.get(field.name, '')}")(command)
        return click.option(
            f"--{prefix}spec",
            type=click.Path(),
            default=None,
            help=f"{what}: a JSON specification; options override it",
        )(command)

    return add


def distribution_from(
    options: dict[str, Any], prefix: str = "", base: PromptDistribution | None = None
) -> PromptDistribution:
    """The distribution that a command's options ask for, starting from a specification file or from ``base``."""
    key = prefix.replace("-", "_")
    given: dict[str, Any] = {}
    for field in fields(PromptDistribution):
        value = options.get(f"{key}{field.name}")
        if value is not None:
            given[field.name] = _PARSE[field.name](value) if field.name in _PARSE else value
    start = {} if base is None else base.to_dict()
    spec = options.get(f"{key}spec")
    if spec is not None:
        path = Path(spec)
        if not path.is_file():
            told = "is a folder" if path.is_dir() else "does not exist"
            raise PromptError(f"specification {spec} {told}: give a JSON file with the fields of a distribution")
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise PromptError(f"specification {spec} is not UTF-8 text ({error.reason}): save it as UTF-8") from error
        start = PromptDistribution.from_json(text).to_dict()
    return PromptDistribution.from_dict(start | json.loads(json.dumps(given)))


def model_options(command: Command) -> Command:
    """Add --model, --dtype, --device and --revision to a command."""
    command = click.option("--revision", default=None, help="hub revision")(command)
    command = click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda, mps")(command)
    command = click.option("--dtype", default="float32", show_default=True, help="float32, bfloat16, float16")(command)
    return click.option(
        "--model", default="smollm2-135m", show_default=True, help="short name, hub id, folder or .gguf file"
    )(command)


def load(options: dict[str, Any]) -> Any:
    """Load the model that a command's options name."""
    from readout.models import load_model
    from readout.models.load import quiet_transformers

    quiet_transformers()
    return load_model(options["model"], options["dtype"], options["device"], options["revision"])
