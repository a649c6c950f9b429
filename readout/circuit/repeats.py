"""Prompts with and without a repeated label, and what the gate is measured by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from readout.circuit.outcome import Answers, Outcome
from readout.circuit.setting import Setting
from readout.prompts import TokenizedPrompt, tokenize
from readout.prompts.repeats import relabelled, without_repeat

Heads = tuple[tuple[int, int], ...]
_TURN = 7
# Fresh labels start elsewhere in the pool in every context, so that no word decides.


@dataclass(frozen=True, eq=False)
class Contrast:
    """Prompts of equal length that differ in their labels alone.

    Attributes
    ----------
    repeated : the setting's own prompts
    single : with a fresh label at every showing of a label but its last: none repeats
    relabelled : with each label replaced by a fresh one throughout: other labels, the same repeats
    """

    repeated: tuple[TokenizedPrompt, ...]
    single: tuple[TokenizedPrompt, ...]
    relabelled: tuple[TokenizedPrompt, ...]

    @property
    def contexts(self) -> Int[np.ndarray, " prompts"]:
        """Of each prompt."""
        return np.array([one.prompt.context for one in self.repeated])


def contrast(setting: Setting, prompts: Sequence[TokenizedPrompt]) -> Contrast:
    """Make the twins of prompts."""
    pool = setting.distribution.labels if setting.distribution.labels in ("letters", "names", "nonsense") else "words"
    tokenizer, pieces = setting.model.tokenizer, setting.distribution.label_pieces

    def twins(make: object) -> tuple[TokenizedPrompt, ...]:
        made = [make(one.prompt, pool, _TURN * (one.prompt.context + 1)) for one in prompts]  # type: ignore[operator]
        return tuple(tokenize(made, tokenizer, pieces))

    return Contrast(tuple(prompts), twins(without_repeat), twins(relabelled))


def lack_of_repeats(setting: Setting) -> str:
    """Why nothing can be said of repeated labels, in words; empty where each half has a prompt that repeats one."""
    for prompts in (setting.choosing, setting.testing):
        shown = [[one.label for one in prompt.prompt.demonstrations] for prompt in prompts]
        if all(len(set(own)) == len(own) for own in shown):
            return "not tested: no prompt shows a label twice, ask for two or more shots; undecided"
    return ""


@dataclass(frozen=True, eq=False)
class Openness:
    """How open the readout is, prompt by prompt; edited answers have the interventions first.

    Attributes
    ----------
    mass : probability of the prompt's labels together
    preference : probability of the labels of the query's class minus that of the others
    sink : first-token attention of each watched head
    labels : attention of each watched head to all labels
    """

    mass: Float[np.ndarray, "*interventions prompts"]
    preference: Float[np.ndarray, "*interventions prompts"]
    sink: Float[np.ndarray, "*interventions prompts heads"]
    labels: Float[np.ndarray, "*interventions prompts heads"]


def openness(outcome: Outcome, answers: Answers, prompts: Sequence[TokenizedPrompt]) -> Openness:
    """Read it off the answers of an outcome with watched heads and the normaliser."""
    probability = np.exp(outcome.log_probability(answers).astype(np.float64))
    own = np.zeros(probability.shape[-2:], bool)
    for row, one in zip(own, prompts, strict=True):
        row[: len(one.label_ids)] = [name == one.prompt.query_class for name in one.prompt.label_classes]
    mass, matching = np.nansum(probability, -1), np.nansum(np.where(own, probability, 0.0), -1)
    assert answers.attention is not None
    assert answers.sink is not None
    labels = np.nansum(answers.attention.astype(np.float64), -1)
    return Openness(mass, 2 * matching - mass, answers.sink.astype(np.float64), labels)
