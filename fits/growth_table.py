"""The README's tables about the transformer trained from scratch, made from the committed results.

python fits/growth_table.py            print them
python fits/growth_table.py --write    put them into its page between their markers

What counts as what was fixed before the runs of the present recipe were looked at. Parking: a reader gives the first
token at least .25 more attention without a repeated label than with one. Suppressor: a head, not a reader, that attends
to the last label at least twice as much as to the others, whose direct effect on it is at most -.1 and whose mean
ablation raises it by at least .1 (log-odds in nats). The gate works with one repeat where it moves the probability of
the matching label by at least .5.
"""

from __future__ import annotations

from typing import Any

from pages import load, markers, print_or_write, table

MARKERS = markers("built-in model", "growth_table.py")
PARKING, SUPPRESSION, GATE, BOUND = 0.25, 0.1, 0.5, 300


def parks(heads: dict[str, Any]) -> float:
    """The readers' greatest rise of attention to the first token when no label repeats; nan without a reader."""
    rises = [head["first_none"] - head["first_repeat"] for head in heads.values() if head["reader"]]
    return max(rises, default=float("nan"))


def suppressing(found: dict[str, Any], readers: set[str]) -> list[str]:
    """Heads that count as separate suppressors, by name."""
    return [
        name
        for name, head in found["heads"].items()
        if name not in readers
        and head["last"] >= 2 * head["others"]
        and head["effect"] <= -SUPPRESSION
        and head["ablated"] >= SUPPRESSION
    ]


def seeds_table(growth: dict[str, Any]) -> str:
    """One row a seed, and the mean of the random weights that they started from."""
    rows = []
    for seed, run in sorted(growth["seeds"].items()):
        last = run["checkpoints"][-1]
        rows.append(
            [seed, str(round(run["cpu_seconds"])), str(run["phases"][0]["end"]), accuracy(run), *measures(last)]
        )
        rows[-1] += [f"{run['held_out'][name]:.3f}" for name in ("readout_kl", "frequency_kl")]
    first = [run["checkpoints"][0] for run in growth["seeds"].values()]
    mean = {name: sum(row[name] for row in first) / len(first) for name in first[0]}
    rows.append(["random weights", "", "", f"{mean['accuracy']:.2f}", *measures(mean), "", ""])
    head = ["seed", "CPU s", "copying learned at step", "least accuracy, 2-6 classes"]
    head += ["reader's gap", "writers' effect", "gate, all repeat", "gate, one repeats"]
    return table([*head, "last label", "KL(model ‖ readout)", "KL of label frequency"], rows)


def accuracy(run: dict[str, Any]) -> str:
    """The least accuracy over the numbers of classes."""
    return f"{min(run['accuracy_by_classes'].values()):.2f}"


def measures(row: dict[str, float]) -> list[str]:
    """What is shown of a checkpoint."""
    return [f"{row[name]:.2f}" for name in ("reader_gap", "writer_effect", "gate_whole", "gate_pair", "suppression")]


def first_phase(run: dict[str, Any]) -> str:
    """Steps of the first phase, "never" where it ended unlearned; a dash where the recipe has only the last one."""
    phase = run["phases"][0]
    return "-" if phase["name"] == "noise" else str(phase["end"]) if phase["reason"] == "learned" else "never"


def ablations_table(growth: dict[str, Any], ablations: dict[str, Any]) -> str:
    """One row a recipe, the values of its seeds beside each other, on the seeds that the ablations ran on."""
    shown = {name: entry["seeds"] for name, entry in ablations["ablations"].items() if entry["seeds"]}
    seeds = sorted({seed for runs in shown.values() for seed in runs})
    shown = {"the recipe": {seed: growth["seeds"][seed] for seed in seeds}} | shown
    rows = []
    for name, runs in shown.items():
        ordered = [runs[seed] for seed in sorted(runs)]
        last = [run["checkpoints"][-1] for run in ordered]
        rows.append([name, " / ".join(sorted(runs)), join(first_phase(run) for run in ordered)])
        rows[-1] += [join(accuracy(run) for run in ordered)]
        rows[-1] += [join(f"{row[key]:.2f}" for row in last) for key in ("reader_gap", "gate_whole", "gate_pair")]
        rows[-1] += [join(f"{run['held_out']['readout_kl']:.2f}" for run in ordered)]
    head = ["recipe", "seeds", "copying learned at step", "least accuracy, 2-6 classes", "reader's gap"]
    return table([*head, "gate, all repeat", "gate, one repeats", "KL(model ‖ readout)"], rows)


def join(values: Any) -> str:
    """Values of several seeds in one cell."""
    return " / ".join(values)


def search_told(search: dict[str, Any]) -> str:
    """What the search found, over all its runs."""
    runs = [*search["recipe"].values(), *(run for v in search["variants"].values() for run in v["seeds"].values())]
    sides = [run["parking"][side]["heads"] for run in runs for side in ("all", "one")]
    rises = [parks(heads) for heads in sides]
    most = max(rise for rise in rises if rise == rise)
    found = 0
    for run in runs:
        readers = {name for name, head in run["parking"]["all"]["heads"].items() if head["reader"]}
        found += bool(suppressing(run["suppressors"], readers))
    variants = ", ".join(f"{name} ({entry['what']})" for name, entry in search["variants"].items())
    return (
        f"The search for recipes in which readers park on the first token without a repeat, or in which separate "
        f"suppressor heads grow, took {len(search['variants'])} variants with two seeds each beside the recipe's five: "
        f"{variants}. In none of the {len(runs)} models do readers park: what they give the first token rises by at "
        f"most {most:.3f} without a repeat (parking was to be {PARKING}). Separate suppressors: in {found} of "
        f"{len(runs)}."
    )


def made() -> str:
    """All tables in Markdown, with the machine's speed."""
    growth = load("growth")
    gates = [run["checkpoints"][-1]["gate_pair"] >= GATE for run in growth["seeds"].values()]
    seconds = [run["cpu_seconds"] for run in growth["seeds"].values()]
    slow = sum(value > BOUND for value in seconds)
    speed = (
        "CPU seconds, measures included, are those of a machine that multiplies float32 matrices at "
        f"{growth['gigaflops']:.0f} GFLOP/s on one thread and did other work meanwhile; {slow} of {len(gates)} seeds "
        f"took more than the {BOUND} meant. The gate works with a single repeat in {sum(gates)} of {len(gates)} seeds "
        f"(at least {GATE})."
    )
    parts = [seeds_table(growth), speed]
    parts += [ablations_table(growth, load("recipe_ablations")), search_told(load("parking_search"))]
    return "\n\n".join(parts)


if __name__ == "__main__":
    print_or_write(made, MARKERS)
