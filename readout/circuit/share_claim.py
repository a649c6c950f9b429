"""Claims whose effect is a share of a logit difference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Shaped

from readout.circuit.claim import TITLES, Claim, Part, rule, verdict
from readout.circuit.evidence import FLIPS, LEAST_LOGIT_DIFFERENCE, paired_shares
from readout.statistics import Estimate, cluster_mean
from readout.statistics.estimate import number_or_none

NEGLIGIBLE = 0.1
"""Share of a behaviour that counts as nothing: a tenth of what a claim predicts in full."""


def unmeasured(n: int, clusters: int, why: str) -> Estimate:
    """An estimate that could not be made."""
    return Estimate(np.nan, np.nan, np.nan, np.nan, n, clusters, why)


def has_behaviour(total: Estimate) -> bool:
    """Whether a logit difference is reliably above 0 and large enough to take shares of."""
    return bool(total.low > 0 and total.value >= LEAST_LOGIT_DIFFERENCE)


def corrected_over(number: int, what: str = "heads") -> str:
    """The method of `flip_p_values` in words."""
    return f"family-wise error by max-T over {FLIPS} sign flips of contexts, over {number} {what}"


def share_claim(
    number: int,
    measure: str,
    moved: Float[np.ndarray, " n"],
    control: Float[np.ndarray, " n"],
    total: Float[np.ndarray, " n"],
    contexts: Shaped[np.ndarray, " n"],
    p: float,
    p_method: str,
    parts: Sequence[Part] = (),
    curves: dict[str, Any] | None = None,
    notes: Sequence[str] = (),
) -> Claim:
    """The claim that an intervention takes away, or turns round, a share of a logit difference.

    Parameters
    ----------
    number, measure
        Of the claim.
    moved, control, total
        [n] in nats, of each prompt: what the intervention and its control moved, and the whole that there is to move.
    contexts
        [n] clusters.
    p, p_method, parts, curves, notes
        As in `Claim`.

    Returns
    -------
    Claim
        Undecided where there is no behaviour to explain.
    """
    effect, beside, difference = paired_shares(moved, control, total, np.asarray(contexts))
    whole = cluster_mean(total, contexts)
    decided = verdict(effect, difference, p, NEGLIGIBLE)
    said = [note for note in notes if note]
    if not has_behaviour(whole):
        decided = "undecided"
        said.append(f"there is no behaviour to explain: {whole.summary()} nats to take shares of")
    return Claim(
        number,
        TITLES[number],
        measure,
        effect,
        beside,
        difference,
        p,
        p_method,
        len(total),
        whole.clusters,
        decided,
        rule(NEGLIGIBLE),
        tuple(parts),
        {"total": whole.to_dict(), **(curves or {})},
        tuple(said),
    )


def untested(
    number: int,
    measure: str,
    why: str,
    prompts: int,
    contexts: int,
    parts: Sequence[Part] = (),
    curves: dict[str, Any] | None = None,
) -> Claim:
    """The claim that could not be tested, and why: undecided."""
    nothing = unmeasured(prompts, contexts, why)
    return Claim(
        number,
        TITLES[number],
        measure,
        nothing,
        nothing,
        nothing,
        np.nan,
        "not tested",
        prompts,
        contexts,
        "undecided",
        rule(NEGLIGIBLE),
        tuple(parts),
        curves or {},
        (why,),
    )


def plain(values: Float[np.ndarray, " n"]) -> list[float | None]:
    """A curve's numbers, ready for JSON."""
    return [number_or_none(float(value)) for value in values]
