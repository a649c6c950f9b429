"""The tasks of a transfer matrix by name, such as "trec+german": what is fitted, and what is held out."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from readout.errors import PromptError
from readout.models.sources import is_built_in
from readout.pipeline import default_pair
from readout.pipeline.defaults import MISLEADING
from readout.prompts import Demonstration, Prompt, PromptDistribution, tokenize
from readout.prompts.labels import OWN

Change = Callable[[PromptDistribution], PromptDistribution]

TEMPLATES = {
    "form": "Text: {text}\nLabel: {label}\n\n",
    "german": "Frage: {text}\nAntwort: {label}\n\n",
    "french": "Question : {text}\nRéponse : {label}\n\n",
    "spanish": "Pregunta: {text}\nRespuesta: {label}\n\n",
    "chinese": "问题：{text}\n答案： {label}\n\n",
}
"""Templates that differ from the tasks' own; their texts and labels stay English."""
DEFAULT_TASKS = (
    *("words", "words+own", "words+swapped", "words+flipped", "words+form", "words+german"),
    *("trec", "trec+own", "trec+swapped", "trec+flipped", "trec+form", "trec+german", "trec+french"),
    *("agnews", "agnews+own", "sst2", "sst2+own", "sst2+flipped"),
)
DEFAULT_SYNTHETIC = ("synthetic", "synthetic+counts", "synthetic+noisy", "synthetic+ambiguous")
FEW = 2


@dataclass(frozen=True)
class TransferTask:
    """One row and column of the matrix.

    Parameters
    ----------
    name
        As asked for.
    source
        What a readout is fitted to and heads are named on: the first halves of texts, classes and label pool, as far
        as the task is cut in halves.
    target
        What others predict: the second halves, other counts.
    """

    name: str
    source: PromptDistribution
    target: PromptDistribution

    @property
    def folder(self) -> str:
        """The name as part of a path."""
        return re.sub(r"[^A-Za-z0-9.+=-]+", "_", self.name)

    @property
    def has_meaning(self) -> bool:
        """Whether labels are the classes' own names."""
        return self.target.labels in OWN


def default_tasks(model: str) -> tuple[str, ...]:
    """The tasks of a model that is asked for no others: the built-in models know the synthetic words only."""
    return DEFAULT_SYNTHETIC if is_built_in(model) else DEFAULT_TASKS


def parse_tasks(
    names: Sequence[str], contexts: int, queries: int, seed: int = 0, **options: Any
) -> tuple[TransferTask, ...]:
    """Read names such as "words", "sst2+own", "trec+swapped+german" or "reviews.csv+own".

    Parameters
    ----------
    names
        A task as `PromptDistribution` takes it, and changes to it after a plus: "own", "swapped" or "flipped" labels;
        a template ("form", "german", "french", "spanish", "chinese"); "counts" (one class shown far more often than the
        others); "noisy" and "ambiguous" (synthetic only).
    contexts, queries
        Number of contexts in each of the two distributions, and of queries in each context.
    seed
        Added to the seeds of the prompts.
    options
        Further fields of every distribution, such as `label_column`; None leaves a field as it is.

    Returns
    -------
    tuple of TransferTask
        In the order asked for. Nothing of a task's source is in its target but classes that are too few to halve.

    Raises
    ------
    PromptError
        When a task or a change does not exist, a name repeats, or a task holds too little.
    """
    if not names:
        raise PromptError("no task was named: give some, such as --tasks words,trec,trec+own")
    given = {key: value for key, value in options.items() if value is not None}
    tasks = [_parsed(name, contexts, queries, seed, given) for name in names]
    folders = [task.folder for task in tasks]
    again = next((task.name for place, task in enumerate(tasks) if task.folder in folders[:place]), None)
    if again is not None:
        raise PromptError(f"the task {again!r} is named twice (or two names are alike on disk): name each once")
    return tuple(tasks)


def with_one_token_labels(task: TransferTask, tokenizer: Any) -> TransferTask:
    """The task with the classes whose own names are one token each, where its labels are these names.

    Raises
    ------
    PromptError
        When too few classes are left.
    """
    if not task.has_meaning:
        return task
    return replace(task, source=_one_token(task.source, tokenizer), target=_one_token(task.target, tokenizer))


def _parsed(name: str, contexts: int, queries: int, seed: int, options: dict[str, Any]) -> TransferTask:
    base, *changes = name.split("+")
    unknown = [change for change in changes if change not in CHANGES]
    if unknown:
        raise PromptError(f"the task {name!r} has the unknown change {unknown[0]!r}; known are {', '.join(CHANGES)}")
    pair = []
    for one in default_pair(base):
        distribution = replace(one, size=contexts, queries=queries, seed=one.seed + seed, **options)
        for change in changes:
            distribution = CHANGES[change](distribution)
        distribution.load()  # bad input is found before the model is loaded
        pair.append(distribution)
    return TransferTask(name, *pair)


def _one_token(distribution: PromptDistribution, tokenizer: Any) -> PromptDistribution:
    task = distribution.load()
    template = distribution.template or task.default_template
    kept = tuple(name for name in task.class_names if _is_one_token(name, template, tokenizer))
    if len(kept) < distribution.classes:
        split = ", ".join(name for name in task.class_names if name not in kept)
        raise PromptError(
            f"labels={distribution.labels!r} needs {distribution.classes} classes whose names are one token, and "
            f"{Path(distribution.task).name!r} has {len(kept)} here (of several tokens: {split})"
        )
    return distribution if kept == task.class_names else replace(distribution, class_pool=kept)


def _is_one_token(name: str, template: str, tokenizer: Any) -> bool:
    prompt = Prompt(0, (Demonstration(name, name, name),), name, name, (name,), (name,), template)
    try:
        tokenize([prompt], tokenizer)
    except PromptError:
        return False
    return True


def _labelled(labels: Any) -> Change:
    return lambda one: replace(one, labels=labels, label_half="all")


def _templated(template: str) -> Change:
    return lambda one: replace(one, template=template)


def _counted(one: PromptDistribution) -> PromptDistribution:
    """Every class but one shown twice, with as many demonstrations in all."""
    lists = [(sum(counts) - FEW * (len(counts) - 1), *[FEW] * (len(counts) - 1)) for counts in one.count_lists()]
    return replace(one, shots=tuple(lists))


def _misleading(name: str) -> Change:
    def change(one: PromptDistribution) -> PromptDistribution:
        if one.task != "synthetic":
            raise PromptError(f"{name!r} is a change of the synthetic task only, came with {one.task!r}")
        return replace(one, task=f"synthetic:{MISLEADING[name]}")

    return change


CHANGES: dict[str, Change] = (
    {labels: _labelled(labels) for labels in OWN}
    | {name: _templated(template) for name, template in TEMPLATES.items()}
    | {"counts": _counted}
    | {name: _misleading(name) for name in MISLEADING}
)
"""What may stand after a plus."""
