"""How many readers and which link: cross-validated on the fit distribution alone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Float, Int

from readout.errors import FitError
from readout.fitting import LINKS, Observations, fit_constants, make_link
from readout.statistics import Estimate, check_seed, cluster_difference, cluster_mean, generator
from readout.statistics.checks import check_count, fields_of, parse_json, reading
from readout.validation.baselines import label_counts
from readout.validation.controls import masses
from readout.validation.metrics import prompt_errors
from readout.wording import counted

RANDOM_FOLDS = 5
FEWEST_LISTS = 3


@dataclass(frozen=True)
class Candidate:
    """One number of heads with one link: its cross-validated error, and the excess over the best."""

    n_heads: int
    link: str
    kl: Estimate
    excess: Estimate


@dataclass(frozen=True)
class Choice:
    """The heads and the link that cross-validation takes.

    Parameters
    ----------
    heads, link
        What to fit.
    candidates
        Everything that was tried.
    rule
        How the choice was made.
    folds, seed
        Of the cross-validation.
    """

    heads: tuple[str, ...]
    link: str
    candidates: tuple[Candidate, ...]
    rule: str
    folds: int
    seed: int

    def summary(self) -> str:
        """The choice and the best few candidates."""
        lines = [f"{counted(len(self.heads), 'head')} ({', '.join(self.heads)}), link {self.link} ({self.rule})"]
        for c in sorted(self.candidates, key=lambda c: c.kl.value)[:8]:
            lines.append(f"  {counted(c.n_heads, 'head') + ',':<9} {c.link:<13} KL {c.kl}, above the best {c.excess}")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {
            "heads": list(self.heads),
            "link": self.link,
            "rule": self.rule,
            "folds": self.folds,
            "seed": self.seed,
            "candidates": [
                {"n_heads": c.n_heads, "link": c.link, "kl": c.kl.to_dict(), "excess": c.excess.to_dict()}
                for c in self.candidates
            ],
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Choice:
        """Read what `to_dict` wrote.

        Raises
        ------
        FitError
            When it is not such a dictionary.
        """
        fields_of(data, cls.__dataclass_fields__, "choice")
        with reading("choice"):
            candidates = tuple(
                Candidate(int(c["n_heads"]), c["link"], Estimate.from_dict(c["kl"]), Estimate.from_dict(c["excess"]))
                for c in data["candidates"]
            )
            folds, seed = int(data["folds"]), int(data["seed"])
            return cls(tuple(data["heads"]), data["link"], candidates, data["rule"], folds, seed)

    def to_json(self) -> str:
        """One JSON object."""
        return json.dumps(self.to_dict(), allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Choice:
        """Read what `to_json` wrote."""
        return cls.from_dict(parse_json(text, "choice"))


def choose(
    fit_observations: Observations,
    candidates: Sequence[str],
    links: Sequence[str] = tuple(LINKS),
    *,
    max_heads: int = 8,
    folds: int | Literal["counts"] = 5,
    rule: Literal["simplest", "minimum"] = "simplest",
    terms: Sequence[str] = ("base", "match"),
    matches: Sequence[Float[np.ndarray, "n k"]] | None = None,
    seed: int = 0,
) -> Choice:
    """Choose the number of readers and the link by cross-validation over contexts, or over their label counts.

    Constants and link are fitted to the other folds, the error is KL(model || prediction) on the fold left out.

    Parameters
    ----------
    fit_observations
        The fit distribution; the target is never seen.
    candidates
        Heads, the strongest first; the first r are tried for every r up to `max_heads`.
    links
        Links to try.
    max_heads, seed
        Most heads, seed of the folds.
    folds
        Number of folds, contexts being dealt out at random; or "counts": each fold holds the contexts of one list of
        label counts, so that what is chosen has to carry over to counts and numbers of classes it was not fitted to,
        as on a held-out distribution. With fewer than 3 such lists 5 random folds are taken.
    rule
        "simplest": the fewest link constants, then the fewest heads, whose error is not reliably above the best (the
        clustered interval of the paired difference reaches 0), since constants fitted to labels are what carries
        over to other distributions worst. "minimum": the smallest error.
    terms
        Terms of the score.
    matches
        The match [n, k] to use in each fold, where it was learned from the other folds (`fold_of` gives the folds);
        None takes the observations' own.

    Returns
    -------
    Choice

    Raises
    ------
    FitError
        Without candidates or label probabilities, or with fewer contexts than folds.
    """
    check_seed(seed)
    names = tuple(candidates)[: check_count(max_heads, "max_heads", 1)]
    if not names:
        raise FitError("choose: no candidate heads; the model has no reader on these prompts, or name heads")
    if not links:
        raise FitError(f"links: expected at least one of {', '.join(LINKS)}, got none")
    if not fit_observations.has_probabilities:
        raise FitError("choose: label_probability is needed to compare links; give it")
    if rule not in ("simplest", "minimum"):
        raise FitError(f"rule: expected 'simplest' or 'minimum', got {rule!r}")
    data = fit_observations.select_heads(names)
    fold, n_folds, told = fold_of(data, folds, seed)
    options = [(r, link) for link in links for r in range(1, len(names) + 1)]
    errors = held_out_errors(data, fold, options, terms, matches)
    best = min(options, key=lambda option: errors[option].mean())
    tried = {
        option: Candidate(
            *option,
            cluster_mean(errors[option], data.context),
            cluster_difference(errors[option], errors[best], data.context),
        )
        for option in options
    }
    chosen = best
    if rule == "simplest":
        near = [o for o in options if tried[o].excess.low <= 0]
        chosen = min(near, key=lambda o: (make_link(o[1]).n_constants(o[0]), o[0]))
    words = {"simplest": "simplest that is not reliably worse than the best", "minimum": "smallest error"}[rule]
    return Choice(names[: chosen[0]], chosen[1], tuple(tried.values()), f"{words}, {told}", n_folds, seed)


def held_out_errors(
    data: Observations,
    fold: Int[np.ndarray, " n"],
    options: Sequence[tuple[int, str]],
    terms: Sequence[str] = ("base", "match"),
    matches: Sequence[Float[np.ndarray, "n k"]] | None = None,
) -> dict[tuple[int, str], Float[np.ndarray, " n"]]:
    """KL(model || prediction) of every prompt, with constants and link fitted to the other folds.

    Parameters
    ----------
    data
        Prompts, with the candidate heads only, the strongest first.
    fold
        [n] from 0.
    options
        Number of heads and link of each candidate.
    terms, matches
        As in `choose`.

    Returns
    -------
    option -> [n]
    """
    errors = {option: np.full(data.n_prompts, np.nan) for option in options}
    for part in range(int(fold.max()) + 1):
        own = data if matches is None else data.with_match(matches[part])
        train, test = own.select_prompts(fold != part), own.select_prompts(fold == part)
        theta = fit_constants(train, terms, covariance=False).theta
        # A head that cannot be fitted in this fold gives no mass.
        seen, hidden = (np.nan_to_num(masses(o, theta, tuple(terms))) for o in (train, test))
        for r, name in options:
            link = make_link(name).fit(seen[:, :r], train.label_probability, train.label_mask)
            prediction = link.predict(hidden[:, :r], test.label_mask)
            kl = prompt_errors(test.label_probability, prediction, test.label_mask)["kl"]
            errors[r, name][fold == part] = kl
    return errors


def fold_of(
    data: Observations, folds: int | str = RANDOM_FOLDS, seed: int = 0
) -> tuple[Int[np.ndarray, " n"], int, str]:
    """Fold of each prompt, the number of folds, and how they were made."""
    if folds == "counts":
        counts = np.sort(label_counts(data), axis=1)
        lists, fold = np.unique(counts, axis=0, return_inverse=True)
        if len(lists) >= FEWEST_LISTS:
            told = f"cross-validation that leaves out each of {len(lists)} lists of label counts"
            return fold.reshape(-1), len(lists), told
        folds = RANDOM_FOLDS
    contexts = np.unique(data.context)
    if not isinstance(folds, int) or folds < 2 or len(contexts) < folds:
        raise FitError(
            f"choose: expected 2 folds or more and as many contexts, or folds='counts'; got {folds!r} folds and "
            f"{counted(len(contexts), 'context')}"
        )
    fold = generator(seed).permutation(np.arange(len(contexts)) % folds)[np.searchsorted(contexts, data.context)]
    return fold, folds, f"{folds}-fold cross-validation over contexts"
