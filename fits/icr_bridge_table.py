"""The bridge between routing and the circuit, from fits/icr_bridge_smollm2.json and fits/icr_bridge_tiny.json.

python fits/icr_bridge_table.py [--write]
"""

from __future__ import annotations

from typing import Any

from pages import load, markers, print_or_write, shown, table

MARKERS = markers("routing and the circuit", "icr_bridge_table.py")
RESULTS = {"icr_bridge_smollm2": "SmolLM2-135M", "icr_bridge_tiny": "tiny"}
MEASURES = {
    "label mass": "probability of the label words",
    "first token": "readers' attention to the first token",
    "direct effect": "readers' direct effect on the right label, nats",
}


def gates(model: str, found: dict[str, Any]) -> list[list[str]]:
    """A row a router: whether its gates fall on readers, and on heads whose ablation lowers the logit difference."""
    rows = []
    for router, own in found["gates"].items():
        excess = "-" if own["excess"] is None else f"{own['excess']:.2f} (p {own['p']:.2f})"
        correlation = f"{own['correlation']:.2f} (p {own['correlation_p']:.2f})"
        rows.append([model, router, ", ".join(own["readers"]) or "none", excess, correlation])
    return rows


def levels(model: str, found: dict[str, Any]) -> list[list[str]]:
    """A row a measure: at zero shot, and how far each method moves it."""
    rows = []
    for measure, words in MEASURES.items():
        change = found["change"][measure]
        rows.append(
            [model, words, shown(found["level"][measure]["zero-shot"]), *(shown(one) for one in change.values())]
        )
    return rows


def made() -> str:
    """Two tables: where the gates fall, and what the routed bias opens."""
    found = {name: load(name) for name in RESULTS}
    falls = [row for name, model in RESULTS.items() for row in gates(model, found[name])]
    opens = [row for name, model in RESULTS.items() for row in levels(model, found[name])]
    changes = list(found["icr_bridge_smollm2"]["change"]["label mass"])
    first = [
        "model",
        "router",
        "readers among routed heads",
        "their gate minus other heads'",
        "gates and ablation, rank correlation",
    ]
    second = ["model", "measure", "zero-shot", *(f"change: {one}" if "minus" not in one else one for one in changes)]
    return f"{table(first, falls)}\n\n{table(second, opens)}"


if __name__ == "__main__":
    print_or_write(made, MARKERS)
