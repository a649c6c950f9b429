"""What turns numbers of prompts into evidence: shares of a whole, p-values, claims of several components."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from readout.circuit.claim import Verdict, rule, verdict
from readout.statistics import (
    Estimate,
    cluster_index,
    cluster_mean,
    cluster_ratios,
    cluster_sums,
    generator,
    max_t_p_values,
)
from readout.statistics.estimate import number_or_none
from readout.wording import p_value

FLIPS = 5000
_ROUNDING = 1e-5
# Spread over contexts, as a share of the largest effect, below which there is nothing but rounding.
LEAST_LOGIT_DIFFERENCE = 0.1
"""Nats; below it there is no behaviour to explain."""


@dataclass(frozen=True)
class Component:
    """One of the things that a claim says, with its own verdict.

    Parameters
    ----------
    name, measure
        What it is, and what the effect is, with its unit.
    effect, control, difference
        As in `readout.circuit.claim.Claim`.
    p
        Of the effect against the control.
    negligible
        A tenth of what the claim predicts in full.
    """

    name: str
    measure: str
    effect: Estimate
    control: Estimate
    difference: Estimate
    p: float
    negligible: float

    @property
    def supported(self) -> Verdict:
        """By the rule of all claims."""
        return verdict(self.effect, self.difference, self.p, self.negligible)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        estimates = {name: getattr(self, name).to_dict() for name in ("effect", "control", "difference")}
        told = {"p": number_or_none(self.p), "negligible": number_or_none(self.negligible)}
        return {"name": self.name, "measure": self.measure, **estimates, **told, "supported": self.supported}

    def note(self) -> str:
        """One line."""
        told = f"{self.effect.summary()}, control {self.control.summary()}, {p_value(self.p)}"
        return f"{self.name} {self.supported}: {told}"


def joint(components: Sequence[Component]) -> Verdict:
    """Verdict on all components together: true if all are, false if one is."""
    found = {one.supported for one in components}
    if found == {"true"}:
        return "true"
    return "false" if "false" in found else "undecided"


def joint_rule(components: Sequence[Component]) -> str:
    """The rule of `joint` in words."""
    names = ", ".join(one.name for one in components)
    bounds = ", ".join(f"{one.negligible:.3g} ({one.name})" for one in components)
    return f"each of {names} must be true, and one that is false makes the claim false. {rule(np.nan)}".replace(
        "below nan, a tenth of the whole", f"below a tenth of the whole: {bounds}"
    )


def joint_p(components: Sequence[Component]) -> float:
    """The largest p: all components must hold, so no correction is needed (Berger 1982, intersection-union)."""
    return float(np.max([one.p for one in components]))


def lack_of_behaviour(logit_difference: Float[np.ndarray, " n"], contexts: Int[np.ndarray, " n"]) -> str:
    """Why there is nothing to explain, in words; empty where the model does the task."""
    found = cluster_mean(logit_difference, contexts)
    if found.low > 0 and found.value >= LEAST_LOGIT_DIFFERENCE:
        return ""
    return (
        f"no behaviour to explain: the logit difference is {found.summary()} nats, not reliably above 0 or below "
        f"{LEAST_LOGIT_DIFFERENCE}; undecided"
    )


def flip_p_values(
    values: Float[np.ndarray, "n h"], contexts: Int[np.ndarray, " n"], seed: int, flips: int = FLIPS
) -> Float[np.ndarray, " h"]:
    """One-sided p-values that means are above 0, by flipping the signs of whole contexts, corrected over columns.

    Parameters
    ----------
    values
        Differences of prompts, a column a test.
    contexts
        Of the prompts.
    seed, flips
        Of the random signs.

    Returns
    -------
    [h]; NaN for a column that is 0 in all prompts.

    Source
    ------
    Single-step max-T (Westfall & Young 1993, algorithm 2.8) over sign flips of the contexts' t.
    """
    index, count = cluster_index(contexts)
    sums = cluster_sums(np.asarray(values, np.float64), index, count)
    signs = generator(seed).choice([-1.0, 1.0], size=(flips, count))
    # Rounding errors of a head that does nothing must not look significant for being the same everywhere.
    floor = count * (_ROUNDING * np.abs(sums).max(initial=0.0)) ** 2

    def statistics(drawn: np.ndarray) -> np.ndarray:
        total, square = drawn @ sums, (sums**2).sum(0)
        with np.errstate(invalid="ignore", divide="ignore"):
            t: np.ndarray = total / np.sqrt(np.maximum(square - total**2 / count, 0.0) + floor)
        return np.where(square > 0, t, np.nan)

    return max_t_p_values(statistics(np.ones((1, count)))[0], statistics(signs))


def rank_p(value: float, draws: Float[np.ndarray, " b"]) -> float:
    """How often a random draw reaches the value: (1 + number) / (1 + draws)."""
    return float((1 + (draws >= value).sum()) / (1 + len(draws)))


def shares(
    parts: Float[np.ndarray, "n q"], whole: Float[np.ndarray, " n"], contexts: Int[np.ndarray, " n"]
) -> list[Estimate]:
    """Sums of parts as shares of the sum of the whole, with clustered intervals."""
    return cluster_ratios(parts, np.repeat(np.asarray(whole)[:, None], parts.shape[1], 1), contexts)


def paired_shares(
    effect: Float[np.ndarray, " n"],
    control: Float[np.ndarray, " n"],
    whole: Float[np.ndarray, " n"],
    contexts: Int[np.ndarray, " n"],
) -> tuple[Estimate, Estimate, Estimate]:
    """Effect, control and their paired difference, each as a share of the whole."""
    columns = np.column_stack([effect, control, effect - control])
    found = shares(columns, whole, contexts)
    return found[0], found[1], found[2]
