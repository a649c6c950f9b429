"""One context of a distribution: its classes, labels, demonstrations and queries."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from readout.errors import PromptError
from readout.prompts.draws import Draws
from readout.prompts.labels import assign_labels
from readout.prompts.prompt import Demonstration, Prompt
from readout.prompts.tasks import Task

if TYPE_CHECKING:
    from readout.prompts.distribution import PromptDistribution

# far more than chance needs, so that running out means that the classes share nearly all their texts
TRIES: Final = 10_000


def draw_context(distribution: "PromptDistribution", context: int, task: Task, template: str) -> list[Prompt]:
    """Draw one context and the prompts that share it.

    Demonstrations and queries have a source of chance each: other numbers of queries leave the demonstrations as
    they are, and more queries extend fewer.

    Parameters
    ----------
    distribution
        The specification; its fields up to `order`, `queries` and `seed` are used.
    context
        The context's number.
    task
        The task, cut down to the distribution's classes and texts.
    template
        The template of every prompt.

    Returns
    -------
    list of Prompt
        One for each query. No text occurs twice in the context.

    Raises
    ------
    PromptError
        When the classes share too many texts to keep them apart (synthetic tasks only).
    """
    draws = Draws(distribution.seed, context)
    counts = draws.shuffled(draws.choice(distribution.count_lists()))
    classes = tuple(draws.sample(task.class_names, len(counts)))
    labels = assign_labels(draws, classes, distribution.labels, distribution.label_half)
    texts = _demonstrated(draws, [task.texts[name] for name in classes], counts)
    shown = [
        [Demonstration(text, name, label) for text in members]
        for members, name, label in zip(texts, classes, labels, strict=True)
    ]
    demonstrations = tuple(_ordered(draws, shown, distribution.order))
    used = {demonstration.text for demonstration in demonstrations}
    draws = Draws(distribution.seed, context, 1)
    prompts = []
    for _ in range(distribution.queries):
        name = draws.choice(classes)
        query = _unused(draws, task.texts[name], used)
        used.add(query)
        prompts.append(Prompt(context, demonstrations, query, name, labels, classes, template))
    return prompts


def _demonstrated(draws: Draws, texts: list[tuple[str, ...]], counts: list[int]) -> list[list[str]]:
    for _ in range(TRIES):
        drawn = [draws.sample(members, count) for members, count in zip(texts, counts, strict=True)]
        if len({text for members in drawn for text in members}) == sum(counts):
            return drawn
    raise _too_alike()


def _unused(draws: Draws, texts: Sequence[str], used: set[str]) -> str:
    for _ in range(TRIES):
        text = draws.choice(texts)
        if text not in used:
            return text
    raise _too_alike()


def _too_alike() -> PromptError:
    return PromptError(
        "the classes share so many texts that a context would repeat one; ask for fewer shots, queries or classes"
    )


def _ordered(draws: Draws, shown: list[list[Demonstration]], order: str) -> list[Demonstration]:
    if order == "alternating":
        rounds = range(max(map(len, shown)))
        return [members[turn] for turn in rounds for members in shown if turn < len(members)]
    grouped = [demonstration for members in shown for demonstration in members]
    return draws.shuffled(grouped) if order == "shuffled" else grouped
