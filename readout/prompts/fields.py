"""Checks of a specification's fields."""

from collections.abc import Sequence
from typing import Any, cast

from readout.errors import PromptError
from readout.wording import counted

Shots = int | tuple[int, ...] | tuple[tuple[int, ...], ...]


def frozen_shots(shots: object, classes: int) -> Shots:
    """Check the shots of a specification and turn lists into tuples.

    Parameters
    ----------
    shots
        One number, a list with one number for each class, or a mixture of such lists.
    classes
        Classes of a context.

    Raises
    ------
    PromptError
        When a count is negative, a list has no demonstration, or it does not fit the number of classes.
    """
    expected = (
        "a number of demonstrations for each class (0 for prompts without any), a list with one for each class (not "
        "all 0), or a list of such lists, no number below 0"
    )
    if is_int(shots):
        check(cast(int, shots) >= 0, "shots", expected, shots)
        return cast(int, shots)
    check(isinstance(shots, list | tuple) and len(cast(Sequence[Any], shots)) > 0, "shots", expected, shots)
    items = cast(Sequence[Any], shots)
    if all(is_int(item) for item in items):
        check(min(items) >= 0 and max(items) > 0, "shots", expected, shots)
        if len(items) != classes:
            raise PromptError(
                f"shots names {counted(len(items), 'count')} for {classes} classes; give one for each class"
            )
        return tuple(items)
    lists = []
    for item in items:
        check(
            isinstance(item, list | tuple) and all(is_int(count) and count >= 0 for count in item) and any(item),
            "shots",
            expected,
            shots,
        )
        if not 2 <= len(item) <= classes:
            raise PromptError(
                f"a list in shots has {counted(len(item), 'count')}; with classes={classes} give 2 to {classes}"
            )
        lists.append(tuple(item))
    return tuple(lists)


def is_int(value: object) -> bool:
    """Whether a value is a whole number; True and False are none."""
    return isinstance(value, int) and not isinstance(value, bool)


def check(right: bool, name: str, expected: str, value: object) -> None:
    """Refuse a field: what it must be, and what came."""
    if not right:
        raise PromptError(f"{name} must be {expected}, got {value!r}" + (f" ({flag(name)})" if "_" in name else ""))


def flag(name: str) -> str:
    """The command line's name of a field: "--text-column"."""
    return f"--{name.replace('_', '-')}"


def option(name: str) -> str:
    """A field by both of its names: "text_column (--text-column)"."""
    return f"{name} ({flag(name)})"
