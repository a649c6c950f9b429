"""Words that summaries and messages share."""

from __future__ import annotations


def counted(number: int, noun: str, plural: str = "") -> str:
    """A number with its noun: "1 head", "2 heads"."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def p_value(p: float) -> str:
    """A p-value with its sign: "p 0.0312", "p < 0.0001", "p -" where there is none."""
    if p != p:
        return "p -"
    return "p < 0.0001" if p < 1e-4 else f"p {p:.4f}"
