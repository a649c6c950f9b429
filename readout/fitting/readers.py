"""Readers: heads that attend to matching labels and copy them, chosen on one half and reported on the other."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from readout.errors import FitError
from readout.fitting.links import label_mass
from readout.fitting.observations import Observations
from readout.fitting.permutations import permutation_draws, shared_groups, split_contexts
from readout.statistics import (
    Estimate,
    check_level,
    check_seed,
    cluster_index,
    cluster_means,
    cluster_ratios,
    generator,
    max_t_p_values,
)
from readout.statistics.checks import check_count, fields_of, parse_json, reading
from readout.statistics.estimate import number_or_nan, number_or_none
from readout.wording import counted

KINDS = ("reader", "anti-copying", "attends", "other")
FEWEST_CONTEXTS = 6
"""Readers are chosen on half of the contexts, and a t over contexts takes three."""
_NUMBERS = ("strength", "p_value", "selected_gap", "selected_slope", "selected_correlation", "correlation")
_ESTIMATES = ("gap", "copy_slope", "matching", "others")
# Permutations whose statistics are held at once.
_CHUNK = 100


@dataclass(frozen=True)
class ReaderRow:
    """One head.

    Parameters
    ----------
    head, kind
        Name; "reader", "anti-copying", "attends" or "other".
    p_value
        Of the attention gap on the choosing half, corrected over all heads.
    strength
        What heads of a kind are ranked by: the attention gap on the choosing half. Links weigh heads by their
        attention, and copy slopes do not make better weights.
    selected_gap, selected_slope, selected_correlation
        Effects on the half that the choice was made on: inflated by the choice.
    gap, copy_slope, correlation, matching, others
        Effects on the other half: attention gap; logits a unit of label mass; correlation of effect and mass;
        attention to a matching and to another label position.
    """

    head: str
    kind: str
    p_value: float
    strength: float
    selected_gap: float
    selected_slope: float
    selected_correlation: float
    gap: Estimate
    copy_slope: Estimate
    correlation: float
    matching: Estimate
    others: Estimate


@dataclass(frozen=True)
class ReaderTable:
    """Every head with its kind; within a kind the widest attention gap on the choosing half first.

    Parameters
    ----------
    rows
        One per head.
    alpha
        Family-wise error of the gap test over all heads.
    permutations, seed
        Of the test.
    contexts
        Number of contexts in the choosing and in the reporting half.
    method
        The test, in words.
    """

    rows: tuple[ReaderRow, ...]
    alpha: float
    permutations: int
    seed: int
    contexts: tuple[int, int]
    method: str

    @property
    def readers(self) -> tuple[str, ...]:
        """Names of the readers, the widest gap first."""
        return self.of_kind("reader")

    def of_kind(self, kind: str) -> tuple[str, ...]:
        """Names of the heads of one kind, the widest gap first."""
        return tuple(row.head for row in self.rows if row.kind == kind)

    def __getitem__(self, head: str) -> ReaderRow:
        for row in self.rows:
            if row.head == head:
                return row
        raise KeyError(head)

    def summary(self, rows: int = 12) -> str:
        """The heads that attend to matching labels, on one screen."""
        counts = Counter(row.kind for row in self.rows)
        lines = [
            f"{counted(len(self.rows), 'head')}: " + ", ".join(f"{counts[kind]} {kind}" for kind in KINDS),
            f"chosen on {counted(self.contexts[0], 'context')} ({self.method}, at most {self.alpha:g}), effects on "
            f"the other {self.contexts[1]}:",
            f"  {'head':<8} {'kind':<13} {'p':>7}  {'attention gap':<22} {'copy slope':<24} correlation",
        ]
        shown = [row for row in self.rows if row.kind != "other"]
        for row in shown[:rows]:
            lines.append(
                f"  {row.head:<8} {row.kind:<13} {row.p_value:7.4f}  {row.gap.summary():<22} "
                f"{row.copy_slope.summary(2):<24} {row.correlation:.2f}"
            )
        if len(shown) > rows:
            lines.append(f"  ... and {len(shown) - rows} more")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        rows = []
        for row in self.rows:
            plain = asdict(row)
            plain |= {key: getattr(row, key).to_dict() for key in _ESTIMATES}
            plain |= {key: number_or_none(getattr(row, key)) for key in _NUMBERS}
            rows.append(plain)
        return {**asdict(self), "rows": rows, "contexts": list(self.contexts)}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> ReaderTable:
        """Read what `to_dict` wrote.

        Raises
        ------
        FitError
            When it is not such a dictionary.
        """
        fields_of(data, cls.__dataclass_fields__, "reader table")
        with reading("reader table"):
            rows = []
            for row in data["rows"]:
                estimates = {key: Estimate.from_dict(row[key]) for key in _ESTIMATES}
                rows.append(ReaderRow(**{**row, **{key: number_or_nan(row[key]) for key in _NUMBERS}, **estimates}))
            choosing, reporting = data["contexts"]
            return cls(**{**data, "rows": tuple(rows), "contexts": (int(choosing), int(reporting))})

    def to_json(self) -> str:
        """One JSON object."""
        return json.dumps(self.to_dict(), allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> ReaderTable:
        """Read what `to_json` wrote."""
        return cls.from_dict(parse_json(text, "reader table"))


def gap_weights(observations: Observations) -> Float[np.ndarray, "n k"]:
    """Weights w so that sum_i A_i w_i is mean attention a matching label position minus mean a other one.

    0 in a prompt that has no matching or no other demonstration.
    """
    match = np.where(observations.mask, observations.match, 0.0)
    other = np.where(observations.mask, 1 - observations.match, 0.0)
    sums = match.sum(axis=1, keepdims=True), other.sum(axis=1, keepdims=True)
    both = (sums[0] > 0) & (sums[1] > 0)
    safe = [np.where(both, s, 1.0) for s in sums]
    weights: np.ndarray = np.where(both, match / safe[0] - other / safe[1], 0.0)
    return weights


def gap_p_values(observations: Observations, permutations: int = 2000, seed: int = 0) -> Float[np.ndarray, " h"]:
    """One-sided p-values of every head's attention gap, corrected over all heads.

    The demonstrations' class assignment is permuted within each context, by the same permutation for all queries of
    the context. The statistic is the t of the gap over contexts; single-step max-T over heads controls the
    family-wise error, whatever the heads have in common.

    Parameters
    ----------
    observations
        Prompts and heads.
    permutations, seed
        Number of permutations and their seed.

    Returns
    -------
    [h]; NaN for a head without attention on labels.

    Source
    ------
    Westfall & Young (1993), algorithm 2.8; studentised as in Chung & Romano (2013).
    """
    check_count(permutations, "permutations", 1)
    rng = generator(seed)
    weights = gap_weights(observations)
    use = np.abs(weights).sum(axis=1) > 0
    if not use.any():
        raise FitError("readers: no prompt has both matching and other demonstrations; take more classes or shots")
    kept = observations.select_prompts(use)
    weights = weights[use]
    index, count = cluster_index(kept.context)
    if count < FEWEST_CONTEXTS // 2:
        raise _too_few(count, FEWEST_CONTEXTS // 2, " with both matching and other demonstrations in a half")
    order = np.argsort(index, kind="stable")
    place = np.arange(len(order)) - np.searchsorted(index[order], index[order])
    queries, (_, h, k) = int(place.max()) + 1, kept.attention.shape
    padded_attention = np.zeros((count, queries, k, h), dtype=np.float32)
    padded_attention[index[order], place] = np.nan_to_num(kept.attention[order]).transpose(0, 2, 1)
    attention = padded_attention.reshape(count, queries * k, h)
    sizes = np.bincount(index)[:, None, None]

    def statistics(drawn: np.ndarray) -> np.ndarray:
        padded = np.zeros((count, len(drawn), queries, k), dtype=np.float32)
        padded[index[order], :, place] = drawn[:, order].transpose(1, 0, 2)
        gaps = (padded.reshape(count, len(drawn), -1) @ attention).astype(np.float64) / sizes
        with np.errstate(invalid="ignore", divide="ignore"):
            t: np.ndarray = gaps.mean(axis=0) / np.sqrt(gaps.var(axis=0, ddof=1) / count)
        return np.where(np.isfinite(t), t, np.nan)

    observed = statistics(weights[None])[0]
    groups = shared_groups(kept)
    drawn_t = np.empty((permutations, h))
    for start in range(0, permutations, _CHUNK):
        stop = min(start + _CHUNK, permutations)
        permuted = permutation_draws(kept.mask, groups, stop - start, rng)[:, groups]
        drawn_t[start:stop] = statistics(np.take_along_axis(weights[None], permuted, axis=2))
    return max_t_p_values(observed, drawn_t)


def _too_few(got: int, least: int, which: str = "") -> FitError:
    return FitError(f"readers need at least {counted(least, 'context')}{which}, got {got}; take more contexts (size)")


def _label_effect(observations: Observations) -> Float[np.ndarray, "n h l"]:
    if observations.label_effect is None:
        raise FitError(
            "readers: label_effect is needed to tell heads that copy, and these observations have none; extract "
            "the record with label effects, or name the heads yourself: SoftmaxReadout(heads=[...])"
        )
    return observations.label_effect


def copying(
    observations: Observations,
) -> tuple[list[Estimate], Float[np.ndarray, " h"]]:
    """How much each head raises the labels it attends to.

    Direct effect on each candidate label against the head's attention on it, both centred over the prompt's labels.

    Returns
    -------
    Slope of each head (logits a unit of label mass, clustered interval) and correlation [h].
    """
    label_effect = _label_effect(observations)
    here = observations.label_mask[:, None, :]
    number = observations.label_mask.sum(axis=1)[:, None, None]

    def centred(values: np.ndarray) -> np.ndarray:
        filled = np.where(here, np.nan_to_num(values.astype(np.float64)), 0.0)
        return np.where(here, filled - filled.sum(axis=2, keepdims=True) / number, 0.0)

    labels = observations.label_mask.shape[1]
    mass = centred(label_mass(np.nan_to_num(observations.attention), observations.label, labels))
    effect = centred(label_effect)
    product, square = (mass * effect).sum(axis=2), (mass**2).sum(axis=2)
    with np.errstate(invalid="ignore", divide="ignore"):
        size = np.sqrt(square.sum(axis=0) * (effect**2).sum(axis=(0, 2)))
        correlation = product.sum(axis=0) / size
    return cluster_ratios(product, square, observations.context), correlation


def attention_effects(observations: Observations) -> tuple[list[Estimate], list[Estimate], list[Estimate]]:
    """Gap, attention to a matching and to another label position, a head each, with clustered intervals."""
    attention = np.nan_to_num(observations.attention.astype(np.float64))
    match = np.where(observations.mask, observations.match, 0.0)
    other = np.where(observations.mask, 1 - observations.match, 0.0)
    estimates = []
    for weights in (gap_weights(observations), match, other):
        size = np.abs(weights).sum(axis=1)
        scale = 1.0 if weights is not match and weights is not other else np.where(size > 0, size, 1.0)[:, None]
        values = np.einsum("nhk,nk->nh", attention, weights) / scale
        estimates.append(cluster_means(np.where(size[:, None] > 0, values, np.nan), observations.context))
    return estimates[0], estimates[1], estimates[2]


def choose_readers(
    observations: Observations,
    *,
    alpha: float = 0.01,
    min_correlation: float = 0.3,
    permutations: int = 2000,
    seed: int = 0,
) -> ReaderTable:
    """Sort all heads into kinds on one half of the contexts and report their effects on the other.

    - reader: attention gap (p at most alpha), copy slope above 0 (clustered interval), correlation at least
      `min_correlation`
    - anti-copying: gap, but copy slope below 0 and correlation at most -`min_correlation`: it pushes down the label
      that it attends to
    - attends: gap, copying not clear
    - other: no gap

    Parameters
    ----------
    observations
        Prompts in at least `FEWEST_CONTEXTS` contexts and all heads of the model, with `label_effect`.
    alpha
        Family-wise error over all heads.
    min_correlation
        Least correlation of effect and label mass.
    permutations, seed
        Of the gap test; the seed also splits the contexts.

    Returns
    -------
    ReaderTable

    Raises
    ------
    FitError
        Without `label_effect`, with too few contexts, or when no prompt has both matching and other demonstrations.
    """
    check_level(alpha, "alpha")
    check_seed(seed)
    if observations.n_contexts < FEWEST_CONTEXTS:
        raise _too_few(observations.n_contexts, FEWEST_CONTEXTS)
    first = split_contexts(observations.context, seed)
    return judge_heads(
        observations.select_prompts(first),
        observations.select_prompts(~first),
        alpha=alpha,
        min_correlation=min_correlation,
        permutations=permutations,
        seed=seed,
    )


def judge_heads(
    choosing: Observations,
    reporting: Observations,
    *,
    alpha: float = 0.01,
    min_correlation: float = 0.3,
    permutations: int = 2000,
    seed: int = 0,
) -> ReaderTable:
    """Sort all heads into the kinds of `choose_readers`, given the two halves.

    Parameters
    ----------
    choosing, reporting
        Prompts of different contexts, with `label_effect`: heads are sorted on the first, effects reported on the
        second.
    alpha, min_correlation, permutations, seed
        As in `choose_readers`.

    Returns
    -------
    ReaderTable

    Raises
    ------
    FitError
        As `choose_readers`.
    """
    check_level(alpha, "alpha")
    check_seed(seed)
    _label_effect(choosing)
    p_values = gap_p_values(choosing, permutations, seed)
    slopes, correlations = copying(choosing)
    gaps = attention_effects(choosing)[0]
    other_slopes, other_correlations = copying(reporting)
    effects = attention_effects(reporting)
    rows = []
    for h, head in enumerate(choosing.heads):
        kind = "other"
        if p_values[h] <= alpha:
            copies = slopes[h].low > 0 and correlations[h] >= min_correlation
            pushes_down = slopes[h].high < 0 and correlations[h] <= -min_correlation
            kind = "reader" if copies else "anti-copying" if pushes_down else "attends"
        rows.append(
            ReaderRow(
                head=head,
                kind=kind,
                p_value=float(p_values[h]),
                strength=gaps[h].value,
                selected_gap=gaps[h].value,
                selected_slope=slopes[h].value,
                selected_correlation=float(correlations[h]),
                gap=effects[0][h],
                copy_slope=other_slopes[h],
                correlation=float(other_correlations[h]),
                matching=effects[1][h],
                others=effects[2][h],
            )
        )
    rows.sort(key=lambda row: (KINDS.index(row.kind), -np.nan_to_num(row.selected_gap)))
    return ReaderTable(
        tuple(rows),
        alpha,
        permutations,
        seed,
        (choosing.n_contexts, reporting.n_contexts),
        f"family-wise error by max-T over {permutations} permutations of matches within contexts",
    )
