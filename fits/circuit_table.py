"""The tables of the circuit's claims, made from the committed results.

python fits/circuit_table.py            print it
python fits/circuit_table.py --write    put it into its page between its markers
"""

from __future__ import annotations

from typing import Any

from pages import load, markers, print_or_write, shown, table

from readout.circuit.claim import LEVEL, TITLES

MARKERS = markers("claims", "circuit_table.py")
MODELS = {"circuit_tiny": "tiny", "circuit_smollm2": "SmolLM2-135M"}
MOST = 4


def cell(claim: dict[str, Any]) -> str:
    """Verdict, effect and control of a claim that has them; of its components where it has several."""
    supported = claim["supported"] if isinstance(claim["supported"], str) else str(claim["supported"]).lower()
    if claim["effect"] is None:
        return f"**{supported}**"
    components = claim["curves"].get("components")
    if not components:
        told = [f"{number(claim)} (control {value(claim['control'])})"]
    else:
        told = [f"{one['name']} {number(one['effect'])} (control {value(one['control'])})" for one in components]
    return f"**{supported}** " + "; ".join(told)


def number(estimate: dict[str, Any]) -> str:
    """An estimate, of a claim ("effect", "low", "high") or of its own."""
    return shown({"value": estimate.get("value", estimate.get("effect")), **{k: estimate[k] for k in ("low", "high")}})


def value(control: Any) -> str:
    """The control's value alone."""
    own = control["value"] if isinstance(control, dict) else control
    return "-" if own is None else f"{round(own, 2) + 0.0:.2f}"


def parts(report: dict[str, Any], role: str) -> str:
    """Names of the parts of one role, with their effect."""
    found = [p for claim in report["claims"].values() for p in claim["parts"] if p["role"] == role and holds(p)]
    found += [part for part in report["token_heads"] if part["role"] == role]
    names = [f"{part['name']} {shown(part['effect'])}" for part in found[:MOST]]
    return ", ".join(names) + (f", ... ({len(found)})" if len(found) > MOST else "") if names else "none"


def holds(part: dict[str, Any]) -> bool:
    """Whether a part's effect is above 0 on the prompts that did not choose it."""
    return bool(part["effect"]["low"] > 0 and part["p"] is not None and part["p"] < LEVEL)


def residual(report: dict[str, Any]) -> str:
    """The logit difference with class-swapped residual streams at the labels, where it is still whole and turned."""
    curve = report["claims"]["2"]["curves"]["residual"]
    turned = [layer for layer, got in zip(curve["layer"], curve["logit_difference"], strict=True) if got < 0]
    if not turned:
        return "does not turn"
    told = []
    for layer in (turned[0] - 3, turned[0]):
        at = curve["layer"].index(max(layer, 0))
        ends = {"value": curve["logit_difference"][at], "low": curve["low"][at], "high": curve["high"][at]}
        told.append(f"{shown(ends)} entering layer {max(layer, 0)}")
    return ", ".join(told)


def made() -> str:
    """The tables of claims and of parts, and what the nulls gave."""
    reports = {name: load(name) for name in MODELS}
    behaviour = [report["behaviour"] for report in reports.values()]
    rows = [["accuracy", *(f"{shown(b['accuracy'])}, chance {b['chance']:.2f}" for b in behaviour)]]
    rows.append(["logit difference, nats", *(shown(b["logit difference"]) for b in behaviour)])
    for claim, title in TITLES.items():
        rows.append([f"{claim}. {title}", *(cell(report["claims"][str(claim)]) for report in reports.values())])
    for role in ("reader", "writer", "gate", "suppressor", "anti-copying", "induction"):
        rows.append([role, *(parts(report, role) for report in reports.values())])
    name = "logit difference, residual streams at the labels from class-swapped prompts"
    rows.append([name, *(residual(report) for report in reports.values())])
    nulls = load("circuit_null")["nulls"]
    most = {name: max(null["share true"].values()) for name, null in nulls.items()}
    told = ", ".join(f"{share:.2f} with {name} ({nulls[name]['runs']} runs)" for name, share in most.items())
    return (
        table(["", *MODELS.values()], rows)
        + f"\n\nWhere nothing can be there, the claim that comes out true most often does so in a share of {told}."
    )


if __name__ == "__main__":
    print_or_write(made, MARKERS)
