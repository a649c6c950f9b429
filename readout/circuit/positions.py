"""Where in a prompt: positions by role, found in each prompt on its own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from textwrap import shorten
from typing import Any, Literal, get_args

import numpy as np

from readout.errors import InterventionError
from readout.prompts.tokens import Ints, TokenizedPrompt
from readout.wording import counted

Role = Literal["label", "text", "cue", "query", "query text", "first", "given"]
Which = Literal["all", "matching", "other", "last"]
OF_DEMONSTRATIONS = ("label", "text", "cue")


def shown(value: Any) -> str:
    """A value as an error message shows it: on one line, and short."""
    return shorten(repr(value), 80, placeholder=" ...")


def is_whole(value: Any) -> bool:
    """Whether it is a whole number, of Python or of NumPy."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def whole_numbers(asked: Any, what: str) -> tuple[int, ...]:
    """Whole numbers, each once; a number alone is a list of one.

    Raises
    ------
    InterventionError
        If they are something else.
    """
    listed = [asked] if is_whole(asked) else asked
    found = tuple(listed) if isinstance(listed, Iterable) else (None,)
    if not all(map(is_whole, found)):
        raise InterventionError(f"{what}: expected whole numbers such as (0, 2), got {shown(asked)}")
    if len(set(found)) < len(found):
        raise InterventionError(f"{what}: {shown(asked)} names one twice; name each once")
    return tuple(int(one) for one in found)


@dataclass(frozen=True)
class Positions:
    """Token positions by role.

    Parameters
    ----------
    role : str
        "label" tokens of demonstrations, their "text", the "cue" before a label, the "query" position (the last token),
        the "query text", the "first" token; or "given" ones.
    which : str, int or sequence of int
        Of which demonstrations: "all", those "matching" the query's class, the "other" ones, the "last" one, or their
        numbers from 0.
    given : tuple of tuple of int
        With the role "given": the positions in each prompt, prompt by prompt.

    Raises
    ------
    InterventionError
        If the role or the choice of demonstrations does not exist, or they do not go together.
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
        if not isinstance(self.which, str):
            object.__setattr__(self, "which", whole_numbers(self.which, "which demonstrations"))
        if not self.which:
            raise InterventionError("which demonstrations: name at least one, or 'all'")
        if self.which != "all" and self.role not in OF_DEMONSTRATIONS:
            raise InterventionError(
                f"which demonstrations: only {', '.join(OF_DEMONSTRATIONS)} are of demonstrations, not {self.role!r}"
            )
        rows = self.given if isinstance(self.given, Iterable) and not isinstance(self.given, str) else (self.given,)
        if any(is_whole(row) for row in rows):
            raise InterventionError(
                f"given: expected a list of positions for each prompt, such as [[3], [3, 5]], got {shown(self.given)}"
            )
        object.__setattr__(self, "given", tuple(whole_numbers(row, "positions given") for row in rows))
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
            raise InterventionError(
                f"positions are given for {counted(len(self.given), 'prompt')}, this is prompt {number}"
            )
        found = np.array(self.given[number], np.int64)
        if ((found < 0) | (found >= len(prompt.token_ids))).any():
            raise InterventionError(f"the prompt has {len(prompt.token_ids)} tokens, positions given: {found.tolist()}")
        return found


def given(positions: Sequence[Sequence[int] | Ints]) -> Positions:
    """Positions listed prompt by prompt."""
    return Positions("given", given=positions)  # type: ignore[arg-type]


LABELS = Positions("label")
TEXTS = Positions("text")
CUES = Positions("cue")
QUERY = Positions("query")
FIRST = Positions("first")
