"""What the test of every claim receives: a model, and prompts that choose apart from prompts that test."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from readout.errors import InterventionError
from readout.models import LanguageModel
from readout.prompts import Prompt, PromptDistribution, Task, TokenizedPrompt, tokenize
from readout.prompts.context import draw_context
from readout.statistics import check_seed
from readout.statistics.checks import check_count

DEFAULT_CONTEXTS = 32
FEWEST_CONTEXTS, FEWEST_DRAWS = 10, 20
"""With fewer no claim can reach p < .05: half of the contexts test, by flips of their signs, or by rank among draws."""
_TRIES = 20
# Contexts tried for each that is wanted, before texts of one length are given up.


@dataclass(frozen=True)
class Setting:
    """A model and prompts.

    Parameters
    ----------
    model
        The model.
    distribution
        What the prompts are drawn from.
    choosing, testing
        Prompts of even and of odd contexts: heads are named on the first, effects reported on the second.
    draws
        Random draws of a control.
    seed
        Of every draw.
    equal_lengths
        Whether all texts of a prompt have equally many tokens, so that texts can be exchanged in place.
    permuted
        Whether labels tell nothing of classes: the null.
    """

    model: LanguageModel
    distribution: PromptDistribution
    choosing: tuple[TokenizedPrompt, ...]
    testing: tuple[TokenizedPrompt, ...]
    draws: int = 100
    seed: int = 0
    equal_lengths: bool = True
    permuted: bool = False


def default_distribution(task: str, seed: int = 0) -> PromptDistribution:
    """Two balanced classes in shuffled order, one query a context.

    Eight shots a class; four in the synthetic task, which its models do with fewer.
    """
    shots = 4 if task.partition(":")[0] == "synthetic" else 8
    cut = 0 if task == "words" else 20
    return PromptDistribution(task, classes=2, shots=shots, order="shuffled", queries=1, seed=seed, max_words=cut)


def make_setting(
    model: LanguageModel,
    distribution: PromptDistribution | None = None,
    contexts: int = DEFAULT_CONTEXTS,
    draws: int = 100,
    seed: int = 0,
    permuted: bool = False,
) -> Setting:
    """Draw the prompts of a setting.

    Parameters
    ----------
    model
        The model.
    distribution
        What to draw from, its size replaced by `contexts`; by default `default_distribution` of the model's task.
    contexts
        Number of contexts, half of them to choose and half to test.
    draws, seed
        Random draws of a control, and the seed of every draw.
    permuted
        Give demonstrations labels at random, balanced and whatever their class: the null, with no task to do.

    Returns
    -------
    Setting

    Raises
    ------
    InterventionError
        If there are too few contexts.
    FitError
        If there are too few draws.
    """
    if contexts < FEWEST_CONTEXTS:
        raise InterventionError(
            f"a circuit needs at least {FEWEST_CONTEXTS} contexts, half to choose heads and half to test them; got "
            f"{contexts}: ask for more"
        )
    check_seed(seed)
    check_count(draws, "draws", FEWEST_DRAWS, " (with fewer no claim can reach p < .05)")
    if distribution is None:
        from readout.pipeline import default_task

        distribution = default_distribution(default_task(model.name), seed)
    distribution = replace(distribution, size=contexts)
    found, equal = _drawn(model, distribution)
    prompts = [one for own in found for one in own]
    if permuted:
        prompts = [without_task(one, seed) for one in prompts]
    tokenized = tokenize(prompts, model.tokenizer, distribution.label_pieces)
    even = {own[0].context for own in found[::2]}
    return Setting(
        model,
        distribution,
        tuple(one for one in tokenized if one.prompt.context in even),
        tuple(one for one in tokenized if one.prompt.context not in even),
        draws,
        seed,
        equal,
        permuted,
    )


def without_task(prompt: Prompt, seed: int = 0) -> Prompt:
    """The prompt with its labels dealt out anew: each class shows all labels about equally often, in random order.

    The prompts of a context get the same labels.
    """
    draws = random.Random(f"{seed} {prompt.context}")
    dealt: dict[str, list[str]] = {}
    for name in prompt.label_classes:
        shown = sum(one.class_name == name for one in prompt.demonstrations)
        order = draws.sample(prompt.labels, len(prompt.labels))
        labels = [order[place % len(order)] for place in range(shown)]
        draws.shuffle(labels)
        dealt[name] = labels
    demonstrations = tuple(replace(one, label=dealt[one.class_name].pop()) for one in prompt.demonstrations)
    return replace(prompt, demonstrations=demonstrations)


def _drawn(model: LanguageModel, distribution: PromptDistribution) -> tuple[list[list[Prompt]], bool]:
    """Contexts whose texts have equally many tokens where the task has enough such texts, any contexts otherwise."""
    task = distribution.load()
    alike = _of_one_length(model, distribution, task)
    if alike is not None:
        found: list[list[Prompt]] = []
        for context, prompts in enumerate(_contexts(distribution, alike, _TRIES * distribution.size)):
            tokenized = tokenize(prompts, model.tokenizer, distribution.label_pieces)
            lengths = {int(stop - start) for one in tokenized for start, stop in one.demonstration_spans}
            if len(lengths) == 1:
                found.append([replace(one, context=len(found)) for one in prompts])
            if len(found) == distribution.size:
                return found, True
            if context >= distribution.size and not found:
                break
    return list(_contexts(distribution, task, distribution.size)), False


def _contexts(distribution: PromptDistribution, task: Task, number: int) -> Iterator[list[Prompt]]:
    template = distribution.template or task.default_template
    return (draw_context(distribution, context, task, template) for context in range(number))


def _of_one_length(model: LanguageModel, distribution: PromptDistribution, task: Task) -> Task | None:
    """The task with texts of the commonest number of tokens only; None where too few classes have enough of them."""
    template = distribution.template or task.default_template
    texts = [(name, text) for name, members in task.texts.items() for text in members]
    tokenized = tokenize([Prompt(0, (), text, name, (), (), template) for name, text in texts], model.tokenizer)
    lengths = [int(one.query_span[1] - one.query_span[0]) for one in tokenized]
    need = max(map(max, distribution.count_lists())) + distribution.queries
    for length, _ in Counter(lengths).most_common(3):
        kept: dict[str, list[str]] = {}
        for (name, text), own in zip(texts, lengths, strict=True):
            if own == length:
                kept.setdefault(name, []).append(text)
        enough = {name: tuple(members) for name, members in kept.items() if len(members) >= need}
        if len(enough) >= max(map(len, distribution.count_lists())):
            return replace(task, texts=enough)
    return None
