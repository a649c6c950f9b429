"""Pools of labels, and how a context gives them to its classes."""

import json
from collections.abc import Sequence
from functools import lru_cache
from importlib import resources
from typing import Final

from readout.errors import PromptError
from readout.prompts.draws import Draws

POOLS: Final = ("words", "letters", "names", "nonsense")
OWN: Final = ("own", "swapped", "flipped")
HALVES: Final = ("all", "a", "b")


def half(items: Sequence[str], which: str) -> tuple[str, ...]:
    """Every item, or one of two disjoint halves.

    Parameters
    ----------
    items
        Any items; their order decides (even places are half a, odd places half b).
    which
        "all", "a" or "b".
    """
    start, step = {"all": (0, 1), "a": (0, 2), "b": (1, 2)}[which]
    return tuple(items[start::step])


@lru_cache(maxsize=1)
def _pools() -> dict[str, tuple[str, ...]]:
    text = resources.files("readout.prompts").joinpath("data", "labels.json").read_text(encoding="utf-8")
    return {name: tuple(labels) for name, labels in json.loads(text).items()}


def label_pool(name: str, which: str = "all") -> tuple[str, ...]:
    """The labels of a pool.

    Parameters
    ----------
    name
        "words", "letters", "names" or "nonsense".
    which
        "all", or one of the disjoint halves "a" and "b".

    Raises
    ------
    PromptError
        When there is no such pool.
    """
    if name not in POOLS:
        raise PromptError(f"no label pool {name!r}; known are {', '.join(POOLS)}, and {', '.join(OWN)}")
    return half(_pools()[name], which)


def assign_labels(draws: Draws, classes: Sequence[str], labels: str, which: str = "all") -> tuple[str, ...]:
    """Give each class of a context its label.

    Parameters
    ----------
    draws
        The context's source of chance.
    classes
        The context's classes.
    labels
        A pool's name; "own" for the classes' own names; "swapped" for these names deranged, so that no class
        keeps its own; "flipped" for own or swapped names, each context with equal chance.
    which
        Half of the pool.

    Returns
    -------
    tuple of str
        One label for each class, all different.
    """
    if labels == "flipped":
        labels = draws.choice(("own", "swapped"))
    if labels == "own":
        return tuple(classes)
    if labels == "swapped":
        # drawing again until nothing stays in place leaves every derangement equally likely
        while True:
            swapped = draws.shuffled(classes)
            if all(new != old for new, old in zip(swapped, classes, strict=True)):
                return tuple(swapped)
    return tuple(draws.sample(label_pool(labels, which), len(classes)))
