"""The softmax readout: fitted in the manner of scikit-learn, kept as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from readout.errors import FitError
from readout.files import write_json
from readout.fitting.constants import ConstantsFit, fit_constants
from readout.fitting.fit_file import FORMAT, check_fit, nullable
from readout.fitting.likelihood import predicted_attention
from readout.fitting.links import Link, label_mass, make_link
from readout.fitting.newton import OK
from readout.fitting.observations import Match, Observations
from readout.fitting.terms import features
from readout.matching import Similarity
from readout.statistics import Estimate, check_level, check_seed
from readout.statistics.checks import check_bootstrap, load_json, reading
from readout.wording import counted

if TYPE_CHECKING:
    import xarray

_GIVEN = "given"


class SoftmaxReadout:
    """Attention as a softmax of two constants a head, label probabilities by a link.

    A_hat[n,h,i] = exp(b_h + a_h m_i) / (1 + sum_j exp(b_h + a_h m_j)), and P_hat[n,l] = link(M)[n,l] with
    M[n,h,l] = sum over i with l_i = l of A_hat[n,h,i].

    Parameters
    ----------
    link
        "share", "power", "gain", "gain_per_head", or a Link.
    heads
        Heads to use, by name; None takes all that the observations hold.
    terms
        Terms of the score; further ones are "gate", "recency" and "log_count".
    match
        How `Observations.from_record` finds the match when `fit` and `predict_*` are given a record. An array is that
        of the record it is fitted to: other records are then given as Observations with their own match. A fitted
        `readout.matching.Similarity` is kept in the file.
    level
        Coverage of the intervals, in (0, 1).
    bootstrap, seed
        Cluster-bootstrap draws of the constants (0: none; else at least 2, and 1000 or more for an interval), and
        their seed.

    Attributes
    ----------
    heads_, terms_
        Names.
    theta_ : [h, d]
        Constants; covariance_ [h, d, d] their sandwich covariance.
    status_
        Head -> "ok", or why it has no constants.
    constants_, bootstrap_constants_
        Head -> term -> Estimate, by sandwich and by bootstrap (None without draws).
    link_
        The fitted link.
    n_prompts_, n_contexts_
        Size of the data it was fitted to.
    """

    def __init__(
        self,
        link: str | Link = "share",
        heads: Sequence[str] | None = None,
        terms: Sequence[str] = ("base", "match"),
        *,
        match: Match = None,
        level: float = 0.95,
        bootstrap: int = 0,
        seed: int = 0,
    ) -> None:
        self.link = make_link(link)
        self.heads = None if heads is None else tuple(heads)
        self.terms = tuple(terms)
        self.match = match
        self.level = check_level(level)
        self.bootstrap = check_bootstrap(bootstrap)
        self.seed = check_seed(seed)
        # Whether the match was an array or a function, which a file does not keep.
        self._match_lost = False

    def fit(self, data: Observations | xarray.Dataset) -> SoftmaxReadout:
        """Fit constants and link.

        Parameters
        ----------
        data
            Observations, or a record.

        Returns
        -------
        The readout itself, fitted.

        Raises
        ------
        FitError
            When a head is missing, or a link with constants has no label probabilities to be fitted to.
        """
        observations = self.observations(data, fitted_to=True)
        if self.heads is not None:
            observations = observations.select_heads(self.heads)
        if not observations.heads:
            raise FitError("heads: expected at least one head, got none")
        fitted = fit_constants(observations, self.terms, bootstrap=self.bootstrap, seed=self.seed)
        return self._take(fitted, observations)

    def _take(self, fitted: ConstantsFit, observations: Observations) -> SoftmaxReadout:
        self.heads_, self.terms_ = fitted.heads, fitted.terms
        self.theta_, self.covariance_ = fitted.theta, fitted.covariance
        self.status_ = dict(zip(fitted.heads, fitted.status, strict=True))
        self.constants_ = fitted.estimates(self.level)
        self.bootstrap_constants_ = fitted.bootstrap_estimates(self.level)
        self.n_prompts_, self.n_contexts_ = fitted.n_prompts, fitted.n_contexts
        self.link_ = self.link
        if fitted.usable.any():
            mass = self.predict_mass(observations)
            self.link_ = self.link.fit(mass, observations.label_probability, observations.label_mask)
        return self

    def observations(self, data: Observations | xarray.Dataset, *, fitted_to: bool = False) -> Observations:
        """Observations as they are, or those of a record with this readout's match.

        Parameters
        ----------
        data
            Observations, or a record.
        fitted_to
            Whether the record is the one that the readout is fitted to: only then is a match that was given as an
            array the record's own.

        Raises
        ------
        FitError
            When the match of a record is not known.
        """
        if isinstance(data, Observations):
            return data
        instead = "give Observations with their own match, or set match to a variable's name or a function"
        if self._match_lost and self.match is None:
            raise FitError(
                f"match: the readout was fitted with an array or a function, which its file lacks; {instead}"
            )
        if not (fitted_to or self.match is None or isinstance(self.match, str) or callable(self.match)):
            raise FitError(
                f"match: the array is that of the record fitted to, and cannot be another record's; {instead}"
            )
        return Observations.from_record(data, match=self.match)

    def check_fitted(self) -> None:
        """Refuse to go on before `fit` (or `load`).

        Raises
        ------
        FitError
            When the readout is not fitted.
        """
        if not hasattr(self, "theta_"):
            raise FitError("readout: not fitted yet; call fit, or load one")

    @property
    def usable_heads_(self) -> tuple[str, ...]:
        """Fitted heads that have constants; the others take no part in predictions."""
        self.check_fitted()
        return tuple(head for head in self.heads_ if self.status_[head] == OK)

    def predict_attention(self, data: Observations | xarray.Dataset) -> Float[np.ndarray, "n h k"]:
        """Predicted attention to each label position; needs no observed attention.

        Returns
        -------
        [n, h, k] for the readout's heads, 0 where there is no demonstration, NaN for heads without constants.
        """
        self.check_fitted()
        observations = self.observations(data)
        return predicted_attention(features(observations, self.terms_), observations.mask, self.theta_)

    def predict_mass(self, data: Observations | xarray.Dataset) -> Float[np.ndarray, "n h l"]:
        """Predicted attention summed over each label's demonstrations, for the usable heads [n, h, l]."""
        self.check_fitted()
        observations = self.observations(data)
        use = [head in set(self.usable_heads_) for head in self.heads_]
        if not any(use):
            reasons = ", ".join(f"{head}: {status}" for head, status in list(self.status_.items())[:4])
            raise FitError(f"readout: no head has constants ({reasons}); fit other heads or other prompts")
        attention = predicted_attention(features(observations, self.terms_), observations.mask, self.theta_[use])
        return label_mass(attention, observations.label, observations.label_mask.shape[1])

    def predict_proba(self, data: Observations | xarray.Dataset) -> Float[np.ndarray, "n l"]:
        """Predicted probabilities over each prompt's own labels [n, l]; rows sum to 1.

        Raises
        ------
        FitError
            When the readout is not fitted or no head has constants.
        """
        self.check_fitted()
        observations = self.observations(data)
        return self.link_.predict(self.predict_mass(observations), observations.label_mask)

    def summary(self, rows: int = 20) -> str:
        """Constants, link and degenerate heads on one screen."""
        self.check_fitted()
        extra = ", ".join(f"{value:.3f}" for value in self.link_.constants[:8])
        lines = [
            f"Softmax readout of {counted(len(self.heads_), 'head')}, fitted to {counted(self.n_prompts_, 'prompt')} "
            f"in {counted(self.n_contexts_, 'context')}",
            f"link {self.link_.name}" + (f", constants {extra}" if extra else ", no constants"),
        ]
        good = self.usable_heads_
        for head in good[:rows]:
            numbers = "  ".join(f"{term} {self.constants_[head][term]}" for term in self.terms_)
            lines.append(f"  {head:<8} {numbers}")
        if len(good) > rows:
            lines.append(f"  ... and {len(good) - rows} more")
        counts: dict[str, list[str]] = {}
        for head, status in self.status_.items():
            if status != OK:
                counts.setdefault(status, []).append(head)
        for status, names in counts.items():
            lines.append(f"  {status}: {len(names)} ({', '.join(names[:5])}{', ...' if len(names) > 5 else ''})")
        if good:
            lines.append(f"intervals: {self.constants_[good[0]][self.terms_[0]].method}")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Everything that predictions and reports need, as plain values."""
        self.check_fitted()
        lost = self._match_lost if self.match is None else not isinstance(self.match, str | Similarity)
        kept = self.match.to_dict() if isinstance(self.match, Similarity) else self.match

        def plain(table: dict[str, dict[str, Estimate]] | None) -> Any:
            if table is None:
                return None
            return {h: {term: e.to_dict() for term, e in row.items()} for h, row in table.items()}

        return {
            "format": FORMAT,
            "link": self.link_.name,
            "link_constants": list(self.link_.constants),
            "terms": list(self.terms_),
            "heads": list(self.heads_),
            "match": _GIVEN if lost else kept,
            "level": self.level,
            "bootstrap": self.bootstrap,
            "seed": self.seed,
            "n_prompts": self.n_prompts_,
            "n_contexts": self.n_contexts_,
            "status": self.status_,
            "theta": nullable(self.theta_),
            "covariance": nullable(self.covariance_),
            "constants": plain(self.constants_),
            "bootstrap_constants": plain(self.bootstrap_constants_),
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> SoftmaxReadout:
        """Read what `to_dict` wrote.

        Raises
        ------
        FitError
            When it is not such a dictionary, a field is missing, or shapes do not go together.
        """
        link, theta, covariance = check_fit(data)
        match = None if data["match"] == _GIVEN else data["match"]
        if isinstance(match, dict):
            match = Similarity.from_dict(match)
        new = cls(
            link,
            data["heads"],
            data["terms"],
            match=match,
            level=data["level"],
            bootstrap=data["bootstrap"],
            seed=data["seed"],
        )

        def table(rows: Any) -> dict[str, dict[str, Estimate]]:
            return {h: {t: Estimate.from_dict(e) for t, e in row.items()} for h, row in rows.items()}

        new.heads_, new.terms_, new.link_ = tuple(data["heads"]), tuple(data["terms"]), link
        new.theta_, new.covariance_ = theta, covariance
        new._match_lost = data["match"] == _GIVEN
        new.status_ = dict(data["status"])
        with reading("readout file: constants"):
            new.constants_ = table(data["constants"])
            boot = data["bootstrap_constants"]
            new.bootstrap_constants_ = None if boot is None else table(boot)
        new.n_prompts_, new.n_contexts_ = data["n_prompts"], data["n_contexts"]
        return new

    def save(self, path: str | Path) -> None:
        """Write the fitted readout as JSON."""
        write_json(path, self.to_dict())

    @classmethod
    def load(cls, path: str | Path) -> SoftmaxReadout:
        """Read a readout that `save` wrote.

        Raises
        ------
        FitError
            When the file is missing or not a readout.
        """
        return cls.from_dict(load_json(path, "readout file"))
