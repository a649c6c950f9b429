"""What patching from a partner prompt moves: the logit difference and readers' gaps, towards the partner's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Int

from readout.circuit.edits import Intervention, Patch
from readout.circuit.engine import intervene
from readout.circuit.evidence import shares
from readout.circuit.pairs import Pairs
from readout.circuit.random_heads import Head
from readout.models import LanguageModel
from readout.statistics import Estimate, cluster_means

PARTNER = Patch("partner")


@dataclass(frozen=True, eq=False)
class Swaps:
    """Interventions on prompts, beside their partners.

    Attributes
    ----------
    names : names of the interventions
    unedited : float32 [prompts], logit difference
    total : float32 [prompts], how much lower it is in the partner, by the prompt's own right answer
    moved : float32 [interventions, prompts], how much lower each intervention makes it
    gap, gap_total, gap_moved : the same of the attention gap, mean over the watched heads; 0 where none is watched
    contexts : int64 [prompts]
    """

    names: tuple[str, ...]
    unedited: Float[np.ndarray, " prompts"]
    total: Float[np.ndarray, " prompts"]
    moved: Float[np.ndarray, "interventions prompts"]
    gap: Float[np.ndarray, " prompts"]
    gap_total: Float[np.ndarray, " prompts"]
    gap_moved: Float[np.ndarray, "interventions prompts"]
    contexts: Int[np.ndarray, " prompts"]

    def __getitem__(self, which: slice) -> Swaps:
        """Some of the interventions."""
        return replace(self, names=self.names[which], moved=self.moved[which], gap_moved=self.gap_moved[which])

    def shares(self) -> list[Estimate]:
        """Share of the way to the partner's logit difference, by intervention."""
        return shares(self.moved.T, self.total, self.contexts)

    def gap_shares(self) -> list[Estimate]:
        """Share of the way to the partner's gap."""
        return shares(self.gap_moved.T, self.gap_total, self.contexts)

    def after(self) -> list[Estimate]:
        """Logit difference that each intervention leaves, nats."""
        return cluster_means((self.unedited - self.moved).T, self.contexts)


def swap(
    model: LanguageModel,
    pairs: Pairs,
    interventions: Sequence[Intervention],
    watch: Sequence[Head] = (),
    progress: bool = False,
) -> Swaps:
    """Make interventions that may patch from the partners (`PARTNER`).

    Parameters
    ----------
    model : LanguageModel
        The model.
    pairs : Pairs
        Prompts and partners.
    interventions : sequence of Intervention
        What to do.
    watch : sequence of (int, int)
        Heads whose gap is read.
    progress : bool
        Whether to show a bar.

    Returns
    -------
    Swaps
    """
    partners = list(pairs.partners)
    own = intervene(
        model, list(pairs.prompts), interventions, sources={PARTNER.source: partners}, watch=watch, progress=progress
    )
    # The partner's answer and matches are other ones: it is judged by the prompt's own.
    other = replace(
        intervene(model, partners, [Intervention("", ())], watch=watch), answers=own.answers, match=own.match
    )
    unedited = own.logit_difference(own.unedited)
    if watch:
        gap, partner_gap = own.gap(own.unedited).mean(-1), other.gap(other.unedited).mean(-1)
        gap_moved = gap - own.gap().mean(-1)
    else:
        gap = partner_gap = np.zeros_like(unedited)
        gap_moved = np.zeros((len(interventions), len(unedited)), np.float32)
    return Swaps(
        own.names,
        unedited,
        unedited - other.logit_difference(other.unedited),
        unedited - own.logit_difference(),
        gap,
        gap - partner_gap,
        gap_moved,
        own.contexts,
    )
