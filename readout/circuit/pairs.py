"""Pairs of prompts that differ in one thing and in no position: labels exchanged, or the classes' texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from readout.errors import InterventionError
from readout.prompts import TokenizedPrompt
from readout.prompts.tokens import Ints
from readout.wording import counted


@dataclass(frozen=True)
class Pairs:
    """Prompts, each with its partner of equal length and equal positions.

    Parameters
    ----------
    prompts, partners : tuple of TokenizedPrompt
        Parallel; partners are sources to patch from.
    left_out : int
        Prompts that have no partner.

    Raises
    ------
    InterventionError
        If partners are not parallel, or a partner differs in a position.
    """

    prompts: tuple[TokenizedPrompt, ...]
    partners: tuple[TokenizedPrompt, ...]
    left_out: int = 0

    def __post_init__(self) -> None:
        if len(self.prompts) != len(self.partners):
            raise InterventionError(
                f"pairs need one partner a prompt, got {counted(len(self.prompts), 'prompt')} and "
                f"{counted(len(self.partners), 'partner')}"
            )
        for number, (one, other) in enumerate(zip(self.prompts, self.partners, strict=True)):
            _check_positions(number, one, other)

    @property
    def note(self) -> str:
        """How many prompts were left out, in words; empty where none was."""
        if not self.left_out:
            return ""
        total = len(self.prompts) + self.left_out
        return f"{self.left_out} of {counted(total, 'prompt')} left out: no partner of equal positions"


def label_pairs(prompts: Sequence[TokenizedPrompt]) -> Pairs:
    """Pair prompts with their label-swapped ones; see `label_swapped`."""
    return _paired(prompts, label_swapped)


def class_pairs(prompts: Sequence[TokenizedPrompt]) -> Pairs:
    """Pair prompts with their class-swapped ones; see `class_swapped`."""
    return _paired(prompts, class_swapped)


def label_swapped(prompt: TokenizedPrompt) -> TokenizedPrompt:
    """The prompt with two labels exchanged at every demonstration: the right one and the next one.

    Texts, positions and the order of the candidate labels stay; the exchanged labels stand for each other's class.

    Parameters
    ----------
    prompt : TokenizedPrompt
        With at least two labels.

    Returns
    -------
    TokenizedPrompt

    Raises
    ------
    InterventionError
        If there is no second label, or a label is more than the one token at its position.
    """
    first, second = _two_classes(prompt)
    exchange = np.arange(len(prompt.label_ids))
    exchange[[first, second]] = second, first
    shown = exchange[prompt.demonstration_labels]
    tokens = prompt.token_ids.copy()
    if (tokens[prompt.label_positions] != prompt.label_ids[prompt.demonstration_labels]).any():
        raise InterventionError(
            "a label position holds another token than the label's own: give prompts from tokenize()"
        )
    tokens[prompt.label_positions] = prompt.label_ids[shown]
    own = prompt.prompt
    demonstrations = tuple(
        replace(one, label=own.labels[int(label)]) for one, label in zip(own.demonstrations, shown, strict=True)
    )
    classes = tuple(own.label_classes[int(place)] for place in exchange)
    return replace(
        prompt,
        prompt=replace(own, demonstrations=demonstrations, label_classes=classes),
        token_ids=tokens,
        demonstration_labels=shown,
    )


def class_swapped(prompt: TokenizedPrompt) -> TokenizedPrompt:
    """The prompt with the texts of two classes exchanged, labels in place: of the query's class and of the next one.

    The texts of each class are exchanged in the order in which they are read, the shortest first, so that every text
    goes where one of its length stood. Labels then stand for each other's class.

    Parameters
    ----------
    prompt : TokenizedPrompt
        With as many demonstrations of both classes, of texts that are equally long in tokens.

    Returns
    -------
    TokenizedPrompt

    Raises
    ------
    InterventionError
        If the classes differ in number or length of texts.
    """
    own = prompt.prompt
    names = [own.label_classes[place] for place in _two_classes(prompt)]
    classes = np.array([one.class_name for one in own.demonstrations])
    lengths = np.diff(prompt.demonstration_spans, axis=1)[:, 0]
    one, other = (_by_length(np.flatnonzero(classes == name), lengths) for name in names)
    if not np.array_equal(lengths[one], lengths[other]):
        raise InterventionError(
            f"texts of {names[0]!r} and {names[1]!r} cannot be exchanged in place: they have "
            f"{lengths[one].tolist()} and {lengths[other].tolist()} tokens; take balanced classes (shots) and texts "
            "of equal length"
        )
    source = np.arange(len(classes))
    source[one], source[other] = other, one
    tokens = prompt.token_ids.copy()
    for place, taken in enumerate(source):
        tokens[slice(*prompt.demonstration_spans[place])] = prompt.token_ids[slice(*prompt.demonstration_spans[taken])]
    shown = tuple(
        replace(own.demonstrations[int(taken)], label=here.label)
        for here, taken in zip(own.demonstrations, source, strict=True)
    )
    exchanged = {names[0]: names[1], names[1]: names[0]}
    owners = tuple(exchanged.get(name, name) for name in own.label_classes)
    return replace(prompt, prompt=replace(own, demonstrations=shown, label_classes=owners), token_ids=tokens)


def _by_length(places: Ints, lengths: Ints) -> Ints:
    return places[np.argsort(lengths[places], kind="stable")]


def _two_classes(prompt: TokenizedPrompt) -> tuple[int, int]:
    """Numbers of the labels of the query's class and of the class after it."""
    own = prompt.prompt
    if own.query_class not in own.label_classes or len(own.labels) < 2:
        raise InterventionError(
            f"nothing to exchange with the query's class {own.query_class!r}: the prompt's labels stand for "
            f"{', '.join(own.label_classes) or 'no class'}; take at least two classes, the query's among them"
        )
    right = own.label_classes.index(own.query_class)
    return right, (right + 1) % len(own.labels)


def _paired(prompts: Sequence[TokenizedPrompt], swap: Callable[[TokenizedPrompt], TokenizedPrompt]) -> Pairs:
    kept, partners, reason = [], [], ""
    for one in prompts:
        try:
            partners.append(swap(one))
        except InterventionError as error:
            reason = str(error)
            continue
        kept.append(one)
    if not kept:
        raise InterventionError(f"no prompt has a partner: {reason or 'there are no prompts'}")
    return Pairs(tuple(kept), tuple(partners), len(prompts) - len(kept))


def _check_positions(number: int, one: TokenizedPrompt, other: TokenizedPrompt) -> None:
    if len(one.token_ids) != len(other.token_ids):
        raise InterventionError(
            f"pair {number}: the prompt has {len(one.token_ids)} tokens and its partner {len(other.token_ids)}; pairs "
            "need equal lengths"
        )
    for name in ("label_positions", "cue_positions", "demonstration_spans", "query_span"):
        if not np.array_equal(getattr(one, name), getattr(other, name)):
            raise InterventionError(f"pair {number}: {name} differ between the prompt and its partner")
