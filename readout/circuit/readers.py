"""Claim 3: readers, the heads that attend to labels of the query's class and copy them out; and anti-copying heads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from readout.circuit.claim import Claim, Part
from readout.circuit.edits import Intervention, ablate
from readout.circuit.engine import intervene
from readout.circuit.evidence import flip_p_values, rank_p, shares
from readout.circuit.observe import observe
from readout.circuit.outcome import Outcome
from readout.circuit.random_heads import Head, RandomSets, random_sets
from readout.circuit.setting import Setting
from readout.circuit.share_claim import corrected_over, plain, share_claim, untested
from readout.errors import InterventionError
from readout.fitting.readers import ReaderRow, ReaderTable, judge_heads
from readout.models import LanguageModel
from readout.records.schema import head_name
from readout.statistics import Estimate

READER = (
    "attends more to labels of the query's class than to others (max-T over permutations of matches), raises the "
    "labels that it attends to, and lowers the logit difference when its output at the query is replaced by the mean"
)
ANTI_COPYING = (
    "attends more to labels of the query's class than to others (max-T over permutations of matches) and pushes down "
    "the labels that it attends to"
)
ALPHA = 0.05
"""Family-wise error over all heads of the gap test that names readers: their effects are tested on other prompts."""
MEASURE = (
    "fall of the logit difference when all readers' outputs at the query are replaced by their means, as a share of "
    "the unedited one"
)


def named(claim: Claim, role: str) -> tuple[Head, ...]:
    """Heads that a claim names in a role, the strongest first."""
    return tuple((part.layer, part.head) for part in claim.parts if part.role == role)


def size(setting: Setting) -> tuple[int, int]:
    """Number of testing prompts and of their contexts."""
    return len(setting.testing), len({one.prompt.context for one in setting.testing})


def no_direct_effect(model: LanguageModel) -> str:
    """Why heads cannot be told by what they do to labels."""
    return (
        f"heads are named by their direct effect on labels, which is not defined in {model.name}: "
        f"{model.wiring.why_no_effect}"
    )


def name_heads(setting: Setting) -> ReaderTable:
    """Sort all heads into readers, anti-copying and others on the choosing half, with effects on the testing half.

    Raises
    ------
    InterventionError
        If heads' direct effects on logits are not defined in this model.
    """
    if setting.model.wiring.why_no_effect:
        raise InterventionError(no_direct_effect(setting.model))
    choosing, testing = observe(setting.model, setting.choosing), observe(setting.model, setting.testing)
    return judge_heads(choosing, testing, alpha=ALPHA, seed=setting.seed)


def claim_3(setting: Setting, known: Mapping[int, Claim], progress: bool = False) -> Claim:
    """Readers: named by attention gap and copying, tested by ablation against random heads of the same layers.

    Parameters
    ----------
    setting : Setting
        Model and prompts; heads are named on the choosing half and tested on the other.
    known : mapping of int to Claim
        Not used: this claim comes first.
    progress : bool
        Whether to show a bar.

    Returns
    -------
    Claim
        With parts "reader" and "anti-copying", the widest gap first. Its curves: mean logit difference `unedited`, with
        the readers ablated (`named`) and with each random set ablated (`random`); `sweep`: every head's own ablation
        (`heads`, mean `change` of the logit difference, two-sided corrected `p`).
    """
    model, heads = setting.model, setting.model.heads
    if model.wiring.why_no_effect:
        return untested(3, MEASURE, no_direct_effect(model), *size(setting))
    table = name_heads(setting)
    of_name = {head_name(*head): head for head in heads}
    readers = [of_name[name] for name in table.readers]
    sets = random_sets(model, readers, setting.draws if readers else 0, setting.seed)
    outcome = intervene(
        model,
        setting.testing,
        _ablations(heads, readers, sets),
        reference=[*setting.choosing, *setting.testing],
        progress=progress,
    )
    sweep = Sweep(heads, -outcome.effect()[: len(heads)], outcome, setting.seed)
    parts = [sweep.part(table[name], "reader", READER, table.readers) for name in table.readers]
    pushing = table.of_kind("anti-copying")
    parts += [sweep.part(table[name], "anti-copying", ANTI_COPYING, pushing) for name in pushing]
    difference = outcome.logit_difference(outcome.unedited)
    curves: dict[str, Any] = {"unedited": float(difference.mean()), "sweep": sweep.curve()}
    if not readers:
        why = f"no head passes as a reader on the choosing half ({table.method}, at most {table.alpha:g})"
        return untested(3, MEASURE, why, *size(setting), parts, curves)
    falls = -outcome.effect()[len(heads) :]
    left = (difference - falls).mean(1)
    curves |= {"named": float(left[0]), "random": plain(left[1:]), "different_sets": sets.different}
    return share_claim(
        3,
        MEASURE,
        falls[0],
        falls[1:].mean(0),
        difference,
        outcome.contexts,
        rank_p(float(falls[0].mean()), falls[1:].mean(1)),
        f"rank among {setting.draws} draws of {len(readers)} random heads from the same layers",
        parts,
        curves,
        [sets.note],
    )


def _ablations(heads: Sequence[Head], readers: Sequence[Head], sets: RandomSets) -> list[Intervention]:
    """Every head alone, then the readers together, then each random set."""
    together = [ablate(list(readers), name="readers")] if readers else []
    random = [ablate(list(one), name=f"random {number}") for number, one in enumerate(sets.sets)]
    return [ablate([head]) for head in heads] + together + random


@dataclass(frozen=True, eq=False)
class Sweep:
    """Every head's own ablation at the query.

    Parameters
    ----------
    heads : sequence of (int, int)
        All heads.
    falls : float32 [heads, prompts]
        Fall of the logit difference, nats.
    outcome : Outcome
        Where they come from.
    seed : int
        Of the tests.
    """

    heads: Sequence[Head]
    falls: Float[np.ndarray, "heads prompts"]
    outcome: Outcome
    seed: int

    def curve(self) -> dict[str, Any]:
        """Mean change of the logit difference by head, and two-sided p-values."""
        both = np.concatenate([self.falls, -self.falls]).T
        p = flip_p_values(both, self.outcome.contexts, self.seed).reshape(2, -1)
        return {
            "heads": [head_name(*head) for head in self.heads],
            "change": plain(-self.falls.mean(1)),
            # A head that changes nothing at all cannot be tested: nan in both directions.
            "p": plain(np.where(np.isnan(p[0]), p[1], np.fmin(p[0], p[1]))),
            "p_method": corrected_over(2 * len(self.heads), "one-sided tests, two a head"),
        }

    def part(self, row: ReaderRow, role: str, definition: str, among: Sequence[str]) -> Part:
        """Evidence on a named head, tested together with the others of its role (`among`)."""
        names = [head_name(*head) for head in self.heads]
        own = names.index(row.head)
        layer, head = self.heads[own]
        sign = 1.0 if role == "reader" else -1.0
        tested = sign * self.falls[[names.index(name) for name in among]].T
        p = flip_p_values(tested, self.outcome.contexts, self.seed)[list(among).index(row.head)]
        same_layer = [place for place, name in enumerate(names) if self.heads[place][0] == layer and name not in among]
        control = self.falls[same_layer].mean(0) if same_layer else np.full(len(self.falls[0]), np.nan)
        difference = self.outcome.logit_difference(self.outcome.unedited)
        effect, beside = shares(
            sign * np.stack([self.falls[own], control], 1), difference, self.outcome.contexts
        )  # fmt: skip
        means = sign * self.falls.mean(1)
        return Part(
            role,
            row.head,
            layer,
            head,
            definition,
            effect,
            beside if same_layer else None,
            float(p),
            corrected_over(len(among), f"{role} heads"),
            {
                "change_of_logit_difference": -float(self.falls[own].mean()),
                "logit_difference_without_it": float((difference - self.falls[own]).mean()),
                "rank_of_all_heads": float(1 + (means > means[own]).sum()),
                **_with_interval("gap", row.gap),
                **_with_interval("copy_slope", row.copy_slope),
                "copy_correlation": row.correlation,
                "attention_to_a_matching_label": row.matching.value,
                "attention_to_another_label": row.others.value,
                "gap_p_on_choosing_half": row.p_value,
            },
        )


def _with_interval(name: str, estimate: Estimate) -> dict[str, float]:
    return {name: estimate.value, f"{name}_low": estimate.low, f"{name}_high": estimate.high}
