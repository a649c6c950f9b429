"""What came of interventions: labels' logits, and attention of watched heads, edited and unedited."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from readout.errors import InterventionError


@dataclass(frozen=True, eq=False)
class Answers:
    """What was read at the query of each prompt; edited answers have the interventions as their first dimension.

    Attributes
    ----------
    logits : float32 [..., prompts, labels]
        Logits of the prompt's labels; nan beyond a prompt's own labels.
    log_normaliser : float32 [..., prompts] or None
        Log of the sum of exp(logit) over the vocabulary; None where it was not asked for.
    attention : float32 [..., prompts, heads, demonstrations] or None
        Of the watched heads, from the query to the demonstrations' labels; nan beyond a prompt's own.
    sink : float32 [..., prompts, heads] or None
        Of the watched heads, to the first token.
    """

    logits: Float[np.ndarray, "*interventions prompts labels"]
    log_normaliser: Float[np.ndarray, "*interventions prompts"] | None = None
    attention: Float[np.ndarray, "*interventions prompts heads demonstrations"] | None = None
    sink: Float[np.ndarray, "*interventions prompts heads"] | None = None


@dataclass(frozen=True, eq=False)
class Outcome:
    """Answers with each intervention, and without.

    Attributes
    ----------
    names : names of the interventions
    watched : heads whose attention was read, as (layer, head)
    unedited, edited : answers
    contexts : int64 [prompts], the cluster of each prompt
    answers : int64 [prompts], which label is right
    labels : int64 [prompts, demonstrations], which label each demonstration shows, -1 beyond a prompt's own
    match : bool [prompts, demonstrations], whether the demonstration has the query's class
    """

    names: tuple[str, ...]
    watched: tuple[tuple[int, int], ...]
    unedited: Answers
    edited: Answers
    contexts: Int[np.ndarray, " prompts"]
    answers: Int[np.ndarray, " prompts"]
    labels: Int[np.ndarray, "prompts demonstrations"]
    match: Int[np.ndarray, "prompts demonstrations"]

    def logit_difference(self, answers: Answers | None = None) -> Float[np.ndarray, "*interventions prompts"]:
        """Logit of the right label minus the mean of the others: edited unless other answers are given.

        Raises
        ------
        InterventionError
            If a prompt has one label only.
        """
        logits = (answers or self.edited).logits
        right = np.take_along_axis(logits, self._right(logits), -1)[..., 0]
        others = np.isfinite(logits).sum(-1)
        if (others < 2).any():
            raise InterventionError("a prompt with one label has no logit difference: give prompts with two or more")
        difference: np.ndarray = right - (np.nansum(logits, -1) - right) / (others - 1)
        return difference

    def probability(self, answers: Answers | None = None) -> Float[np.ndarray, "*interventions prompts labels"]:
        """Probabilities among the prompt's own labels: edited unless other answers are given."""
        logits = (answers or self.edited).logits
        shifted = np.exp(logits - np.nanmax(logits, -1, keepdims=True))
        return shifted / np.nansum(shifted, -1, keepdims=True)  # type: ignore[no-any-return]

    def log_probability(self, answers: Answers | None = None) -> Float[np.ndarray, "*interventions prompts labels"]:
        """Log-probabilities over the vocabulary; needs the normaliser."""
        chosen = answers or self.edited
        if chosen.log_normaliser is None:
            raise InterventionError("the normaliser was not computed: ask for it by intervene(..., normalise=True)")
        found: np.ndarray = chosen.logits - chosen.log_normaliser[..., None]
        return found

    def gap(self, answers: Answers | None = None) -> Float[np.ndarray, "*interventions prompts heads"]:
        """Attention of watched heads to matching minus to other labels."""
        attention = (answers or self.edited).attention
        if attention is None:
            raise InterventionError("no head was watched: name some by intervene(..., watch=[(layer, head)])")
        gap: np.ndarray = np.nansum(np.where(self.match[:, None], attention, -attention), -1)
        return gap

    def effect(self) -> Float[np.ndarray, "interventions prompts"]:
        """Change of the logit difference by each intervention: edited minus unedited."""
        change: np.ndarray = self.logit_difference() - self.logit_difference(self.unedited)
        return change

    def _right(self, logits: np.ndarray) -> np.ndarray:
        return np.broadcast_to(self.answers[:, None], (*logits.shape[:-1], 1))
