"""Words that summaries and messages share."""

from __future__ import annotations


def counted(number: int, noun: str, plural: str = "") -> str:
    """A number with its noun: "1 head", "2 heads"."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"
