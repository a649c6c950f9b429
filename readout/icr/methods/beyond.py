"""Beyond the paper: routing that is held back for queries unlike the training domains.

Each takes the trained router as it is and chooses one number: on data sets that the router was not trained on and that
are not tested, or on development queries. None of them sees a test query.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from readout.errors import ReadoutError
from readout.icr.encoders import Reader
from readout.icr.methods.base import Ground, Logits, accuracy
from readout.icr.methods.routed import Routed
from readout.icr.queries import Queries
from readout.icr.scores import crossed_bootstrap, right_answers

FACTORS = (1.0, 0.7, 0.5, 0.3, 0.15, 0.0)
KEPT = 0.95
"""Share of development queries that the domain gate lets through."""


class Gated:
    """Routing only where a query is near to the training domains, zero-shot elsewhere.

    How near its embedding must be to a training domain's centroid is chosen on held-out sets: the loosest bound at
    which their average is not below zero-shot.

    Parameters
    ----------
    routed : Routed
        Fitted here unless it is already.
    held_out : Queries, optional
        Of other data sets; the ground's by default.
    """

    def __init__(self, routed: Routed, held_out: Queries | None = None) -> None:
        self.routed, self.held_out, self.bound = routed, held_out, -np.inf
        self.name = f"{routed.name}, distance gate"

    def fit(self, ground: Ground) -> None:
        """Choose the bound."""
        _fitted(self.routed, ground)
        held_out = _held_out(self.held_out, ground)
        nearness, answered = self._nearness(held_out), self.routed.answer(held_out)
        base = accuracy(held_out.zero_shot, held_out)
        for bound in (-np.inf, *np.quantile(nearness, np.linspace(0.1, 1.0, 10))):
            self.bound = float(bound)
            if accuracy(self.mix(held_out, answered), held_out) >= base:
                return
        self.bound = np.inf

    def answer(self, queries: Queries) -> Logits:
        """Routed or zero-shot, query by query."""
        return self.mix(queries, self.routed.answer(queries))

    def mix(self, queries: Queries, routed: Logits) -> Logits:
        """The same out of routed answers that are there already."""
        return np.where(self.lets_through(queries)[:, None], routed, queries.zero_shot)

    def lets_through(self, queries: Queries) -> Bool[np.ndarray, " queries"]:
        """Which queries are routed."""
        return np.asarray(self._nearness(queries) >= self.bound)

    def _nearness(self, queries: Queries) -> Float[np.ndarray, " queries"]:
        return self._reader().nearness(queries.texts)

    def _reader(self) -> Reader:
        if self.routed.reader is None:
            raise ReadoutError(f"{self.name}: fit it first")
        return self.routed.reader


class DomainGated(Gated):
    """The same gate without held-out sets: its bound lets 95 % of the development queries through."""

    def __init__(self, routed: Routed) -> None:
        super().__init__(routed)
        self.name = f"{routed.name}, domain gate"

    def fit(self, ground: Ground) -> None:
        """Read the bound off the development queries' nearness."""
        _fitted(self.routed, ground)
        self.bound = float(np.quantile(self._nearness(ground.development), 1 - KEPT))


class GainGated(Gated):
    """Zero-shot for queries nearest to a training domain in which routing does not help.

    A domain gains if the paired 95 % interval of routed - zero-shot, over the development queries nearest to its
    centroid, is above zero. Nothing but development queries of the training domains is looked at.

    Attributes
    ----------
    gains : dict of str to dict
        By training domain: the difference on development queries, with its interval.
    """

    def __init__(self, routed: Routed) -> None:
        super().__init__(routed)
        self.name = f"{routed.name}, gain gate"
        self.gains: dict[str, dict[str, Any]] = {}

    def fit(self, ground: Ground) -> None:
        """Measure each domain's gain."""
        _fitted(self.routed, ground)
        queries = ground.development
        routed = right_answers(self.routed.answer(queries), queries.answers).astype(float)
        gain = routed - right_answers(queries.zero_shot, queries.answers)
        nearest = self._reader().nearest(queries.texts)
        for place, name in enumerate(self._reader().names):
            own = gain[nearest == place]
            self.gains[name] = crossed_bootstrap([own[None]]).to_dict() if len(own) > 1 else {"low": float("nan")}

    def lets_through(self, queries: Queries) -> Bool[np.ndarray, " queries"]:
        """Those nearest to a domain that gains."""
        gaining = np.array([self.gains[name]["low"] > 0 for name in self._reader().names])
        return np.asarray(gaining[self._reader().nearest(queries.texts)])


class Shrunk:
    """Routing with alpha times one factor for all: the largest at which held-out sets are not below zero-shot."""

    def __init__(self, routed: Routed, held_out: Queries | None = None) -> None:
        self.routed, self.held_out, self.factor = routed, held_out, 1.0
        self.name = f"{routed.name}, shrunk alpha"

    def fit(self, ground: Ground) -> None:
        """Choose the factor."""
        _fitted(self.routed, ground)
        held_out = _held_out(self.held_out, ground)
        base = accuracy(held_out.zero_shot, held_out)
        for factor in FACTORS:
            self.factor = factor
            # at 0 nothing is routed, so the last factor is never refused
            if factor == 0 or accuracy(self.routed.answer_scaled(held_out, factor), held_out) >= base:
                return

    def answer(self, queries: Queries) -> Logits:
        """Routed at the chosen strength."""
        return queries.zero_shot if self.factor == 0 else self.routed.answer_scaled(queries, self.factor)


def _fitted(routed: Routed, ground: Ground) -> None:
    if routed.reader is None:
        routed.fit(ground)


def _held_out(given: Queries | None, ground: Ground) -> Queries:
    if given is not None:
        return given
    if ground.held_out is None:
        raise ReadoutError("no held-out data sets to choose on: name some in the study's settings (held_out)")
    return ground.held_out()
