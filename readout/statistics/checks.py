"""Checks of what enters in many places: seeds, coverage, numbers of draws, and data read back from JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from readout.errors import FitError, ReadoutError


def check_count(value: Any, name: str, least: int, hint: str = "") -> int:
    """A whole number that is large enough.

    Raises
    ------
    FitError
        When it is smaller, or no whole number.
    """
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer) or value < least:
        raise FitError(f"{name}: expected a whole number of at least {least}{hint}, got {value!r}")
    return int(value)


def check_draws(draws: Any, name: str = "draws") -> int:
    """A number of bootstrap draws: at least 2, since one draw has no spread (an interval takes some hundreds)."""
    return check_count(draws, name, 2, " (1000 or more for an interval)")


def check_bootstrap(draws: Any) -> int:
    """A number of bootstrap draws, or 0 for no bootstrap."""
    if isinstance(draws, int | np.integer) and not isinstance(draws, bool) and draws == 0:
        return 0
    return check_count(draws, "bootstrap", 2, " (1000 or more for an interval), or 0 for none")


def check_seed(seed: Any) -> int:
    """A seed: any whole number that is not negative."""
    return check_count(seed, "seed", 0)


def generator(seed: int) -> np.random.Generator:
    """The generator of every draw here: PCG64 of a checked seed."""
    return np.random.Generator(np.random.PCG64(check_seed(seed)))


def check_level(level: Any, name: str = "level") -> float:
    """A coverage strictly between 0 and 1.

    Raises
    ------
    FitError
        When it is outside, or no number.
    """
    if not isinstance(level, int | float | np.integer | np.floating) or not 0 < level < 1:
        raise FitError(f"{name}: expected a number between 0 and 1 (neither of them), got {level!r}")
    return float(level)


def fields_of(data: Any, needed: Iterable[str], what: str) -> dict[str, Any]:
    """The data, when it is an object that has these fields.

    Raises
    ------
    FitError
        Naming what is missing.
    """
    if not isinstance(data, dict):
        raise FitError(f"{what}: expected a JSON object, got {type(data).__name__}; give it as it was saved")
    missing = [name for name in needed if name not in data]
    if missing:
        raise FitError(f"{what}: {', '.join(missing)} missing; give it as it was saved")
    return data


def check_format(data: Any, wanted: str, what: str) -> None:
    """Refuse a JSON object of another kind."""
    found = fields_of(data, (), what).get("format")
    if found != wanted:
        raise FitError(f"{what}: expected format {wanted!r}, got {found!r}")


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Turn whatever goes wrong while plain data are read back into one line that says what was read.

    Raises
    ------
    FitError
        When a field is missing or a value is of the wrong kind.
    """
    try:
        yield
    except ReadoutError:
        raise
    except KeyError as error:
        raise FitError(f"{what}: {error.args[0]} missing; give it as it was saved") from error
    except (AttributeError, IndexError, TypeError, ValueError) as error:
        raise FitError(f"{what}: a value is not of its kind ({error}); give it as it was saved") from error


def parse_json(text: str, what: str) -> Any:
    """What a JSON text holds.

    Raises
    ------
    FitError
        When it is no JSON.
    """
    try:
        return json.loads(text)
    except ValueError as error:
        raise FitError(f"{what}: cannot be read as JSON ({error})") from error


def load_json(path: str | Path, what: str) -> Any:
    """What a JSON file holds.

    Raises
    ------
    FitError
        When it cannot be read, or is no JSON.
    """
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise FitError(f"{what} {path}: cannot be read as JSON ({error}); save one first") from error
