"""The gate by number of shots, from fits/circuit_smollm2_N_shots.json.

python fits/gate_table.py            print it
python fits/gate_table.py --write    put it into its page between its markers
"""

from __future__ import annotations

from typing import Any

from circuit_table import value
from pages import load, markers, print_or_write, shown, table

MARKERS = markers("the gate by shots", "gate_table.py")
SHOTS = (2, 4, 8)


def component(claim: dict[str, Any], name: str) -> str:
    """Effect of a component, its control and its verdict."""
    own = next(one for one in claim["curves"]["components"] if one["name"] == name)
    return f"{shown(own['effect'])} (control {value(own['control'])}), {own['supported']}"


def patched(curves: dict[str, Any], place: str) -> str:
    """The largest share of the gate that patching a place in makes, and where."""
    patching = curves["patching"]
    by_layer = patching["opened"][place][0]
    best = max(range(len(by_layer)), key=lambda number: by_layer[number]["value"] or 0.0)
    return f"{shown(by_layer[best])} entering layer {patching['layers'][best]}"


def made() -> str:
    """One table."""
    reports = [load(f"circuit_smollm2_{shots}_shots") for shots in SHOTS]
    gates, steering = ([report["claims"][number] for report in reports] for number in ("4", "6"))
    curves = [claim["curves"] for claim in gates]
    signals = [one["signal"] for one in curves]
    rows = [
        ["accuracy (chance 0.50)", *(shown(one["behaviour"]["accuracy"]) for one in reports)],
        ["logit difference, nats", *(shown(one["behaviour"]["logit difference"]) for one in reports)],
        ["first reader", *(one["readers"][0] for one in curves)],
        ["gate: label mass", *(component(one, "label mass") for one in gates)],
        ["gate: its first-token attention", *(component(one, "first-token attention") for one in gates)],
        ["place of the signal", *(f"{one['place']} entering layer {one['layer']}" for one in signals)],
        ["gate: signal, share", *(component(one, "signal") for one in gates)],
        ["patched in at the query, largest share", *(patched(one, "query") for one in curves)],
        ["patched in at the last label, largest share", *(patched(one, "last label") for one in curves)],
    ]
    for name in ("opening", "closing", "keys"):
        rows.append([f"steering: {name}, share", *(component(one, name) for one in steering)])
    return table(["", *(f"{shots} shots a class" for shots in SHOTS)], rows)


if __name__ == "__main__":
    print_or_write(made, MARKERS)
