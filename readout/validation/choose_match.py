"""Binary or graded match, and of which layer: cross-validated on the fit distribution alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from jaxtyping import Float, Int

from readout.errors import FitError
from readout.fitting import Observations
from readout.matching import Binary, ResidualCosine, Similarity
from readout.matching.similarity import shown
from readout.records.schema import select_contexts
from readout.statistics import Estimate, cluster_difference, cluster_mean
from readout.statistics.checks import fields_of, reading
from readout.validation.choose import fold_of, held_out_errors

if TYPE_CHECKING:
    import xarray

MODES = ("auto", "graded", "binary")
MatchMode = Literal["auto", "graded", "binary"]
LEAST_SPREAD = 1e-6
LINK = "share"
"""Matches are compared through the link that has no constants of its own: nothing is fitted to labels."""


@dataclass(frozen=True)
class MatchCandidate:
    """One similarity with its best number of heads: cross-validated error, and the excess over the best similarity."""

    match: str
    n_heads: int
    kl: Estimate
    excess: Estimate

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {
            "match": self.match,
            "n_heads": self.n_heads,
            "kl": self.kl.to_dict(),
            "excess": self.excess.to_dict(),
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> MatchCandidate:
        """Read what `to_dict` wrote."""
        estimates = {name: Estimate.from_dict(data[name]) for name in ("kl", "excess")}
        return cls(str(data["match"]), int(data["n_heads"]), **estimates)


@dataclass(frozen=True)
class MatchChoice:
    """The match that cross-validation takes.

    Parameters
    ----------
    similarity
        Fitted to the whole fit record.
    candidates
        Everything that was tried.
    rule
        How the choice was made.
    """

    similarity: Similarity
    candidates: tuple[MatchCandidate, ...]
    rule: str

    def summary(self) -> str:
        """The choice and what it was chosen from."""
        lines = [f"match: {self.similarity.describe()} ({self.rule})"]
        for c in sorted(self.candidates, key=lambda c: c.kl.value):
            lines.append(f"  {c.match:<48} KL {c.kl}, above the best {c.excess}")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        candidates = [candidate.to_dict() for candidate in self.candidates]
        return {"similarity": self.similarity.to_dict(), "candidates": candidates, "rule": self.rule}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> MatchChoice:
        """Read what `to_dict` wrote.

        Raises
        ------
        FitError
            When it is not such a dictionary.
        """
        fields_of(data, [f.name for f in fields(cls)], "match choice")
        with reading("match choice"):
            candidates = tuple(MatchCandidate.from_dict(one) for one in data["candidates"])
            return cls(Similarity.from_dict(data["similarity"]), candidates, str(data["rule"]))


def graded_candidates(record: xarray.Dataset, heads: Sequence[str]) -> list[Similarity]:
    """The residual cosines that a record allows: of the layers and places kept, those no reader has written to yet.

    Parameters
    ----------
    record
        With or without residual streams.
    heads
        The candidate readers, by name.
    """
    if "query_residual" not in record or not heads:
        return []
    first = min(_layer(head) for head in heads)
    places = ["demonstration"] + (["label"] if "label_residual" in record else [])
    layers = [int(layer) for layer in record["residual_layer"].values if layer <= first]
    return [ResidualCosine(layer, place=place) for place in places for layer in layers]


def _varies(similarity: Similarity, record: xarray.Dataset) -> bool:
    """Whether it tells demonstrations apart: what enters the first layer is the token alone, the same at every cue."""
    return bool(similarity.fit(record)(record)[shown(record)].std() > LEAST_SPREAD)


def _layer(head: str) -> int:
    number = head.removeprefix("L").partition("H")[0]
    if not number.isdigit():
        raise FitError(f"match: the layer of head {head!r} is not known; a graded match needs names such as L18H6")
    return int(number)


def fold_matches(
    similarity: Similarity, record: xarray.Dataset, fold: Int[np.ndarray, " n"]
) -> list[Float[np.ndarray, "n k"]]:
    """The similarity of all prompts, learned from the contexts outside each fold in turn."""
    return [similarity.fit(select_contexts(record, fold != part))(record) for part in range(int(fold.max()) + 1)]


def choose_match(
    record: xarray.Dataset,
    fit_observations: Observations,
    candidates: Sequence[str],
    mode: MatchMode = "auto",
    similarities: Sequence[Similarity] | None = None,
    *,
    max_heads: int = 8,
    folds: int | Literal["counts"] = 5,
    seed: int = 0,
) -> MatchChoice:
    """Choose the match by cross-validation over contexts, as `choose` does heads and link.

    Similarity and constants are learned from the other folds; the error is KL(model || prediction) on the fold left
    out, by the share link with that number of the first heads that suits the similarity best.

    Parameters
    ----------
    record, fit_observations
        The fit distribution; the target is never seen.
    candidates
        Heads, the strongest first.
    mode
        "binary"; "graded", the graded similarity of the smallest error; "auto", that one if its error is reliably below
        the binary match's (the clustered interval of the paired difference lies off 0), else binary.
    similarities
        Graded ones to try; None tries the residual cosines of the record's layers, up to the first reader's.
    max_heads, folds, seed
        As in `choose`.

    Returns
    -------
    MatchChoice

    Raises
    ------
    FitError
        For "graded" when there is no similarity to try.
    """
    if mode not in MODES:
        raise FitError(f"match: expected one of {', '.join(MODES)}, got {mode!r}")
    if mode == "binary":
        return MatchChoice(Binary(), (), "as asked")
    offered = graded_candidates(record, candidates[:max_heads]) if similarities is None else similarities
    tried = [similarity for similarity in offered if _varies(similarity, record)]
    if not tried:
        lacking = "the record keeps no residual stream up to the first reader's layer that tells demonstrations apart"
        if mode == "graded":
            raise FitError(
                f"match: {lacking}, so there is nothing to grade by; extract it with --residual-layers middle, or take "
                "--match auto"
            )
        return MatchChoice(Binary(), (), lacking)
    data = fit_observations.select_heads(tuple(candidates)[:max_heads])
    fold, _, told = fold_of(data, folds, seed)
    options = [(r, LINK) for r in range(1, len(data.heads) + 1)]
    errors, sizes = [], []
    for similarity in (Binary(), *tried):
        found = held_out_errors(data, fold, options, matches=fold_matches(similarity, record, fold))
        best = min(options, key=lambda option: found[option].mean())
        errors.append(found[best])
        sizes.append(best[0])
    best_graded = min(range(1, len(errors)), key=lambda j: errors[j].mean())
    lowest = min(range(len(errors)), key=lambda j: errors[j].mean())
    names = [similarity.describe() for similarity in (Binary(), *tried)]
    listed = tuple(
        MatchCandidate(name, size, cluster_mean(kl, data.context), cluster_difference(kl, errors[lowest], data.context))
        for name, size, kl in zip(names, sizes, errors, strict=True)
    )
    gain = cluster_difference(errors[0], errors[best_graded], data.context)
    graded = mode == "graded" or gain.low > 0
    rule = (
        "as asked, the graded one of the smallest error"
        if mode == "graded"
        else "graded if reliably better than binary"
    )
    chosen = tried[best_graded - 1].fit(record) if graded else Binary()
    return MatchChoice(chosen, listed, f"{rule}, {told}")
