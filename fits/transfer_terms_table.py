"""The tables of further terms, pooling and the query-key form, made from the committed results.

python fits/transfer_terms_table.py            print them
python fits/transfer_terms_table.py --write    put them into its page between their markers
"""

from __future__ import annotations

from typing import Any

from pages import load, markers, print_or_write, shown, table

MARKERS = markers("terms", "transfer_terms_table.py")
FORM = "class means"
AGAINST = "match + log count"


def constants(found: dict[str, Any]) -> str:
    """The first head's constants of a term, or why it has none."""
    if "status" in found:
        return next(iter(found["status"].values()))
    row = next(iter(found["constants"].values()))
    return ", ".join(shown(one) for one in row.values())


def terms_table(pairs: dict[str, Any]) -> str:
    """Each term's constants on the source and what it changes on the target."""
    rows = []
    for name, pair in pairs.items():
        for term, found in pair["terms"].items():
            gains = [shown(found["minus plain"][what], 3) for what in ("attention", "labels")]
            rows.append([f"{name}, {pair['heads'][0]}", term, constants(found), *gains])
        for size, gain in pair["pooling"].items():
            if size != "heads":
                told = f"pooled, {len(pair['pooling']['heads'])} readers, fitted to {size}"
                rows.append([name, told, "-", *(shown(gain[what], 3) for what in ("attention", "labels"))])
    head = ["source", "term", "constants on the source", "target: attention, nats a prompt", "target: KL of labels"]
    return table(head, rows)


def form_table(pairs: dict[str, Any]) -> str:
    """The match from class means of queries and keys beside binary and graded."""
    rows = []
    for name, pair in pairs.items():
        row = pair["pooled"]
        kl = [f"{row[one]['kl']['value']:.3f}" for one in (AGAINST, "binary", FORM, "graded")]
        rows.append([name, *kl, shown(row[FORM][f"minus {AGAINST}"], 3), shown(row[FORM]["minus graded"], 3)])
    head = ["KL", AGAINST, "binary", FORM, "graded", f"{FORM} minus {AGAINST}", f"{FORM} minus graded"]
    return table(head, rows)


def made() -> str:
    """Both tables in Markdown."""
    return "\n\n".join(
        [terms_table(load("transfer_terms")["pairs"]), form_table(load("transfer_class_means")["pairs"])]
    )


if __name__ == "__main__":
    print_or_write(made, MARKERS)
