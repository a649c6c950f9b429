"""Where in a prompt: positions by role, found in each prompt on its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from readout.errors import InterventionError
from readout.prompts.tokens import Ints, TokenizedPrompt

Role = Literal["label", "text", "cue", "query", "query text", "first", "given"]
Which = Literal["all", "matching", "other", "last"]


@dataclass(frozen=True)
class Positions:
    """Token positions by role.

    Parameters
    ----------
    role : str
        "label" tokens of demonstrations, their "text", the "cue" before a label, the "query" position (the last token),
        the "query text", the "first" token; or "given" ones.
    which : str or tuple of int
        Of which demonstrations: "all", those "matching" the query's class, the "other" ones, the "last" one, or their
        numbers.
    given : tuple of tuple of int
        With the role "given": the positions in each prompt, prompt by prompt.

    Raises
    ------
    InterventionError
        If the role or the choice of demonstrations does not exist.
    """

    role: Role
    which: Which | tuple[int, ...] = "all"
    given: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        if self.role not in get_args(Role):
            raise InterventionError(f"role must be one of {', '.join(get_args(Role))}; got {self.role!r}")
        if isinstance(self.which, str) and self.which not in get_args(Which):
            raise InterventionError(
                f"which must be one of {', '.join(get_args(Which))} or demonstrations' numbers; got {self.which!r}"
            )
        if bool(self.given) != (self.role == "given"):
            raise InterventionError("positions are listed with the role 'given', and only with it")

    def find(self, prompt: TokenizedPrompt, number: int = 0) -> Ints:
        """Return the positions in one prompt.

        Parameters
        ----------
        prompt : TokenizedPrompt
            The prompt.
        number : int
            Its number among the prompts that the intervention is made on; only for given positions.

        Returns
        -------
        int64[positions]
            In the order of the demonstrations.

        Raises
        ------
        InterventionError
            If the prompt lacks a demonstration or a position that is asked for.
        """
        if self.role == "given":
            return self._given(prompt, number)
        if self.role in ("query", "first"):
            return np.array([prompt.query_position if self.role == "query" else 0])
        if self.role == "query text":
            return np.arange(*prompt.query_span)
        demonstrations = self._demonstrations(prompt)
        if self.role == "label":
            return prompt.label_positions[demonstrations]
        if self.role == "cue":
            return prompt.cue_positions[demonstrations]
        spans = [np.arange(*prompt.demonstration_spans[one]) for one in demonstrations]
        return np.concatenate(spans) if spans else np.zeros(0, np.int64)

    def _demonstrations(self, prompt: TokenizedPrompt) -> Ints:
        k = len(prompt.label_positions)
        if self.which == "last":
            return np.arange(k)[-1:]
        if isinstance(self.which, tuple):
            if any(not 0 <= one < k for one in self.which):
                raise InterventionError(f"the prompt has {k} demonstrations (from 0), asked for {list(self.which)}")
            return np.array(self.which, np.int64)
        match = np.array([one.class_name == prompt.prompt.query_class for one in prompt.prompt.demonstrations], bool)
        return np.flatnonzero({"all": np.ones(k, bool), "matching": match, "other": ~match}[self.which])

    def _given(self, prompt: TokenizedPrompt, number: int) -> Ints:
        if number >= len(self.given):
            raise InterventionError(f"positions are given for {len(self.given)} prompts, this is prompt {number}")
        found = np.array(self.given[number], np.int64)
        if ((found < 0) | (found >= len(prompt.token_ids))).any():
            raise InterventionError(f"the prompt has {len(prompt.token_ids)} tokens, positions given: {found.tolist()}")
        return found


def given(positions: Sequence[Sequence[int] | Ints]) -> Positions:
    """Positions listed prompt by prompt."""
    return Positions("given", given=tuple(tuple(int(one) for one in row) for row in positions))


LABELS = Positions("label")
TEXTS = Positions("text")
CUES = Positions("cue")
QUERY = Positions("query")
FIRST = Positions("first")
