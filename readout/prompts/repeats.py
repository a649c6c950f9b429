"""Prompts with other labels in place of their own: of equal length, with and without a label that repeats."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from readout.errors import PromptError
from readout.prompts.labels import label_pool
from readout.prompts.prompt import Prompt


def without_repeat(prompt: Prompt, pool: str = "words", turn: int = 0) -> Prompt:
    """The prompt with a fresh label at every demonstration whose label comes again: equal length, no repeat.

    Parameters
    ----------
    prompt : Prompt
        Any prompt.
    pool : str
        Pool of labels that fresh ones are taken from.
    turn : int
        The pool is turned by so many labels before, so that prompts can get different ones.

    Returns
    -------
    Prompt
        A fresh label stands for the class that the label it replaces stands for.

    Raises
    ------
    PromptError
        If the pool has too few labels.
    """
    unused = _unused(prompt, pool, turn)
    labels, classes, demonstrations = list(prompt.labels), list(prompt.label_classes), []
    later = [shown.label for shown in prompt.demonstrations]
    for number, shown in enumerate(prompt.demonstrations):
        if shown.label in later[number + 1 :]:
            classes.append(prompt.label_classes[prompt.labels.index(shown.label)])
            shown = replace(shown, label=next(unused))
            labels.append(shown.label)
        demonstrations.append(shown)
    return replace(prompt, demonstrations=tuple(demonstrations), labels=tuple(labels), label_classes=tuple(classes))


def relabelled(prompt: Prompt, pool: str = "words", turn: int = 0) -> Prompt:
    """The prompt with each label replaced by a fresh one everywhere: other words, the same repeats.

    Raises
    ------
    PromptError
        If the pool has too few labels.
    """
    unused = _unused(prompt, pool, turn)
    fresh = {label: next(unused) for label in prompt.labels}
    demonstrations = tuple(replace(shown, label=fresh[shown.label]) for shown in prompt.demonstrations)
    return replace(prompt, demonstrations=demonstrations, labels=tuple(fresh.values()))


def _unused(prompt: Prompt, pool: str, turn: int) -> Iterator[str]:
    labels = label_pool(pool)
    turn %= len(labels)
    for label in (*labels[turn:], *labels[:turn]):
        if label not in prompt.labels:
            yield label
    raise PromptError(f"the label pool {pool!r} has too few labels for a prompt of {len(prompt.demonstrations)} shots")
