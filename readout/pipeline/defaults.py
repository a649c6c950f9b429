"""The distributions that the main job fits and predicts unless others are asked for."""

from __future__ import annotations

from dataclasses import replace

from readout.prompts import PromptDistribution

INHERITED = (
    "task",
    "labels",
    "order",
    "template",
    "queries",
    "size",
    "label_pieces",
    "max_words",
    "text_column",
    "label_column",
    "data_split",
)
"""Options of the fit distribution that the target takes over unless it is given its own."""

# Mixed counts, since two balanced classes leave the link one degree of freedom; the target has more classes,
# unbalanced counts, other classes and other labels.
WORDS = (
    PromptDistribution(
        task="words",
        classes=3,
        class_half="a",
        label_half="a",
        shots=((8, 8), (4, 12), (5, 5, 6), (2, 5, 9)),
        queries=4,
        size=96,
        seed=11,
    ),
    PromptDistribution(
        task="words",
        classes=4,
        class_half="b",
        label_half="b",
        shots=((1, 3, 5, 7), (2, 3, 4, 7), (1, 2, 6, 7)),
        queries=4,
        size=96,
        seed=12,
    ),
)
SENTENCES = (
    PromptDistribution(
        task="trec",
        classes=2,
        text_half="a",
        label_half="a",
        shots=((8, 8), (5, 11), (3, 13)),
        max_words=20,
        queries=4,
        size=96,
        seed=21,
    ),
    PromptDistribution(
        task="trec",
        classes=2,
        text_half="b",
        label_half="b",
        shots=((2, 10), (4, 8), (6, 6)),
        max_words=20,
        queries=4,
        size=96,
        seed=22,
    ),
)

MISLEADING = {"noisy": "noise=0.15", "ambiguous": "ambiguity=0.25"}
"""Options of the synthetic task under which some words point to the wrong class, or to two."""

SYNTHETIC = (
    PromptDistribution(
        task="synthetic",
        classes=3,
        class_half="a",
        label_half="a",
        shots=((3, 3, 3), (5, 2, 2), (4, 3, 1), (3, 3)),
        queries=4,
        size=96,
        seed=1,
    ),
    PromptDistribution(
        task="synthetic",
        classes=5,
        class_half="b",
        label_half="b",
        shots=((5, 3, 2, 2), (4, 3, 3, 2), (3, 3, 2, 2, 2)),
        queries=4,
        size=96,
        seed=2,
    ),
)


def default_task(model: str) -> str:
    """The task of a model that is asked for no other: the built-in models know the synthetic words only."""
    from readout.models.sources import is_built_in

    return "synthetic" if is_built_in(model) else "words"


def default_pair(task: str) -> tuple[PromptDistribution, PromptDistribution]:
    """Fit and target distribution for a task: word concepts, or the halves of any set of texts."""
    if task == "words":
        return WORDS
    if task.partition(":")[0] == "synthetic":
        fit, target = (replace(one, task=task) for one in SYNTHETIC)
        return fit, target
    fit, target = (replace(one, task=task) for one in SENTENCES)
    return fit, target


def target_for(fit: PromptDistribution) -> PromptDistribution:
    """The default target of a fit distribution: its task, template, size and labels, other halves and counts."""
    _, target = default_pair(fit.task)
    return replace(target, **{name: getattr(fit, name) for name in INHERITED})


def default_beside(target: PromptDistribution) -> dict[str, PromptDistribution]:
    """Further targets by name, predicted with the same frozen readout: the synthetic words when they mislead."""
    if target.task != "synthetic":
        return {}
    return {name: replace(target, task=f"synthetic:{option}") for name, option in MISLEADING.items()}


def drawn_again(distribution: PromptDistribution) -> PromptDistribution:
    """The same distribution with another seed, for the noise floor."""
    return replace(distribution, seed=distribution.seed + 1000)
