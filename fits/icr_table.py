"""All tables of in-context routing, from fits/icr_smollm2.json and fits/icr_tiny.json.

python fits/icr_table.py [--write]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pages import HERE, load, markers, print_or_write, shown, table

RESULTS = {"icr_smollm2": "SmolLM2-135M", "icr_tiny": "the built-in model"}
MARKERS = markers("in-context routing", "icr_table.py")


def points(estimate: dict[str, Any] | None) -> str:
    """A difference of accuracies in points, with its interval."""
    if estimate is None:
        return "-"
    return shown({key: None if estimate[key] is None else 100 * estimate[key] for key in ("value", "low", "high")}, 1)


def accuracies(result: dict[str, Any], methods: Sequence[str] = ()) -> str:
    """A row a method: accuracy on each set in percent, averages in points, collapses; of all methods or of these."""
    names = list(result["groups"])
    head = ["method (seeds)", *(f"{name} ({result['groups'][name]})" for name in names)]
    head += ["in-domain - zero-shot", "ICR - this, in-domain", "near and far - zero-shot", "collapses (significant)"]
    rows = []
    for method in methods or result["methods"]:
        own = result["methods"][method]
        cells = [f"{100 * own['sets'][one]['accuracy']['value']:.1f}" if one in own["sets"] else "-" for one in names]
        cells += [
            points(own["averages"].get(group, {}).get(what))
            for group, what in (("in-domain", "difference"), ("in-domain", "icr minus this"), ("out", "difference"))
        ]
        if method == "zero-shot":
            cells[-3] = cells[-1] = "-"
        collapses = "-" if method == "zero-shot" else f"{own['collapse_raw']} ({own['collapse_significant']})"
        rows.append([f"{method} ({own['seeds']})", *cells, collapses])
    return table(head, rows)


def recoveries(result: dict[str, Any]) -> str:
    """A row a method: recovery on each set where few-shot is significantly better."""
    found = {
        method: {name: one["recovery"] for name, one in own["sets"].items() if one["recovery"]}
        for method, own in result["methods"].items()
        if method not in ("zero-shot", "few-shot")
    }
    names = [name for name in result["groups"] if any(name in own for own in found.values())]
    if not names:
        return ""
    rows = [[method, *(shown(own.get(name)) for name in names)] for method, own in found.items() if own]
    return table(["recovery of few-shot's gain", *names], rows)


def made() -> str:
    """All tables."""
    parts = []
    for name, model in RESULTS.items():
        if (HERE / f"{name}.json").exists():
            result = load(name)
            parts += [f"{model[0].upper()}{model[1:]} (`fits/{name}.json`), accuracy in percent:", accuracies(result)]
            parts += [one for one in (recoveries(result),) if one]
    return "\n\n".join(parts)


if __name__ == "__main__":
    print_or_write(made, MARKERS)
