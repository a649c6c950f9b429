"""The tables of label-word effects on held-out distributions, made from the committed results.

python fits/transfer_labels_table.py            print it
python fits/transfer_labels_table.py --write    put it into its page between its markers
"""

from __future__ import annotations

from typing import Any

from pages import load, markers, print_or_write, shown, table

MARKERS = markers("label words", "transfer_labels_table.py")
AGAINST = "match + log count"
WAYS = ("words with like unembeddings", "the same words", "the same words, shuffled")
ROWS = (AGAINST, "graded", *(f"{name} + {way}" for way in WAYS for name in (AGAINST, "graded")))
SHARE = "share of the ceiling's skill"


def differences(pairs: dict[str, Any], part: str) -> str:
    """KL of every prediction with the share of the ceiling's skill, one column a pair."""
    kept = {name: own[part] for name, own in pairs.items() if own[part] is not None and own["model"] != "tiny"}
    rows = []
    for name in ROWS:
        found = [own.get(name) for own in kept.values()]
        if any(found):
            rows.append([name, *("-" if one is None else cell(one) for one in found)])
    for way in WAYS[:2]:
        row = [f"graded minus {AGAINST}, both + {way}"]
        for own in kept.values():
            one = own.get(f"graded + {way}")
            row.append("-" if one is None else shown(one[f"minus {AGAINST} + {way}"], 3))
        rows.append(row)
    return table(["KL, nats (share of the ceiling's skill)", *kept], rows)


def cell(one: dict[str, Any]) -> str:
    """KL, its difference from the same without effects of words, and the share of the ceiling's skill."""
    return f"{one['kl']['value']:.3f} ({shown(one[SHARE])})"


def made() -> str:
    """Both tables in Markdown: the study's three draws, and the fresh one."""
    pairs = load("transfer_labels")["pairs"]
    fresh = differences(pairs, "fresh draw")
    return "\n\n".join([differences(pairs, "pooled"), "One more draw, made after all choices:", fresh])


if __name__ == "__main__":
    print_or_write(made, MARKERS)
