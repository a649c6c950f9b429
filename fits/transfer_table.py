"""The tables of graded and binary matches on held-out distributions, made from the committed results.

python fits/transfer_table.py            print them
python fits/transfer_table.py --write    put them into its page between their markers
"""

from __future__ import annotations

from typing import Any

from pages import load, markers, print_or_write, shown, table

MARKERS = markers("transfer", "transfer_table.py")
AGAINST = "match + log count"
ROWS = (
    "label frequency",
    AGAINST,
    "binary",
    "graded",
    "similarity + log count",
    "graded, encoder cosine",
    "graded, random heads of the same layers",
    "observed attention, same heads and link",
    "observed attention, power",
)
MODES = ("binary", "graded")


def errors_table(pairs: dict[str, Any]) -> str:
    """KL of every prediction, and its paired difference from match + log count, one row a pair."""
    rows = []
    for name in ROWS:
        row = [name]
        for pair in pairs.values():
            found = next((own for key, own in pair["pooled"].items() if same(key, name)), None)
            row.append("-" if found is None else cell(found, name))
        rows.append(row)
    accuracy = ["accuracy (chance), contexts"]
    for pair in pairs.values():
        draws = list(pair["draws"].values())
        mean = sum(draw["behaviour"]["accuracy"]["value"] for draw in draws) / len(draws)
        chance = sum(draw["behaviour"]["chance"] for draw in draws) / len(draws)
        accuracy.append(f"{mean:.2f} ({chance:.2f}), {sum(draw['contexts'] for draw in draws)}")
    return table(["KL(model ‖ prediction), nats", *pairs], [accuracy, *rows])


def same(key: str, name: str) -> bool:
    """Whether a prediction is the one of a row; the ceiling's name tells the number of its readers."""
    return key == name or (name == "observed attention, power" and key.startswith("observed") and key.endswith("power"))


def cell(row: dict[str, Any], name: str) -> str:
    """KL and difference."""
    own = f"{row['kl']['value']:.3f}"
    return own if name == AGAINST else f"{own} ({shown(row[f'minus {AGAINST}'], 3)})"


def constants_table(pairs: dict[str, Any]) -> str:
    """How far the first head's constants move from source to target, in standard errors, and the R² that they carry."""
    rows = []
    for pair, own in pairs.items():
        row = [pair]
        for mode in MODES:
            draws = [draw["constants"][mode] for draw in own["draws"].values()]
            head = next(iter(draws[0]))
            ours = [draw[head] for draw in draws if head in draw]
            for term in ("base", "match"):
                values = " / ".join(f"{one[term]['difference']['value']:+.2f}" for one in ours)
                steps = " / ".join(f"{abs(z(one[term]['difference'])):.1f}" for one in ours)
                row.append(f"{head if term == 'base' else ''} {values} ({steps} s.e.)".strip())
            row.append(" / ".join(f"{one['r2']['value']:.2f}" for one in ours))
        rows.append(row)
    head = [f"{mode}: {what}" for mode in MODES for what in ("base moves", "match moves", "R² carried over")]
    return table(["", *head], rows)


def z(difference: dict[str, Any]) -> float:
    """A difference in standard errors."""
    return float(difference["value"] / difference["se"])


def terms_table(pairs: dict[str, Any]) -> str:
    """What further terms change on the targets, beside the graded match alone."""
    names = ["similarity + log count", "graded, random heads of the same layers"]
    further = [name for pair in pairs.values() for name in pair["pooled"] if name.startswith("graded + ")]
    rows = []
    for name in dict.fromkeys([*names, *further]):
        found = [pair["pooled"].get(name) for pair in pairs.values()]
        rows.append([name, *("-" if one is None else shown(one["minus graded"], 3) for one in found)])
    blind = "graded, pass blind to labels"
    told = [pair["with a blind pass"] for pair in pairs.values()]
    rows.append([blind, *("-" if one is None else shown(one[blind]["minus graded"], 3) for one in told)])
    return table(["KL minus that of the graded match", *pairs], rows)


def made() -> str:
    """All tables in Markdown."""
    result = load("transfer")
    pairs = result["pairs"]
    chosen = [
        f"{name}: {own['auto']}, {', '.join(own['graded']['heads'])}, {own['graded']['link']} link"
        for name, own in result["frozen"].items()
    ]
    told = "Chosen on the sources: " + "; ".join(chosen) + "."
    return "\n\n".join([told, errors_table(pairs), constants_table(pairs), terms_table(pairs)])


if __name__ == "__main__":
    print_or_write(made, MARKERS)
