"""Claim 5: suppressors, the heads that push down the most recently seen label."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from readout.circuit.claim import Claim, Part
from readout.circuit.edits import ablate
from readout.circuit.engine import intervene
from readout.circuit.evidence import flip_p_values, rank_p, shares
from readout.circuit.observe import observe
from readout.circuit.outcome import Answers
from readout.circuit.random_heads import Head, random_sets
from readout.circuit.readers import no_direct_effect, size
from readout.circuit.setting import Setting
from readout.circuit.share_claim import corrected_over, plain, share_claim, untested
from readout.errors import InterventionError
from readout.fitting import Observations
from readout.records.schema import head_name
from readout.statistics import cluster_mean

SUPPRESSOR = (
    "attends more to the last label than to the others and lowers its logit against equally frequent ones that match "
    "as little; that label rises when the head's output at the query is replaced by the mean"
)
MEASURE = (
    "rise of the last label's log-odds when all suppressors' outputs at the query are replaced by their means, as a "
    "share of what they push it down directly"
)
ALPHA = 0.05
"""Family-wise error over all heads, of each of the two tests that name a suppressor."""
MOST_SUPPRESSORS = 5


@dataclass(frozen=True, eq=False)
class LastLabel:
    """The last label of each prompt and what it is compared to.

    Attributes
    ----------
    label : int64 [prompts]
    others : bool [prompts, labels], labels as frequent that match the query as little
    stratum : int64 [prompts], -1 where there is no such other label
    note : what a reader must know, or empty

    With two labels the other one always differs in whether it matches. Then prompts whose last label matches (stratum
    1) count as much as those whose last label does not (0), so that what favours the right label cancels.
    """

    label: Int[np.ndarray, " prompts"]
    others: Bool[np.ndarray, "prompts labels"]
    stratum: Int[np.ndarray, " prompts"]
    note: str

    @property
    def use(self) -> Bool[np.ndarray, " prompts"]:
        """Prompts that can be compared."""
        return self.stratum >= 0

    def log_odds(self, values: Float[np.ndarray, "*any prompts labels"]) -> Float[np.ndarray, "*any used"]:
        """Value of the last label minus the mean of the others', `balanced`."""
        last = np.take_along_axis(values, np.broadcast_to(self.label[:, None], (*values.shape[:-1], 1)), -1)[..., 0]
        number = np.maximum(self.others.sum(-1), 1)
        return self.balanced(last - np.where(self.others, values, 0.0).sum(-1) / number)

    def balanced(self, values: Float[np.ndarray, "*any prompts"]) -> Float[np.ndarray, "*any used"]:
        """Values of the prompts in use, moved so that their mean is the mean of the strata's means.

        What is left of their spread is that within strata, as it must be: which stratum a prompt falls into is known.
        """
        kept, stratum = values[..., self.use], self.stratum[self.use]
        means = np.stack([kept[..., stratum == one].mean(-1) for one in np.unique(stratum)], -1)
        own = np.searchsorted(np.unique(stratum), stratum)
        found: np.ndarray = kept - means[..., own] + means.mean(-1, keepdims=True)
        return found


def last_labels(observations: Observations) -> LastLabel:
    """Find each prompt's last label and the labels to compare it to.

    Raises
    ------
    InterventionError
        If no prompt has a label as frequent as its last one.
    """
    n, most = observations.label_mask.shape
    rows = np.arange(n)
    last = observations.label[rows, observations.mask.sum(1) - 1]
    counts = (observations.label[:, :, None] == np.arange(most)).sum(1)
    alike = observations.label_mask & (np.arange(most) != last[:, None]) & (counts == counts[rows, last][:, None])
    matches = last == observations.query_label
    strict = alike & ~matches[:, None] & (np.arange(most) != observations.query_label[:, None])
    if strict.any():
        return LastLabel(last, strict, np.where(strict.any(1), 0, -1), "")
    use = alike.any(1)
    if not use.any():
        raise InterventionError(
            "no prompt has a label as frequent as its last one, to compare it to: take balanced classes (shots)"
        )
    always = matches[use].all() or not matches[use].any()
    note = "the last label always matches, or never: what favours the right label does not cancel" if always else ""
    return LastLabel(last, alike, np.where(use, matches, -1), note)


def name_suppressors(setting: Setting, choosing: Observations) -> tuple[Head, ...]:
    """Heads of the choosing half that attend to the last label and push it down, those that push most first.

    Raises
    ------
    InterventionError
        If heads' direct effects on logits are not defined in this model.
    """
    last, push = last_labels(choosing), direct_push(setting, choosing)
    context = choosing.context[last.use]
    k = choosing.mask.sum(1)
    attention = np.nan_to_num(choosing.attention.astype(np.float64))
    to_last = np.take_along_axis(attention, (k - 1)[:, None, None], 2)[:, :, 0]
    gap = to_last - (attention.sum(2) - to_last) / np.maximum(k - 1, 1)[:, None]
    p = [flip_p_values(values, context, setting.seed) for values in (last.balanced(gap.T).T, push)]
    passing = np.flatnonzero((p[0] <= ALPHA) & (p[1] <= ALPHA))
    ranked = passing[np.argsort(-push.mean(0)[passing])][:MOST_SUPPRESSORS]
    return tuple(setting.model.heads[place] for place in ranked)


def direct_push(setting: Setting, observations: Observations) -> Float[np.ndarray, "used heads"]:
    """How far each head's direct effect lowers the last label against the others, nats; in the prompts in use."""
    if observations.label_effect is None:
        raise InterventionError(no_direct_effect(setting.model))
    effect = np.nan_to_num(observations.label_effect.astype(np.float64)).transpose(1, 0, 2)
    return -last_labels(observations).log_odds(effect).T


def claim_5(setting: Setting, known: Mapping[int, Claim], progress: bool = False) -> Claim:
    """Suppressors: named by attention and direct effect, tested by ablation against random heads of the same layers.

    Parameters
    ----------
    setting : Setting
        Model and prompts with balanced classes.
    known : mapping of int to Claim
        Not used.
    progress : bool
        Whether to show a bar.

    Returns
    -------
    Claim
        With parts "suppressor", those that push most on the choosing half first. Its curves, mean rises of the last
        label's log-odds in nats: `named`, `random` (each set), `sweep` (every head alone: `heads`, `rise`, one-sided
        corrected `p`).
    """
    model, heads = setting.model, setting.model.heads
    choosing, testing = observe(model, setting.choosing), observe(model, setting.testing)
    try:
        named, last = name_suppressors(setting, choosing), last_labels(testing)
    except InterventionError as error:
        return untested(5, MEASURE, str(error), *size(setting))
    sets = random_sets(model, named, setting.draws if named else 0, setting.seed)
    together = [ablate(list(named), name="suppressors")] if named else []
    outcome = intervene(
        model,
        setting.testing,
        [*(ablate([head]) for head in heads), *together, *(ablate(list(one)) for one in sets.sets)],
        reference=[*setting.choosing, *setting.testing],
        progress=progress,
    )
    rises = _log_odds(last, outcome.edited) - _log_odds(last, outcome.unedited)
    contexts, push = outcome.contexts[last.use], direct_push(setting, testing)
    sweep = rises[: len(heads)]
    curves: dict[str, Any] = {
        "unedited": float(_log_odds(last, outcome.unedited).mean()),
        "sweep": {
            "heads": [head_name(*head) for head in heads],
            "rise": plain(sweep.mean(1)),
            "p": plain(flip_p_values(sweep.T, contexts, setting.seed)),
            "p_method": corrected_over(len(heads)),
        },
    }
    if not named:
        why = (
            "no head both attends to the last label and pushes it down on the choosing half "
            f"({corrected_over(len(heads))}, at most {ALPHA:g} each)"
        )
        return untested(5, MEASURE, why, len(contexts), len(set(contexts)), curves=curves)
    places = [heads.index(head) for head in named]
    parts = _parts(named, heads, sweep, push, contexts, setting.seed)
    both, random = rises[len(heads)], rises[len(heads) + 1 :]
    curves |= {
        "named": float(both.mean()),
        "random": plain(random.mean(1)),
        "different_sets": sets.different,
        "pushed_directly": float(push[:, places].sum(1).mean()),
    }
    return share_claim(
        5,
        MEASURE,
        both,
        random.mean(0),
        push[:, places].sum(1),
        contexts,
        rank_p(float(both.mean()), random.mean(1)),
        f"rank among {setting.draws} draws of {len(named)} random heads from the same layers",
        parts,
        curves,
        [sets.note, last.note, f"the last label's log-odds rise by {cluster_mean(both, contexts).summary()} nats"],
    )


def _log_odds(last: LastLabel, answers: Answers) -> Float[np.ndarray, "*any used"]:
    return last.log_odds(np.nan_to_num(answers.logits.astype(np.float64)))


def _parts(
    named: Sequence[Head],
    heads: Sequence[Head],
    rises: Float[np.ndarray, "heads prompts"],
    push: Float[np.ndarray, "prompts heads"],
    contexts: Int[np.ndarray, " prompts"],
    seed: int,
) -> list[Part]:
    places = [heads.index(head) for head in named]
    p = flip_p_values(rises[places].T, contexts, seed)
    parts = []
    for number, (layer, head) in enumerate(named):
        place = places[number]
        beside = [other for other, one in enumerate(heads) if one[0] == layer and one not in named]
        control = rises[beside].mean(0) if beside else np.zeros(rises.shape[1])
        effect, around = shares(np.stack([rises[place], control], 1), push[:, place], contexts)
        parts.append(
            Part(
                "suppressor",
                head_name(layer, head),
                layer,
                head,
                SUPPRESSOR,
                effect,
                around if beside else None,
                float(p[number]),
                corrected_over(len(named), "suppressors"),
                {
                    "rise_of_log_odds": float(rises[place].mean()),
                    "pushed_directly": float(push[:, place].mean()),
                    "rank_of_all_heads": float(1 + (rises.mean(1) > rises[place].mean()).sum()),
                },
            )
        )
    return parts
