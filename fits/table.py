"""The README's table of measured numbers, made from the committed results.

python fits/table.py            print it
python fits/table.py --write    put it into README.md between its markers
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pages import load, markers, print_or_write, shown
from pages import table as markdown

MARKERS = markers("measured numbers", "table.py")
FITS = {"smollm2_words": "word concepts", "smollm2_trec": "TREC questions", "smollm2_agnews": "AG News"}
HEAD = "L18H6"


def against_chance(behaviour: dict[str, Any]) -> str:
    """Accuracy with its interval, and chance."""
    return f"{shown(behaviour['accuracy'])}, chance {behaviour['chance']:.2f}"


def reader(report: dict[str, Any]) -> dict[str, Any]:
    """The row of the head that the table follows."""
    return next(row for row in report["stage"]["readers"]["rows"] if row["head"] == HEAD)


def readers(report: dict[str, Any]) -> str:
    """How many heads are readers, and the first few."""
    names = report["readers"]
    return f"{len(names)}: {', '.join(names[:4])}{', ...' if len(names) > 4 else ''}" if names else "none"


def constants(report: dict[str, Any]) -> str:
    """Base and match constant of the first chosen head."""
    head = report["heads"][0]
    row = report["constants"][head]
    return f"{head}: {shown(row['base'])}, {shown(row['match'])}"


def first_r2(report: dict[str, Any]) -> str:
    """Held-out label-mass R^2 of the first chosen head."""
    head = report["heads"][0]
    return f"{head}: {shown(report['validation']['attention'][head]['r2'])}"


def difference(name: str) -> Callable[[dict[str, Any]], str]:
    """KL of the chosen link minus that of another prediction, paired by context."""
    return lambda report: shown(report["validation"]["differences"].get(name), 3)


def match(report: dict[str, Any]) -> str:
    """The match that cross-validation on the fit distribution took."""
    chosen = report.get("match")
    if chosen is None or chosen["similarity"]["similarity"] == "binary":
        return "binary"
    return f"graded, entering layer {chosen['similarity']['layer']}"


ROWS: list[tuple[str, Callable[[dict[str, Any]], str]]] = [
    ("accuracy on the fit distribution", lambda r: against_chance(r["behaviour"])),
    ("accuracy on the held-out target", lambda r: against_chance(r["target_behaviour"])),
    ("probability on the labels (target)", lambda r: shown(r["target_behaviour"]["label_mass"])),
    ("readers", readers),
    (f"{HEAD}: attention to a matching minus to another label", lambda r: shown(reader(r)["gap"], 3)),
    ("match", match),
    ("constants base, match", constants),
    ("R² of label masses on the target", first_r2),
    ("chosen link and number of heads", lambda r: f"{r['link']}, {len(r['heads'])}"),
    ("KL(model ‖ readout) on the target", lambda r: shown(r["validation"]["links"][r["link"]]["kl"], 3)),
    ("... minus label frequency", difference("label_frequency")),
    ("... minus match + log count, which needs no attention", difference("match_log_count")),
    ("... minus the same similarity + log count, without attention", difference("similarity_log_count")),
    ("... minus the same fit on random heads of the same layers", difference("random_heads")),
    ("... minus the fit with matches permuted", difference("permuted_match")),
    ("share of the skill that the observed attention reaches", lambda r: shown(r["validation"]["ceiling_share"])),
    ("does the fit have ground?", lambda r: "yes" if r["has_ground"] else "no: " + r["notes"][0].split(" (")[0]),
]


def made() -> str:
    """The table in Markdown."""
    reports = [load(name) for name in FITS]
    rows = [[name, *(told(report) for report in reports)] for name, told in ROWS]
    return markdown(["SmolLM2-135M", *FITS.values()], rows)


if __name__ == "__main__":
    print_or_write(made, MARKERS)
