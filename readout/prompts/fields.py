"""Checks of a specification's fields."""

from collections.abc import Sequence
from typing import Any, cast

from readout.errors import PromptError

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
        When a count is negative, no demonstration is left, or a list does not fit the number of classes.
    """
    expected = "a number of demonstrations for each class, a list with one for each class, or a list of such lists"
    if is_int(shots):
        check(cast(int, shots) >= 0, "shots", expected, shots)
        return cast(int, shots)
    check(isinstance(shots, list | tuple) and len(cast(Sequence[Any], shots)) > 0, "shots", expected, shots)
    items = cast(Sequence[Any], shots)
    if all(is_int(item) for item in items):
        check(min(items) >= 0 and max(items) > 0, "shots", expected, shots)
        if len(items) != classes:
            raise PromptError(f"shots names {len(items)} counts for {classes} classes; give one for each class")
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
            raise PromptError(f"a list in shots has {len(item)} counts; with classes={classes} give 2 to {classes}")
        lists.append(tuple(item))
    return tuple(lists)


def is_int(value: object) -> bool:
    """Whether a value is a whole number; True and False are none."""
    return isinstance(value, int) and not isinstance(value, bool)


def check(right: bool, name: str, expected: str, value: object) -> None:
    """Refuse a field: what it must be, and what came."""
    if not right:
        raise PromptError(f"{name} must be {expected}, got {value!r}")
