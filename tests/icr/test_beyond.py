"""Routing that is held back out of domain: what is chosen, on what, and what is then answered."""

from dataclasses import replace

import numpy as np
import pytest

from readout.errors import ReadoutError
from readout.icr.methods.base import Ground, accuracy
from readout.icr.methods.beyond import FACTORS, DomainGated, GainGated, Gated, Shrunk
from readout.icr.methods.routed import Routed
from readout.icr.queries import Queries
from readout.icr.registry import BEYOND, make_method
from readout.icr.run import default_variant, with_settings
from readout.icr.study import Study


class Fixed(Routed):
    """A router whose answers are the zero-shot ones plus what a test says."""

    def __init__(self, reader: object, added: np.ndarray) -> None:
        super().__init__("fixed")
        self.reader, self.added = reader, added  # type: ignore[assignment]

    def answer(self, queries: Queries) -> np.ndarray:
        return self.answer_scaled(queries, 1.0)

    def answer_scaled(self, queries: Queries, factor: float | np.ndarray) -> np.ndarray:
        return queries.zero_shot + factor * self.added[: len(queries)]


class Near:
    """A reader by which the first queries are the nearest, and in turn of two domains."""

    names = ("left", "right")

    def nearest(self, texts: list[str]) -> np.ndarray:
        return np.arange(len(texts)) % 2

    def nearness(self, texts: list[str]) -> np.ndarray:
        return np.linspace(1, 0, len(texts))


@pytest.fixture(scope="module")
def ground(study: Study) -> Ground:
    return study.ground(0)


@pytest.fixture(scope="module")
def queries(study: Study) -> Queries:
    """Twenty queries that zero-shot gets right."""
    found = study.test("synthetic0").of(range(20))
    return replace(found, answers=np.argmax(found.zero_shot, 1))


def wrong(queries: Queries, rows: slice) -> np.ndarray:
    """What makes the answers to some rows wrong."""
    added = np.zeros_like(queries.zero_shot)
    for row in range(len(queries))[rows]:
        added[row, queries.answers[row]] = -100.0
    return added


def test_a_router_that_harms_the_far_queries_is_let_through_for_the_near_ones_only(
    ground: Ground, queries: Queries
) -> None:
    method = Gated(Fixed(Near(), wrong(queries, slice(10, 20))), queries)
    method.fit(ground)
    # nearness falls from 1 to 0 over twenty queries; the bound that spares the far ten is the median, or just above
    assert Near().nearness(queries.texts)[10] < method.bound <= Near().nearness(queries.texts)[9] + 1e-9
    assert accuracy(method.answer(queries), queries) == 1.0


def test_a_router_that_harms_nowhere_is_let_through_everywhere(ground: Ground, queries: Queries) -> None:
    routed = Fixed(Near(), np.full_like(queries.zero_shot, 1.0))
    method = Gated(routed, queries)
    method.fit(ground)
    assert method.bound == -np.inf
    np.testing.assert_array_equal(method.answer(queries), routed.answer(queries))


def test_a_router_that_harms_everywhere_is_let_through_nowhere(ground: Ground, queries: Queries) -> None:
    method = Gated(Fixed(Near(), wrong(queries, slice(0, 20))), queries)
    method.fit(ground)
    np.testing.assert_array_equal(method.answer(queries)[1:], queries.zero_shot[1:])


def test_the_domain_gate_lets_nineteen_of_twenty_development_queries_through(ground: Ground) -> None:
    development = ground.development.of(range(20))
    method = DomainGated(Fixed(Near(), np.ones_like(development.zero_shot)))
    method.fit(replace(ground, development=development))
    passed = (method.answer(development) != development.zero_shot).any(1)
    assert passed.sum() == 19
    assert not passed[-1]


def test_queries_nearest_to_a_domain_that_does_not_gain_stay_at_zero_shot(ground: Ground, queries: Queries) -> None:
    # every answer is wrong at zero shot; routing puts right those of the first domain and of one query of the second
    asked = replace(queries, answers=(queries.answers + 1) % 2)
    added = np.zeros_like(queries.zero_shot)
    for row in (*range(0, 20, 2), 1):
        added[row, asked.answers[row]] = 100.0
    method = GainGated(Fixed(Near(), added))
    method.fit(replace(ground, development=asked))
    assert method.gains["left"]["value"] == 1.0
    assert method.gains["right"]["value"] == pytest.approx(0.1)
    assert method.gains["right"]["low"] == 0.0
    np.testing.assert_array_equal(method.lets_through(asked), np.arange(20) % 2 == 0)
    assert accuracy(method.answer(asked), asked) == 0.5


def test_the_largest_factor_that_does_no_harm_is_chosen(ground: Ground, queries: Queries) -> None:
    ordered = np.sort(queries.zero_shot, 1)
    margin = (ordered[:, -1] - ordered[:, -2]).min()
    added = np.zeros_like(queries.zero_shot)
    added[np.arange(20), queries.answers] = -margin / 0.4
    # the closest query turns wrong at a factor of 0.4
    method = Shrunk(Fixed(Near(), added), queries)
    method.fit(ground)
    assert method.factor == max(factor for factor in FACTORS if factor < 0.4)
    harmful = Shrunk(Fixed(Near(), wrong(queries, slice(0, 20))), queries)
    harmful.fit(ground)
    assert harmful.factor == 0
    np.testing.assert_array_equal(harmful.answer(queries), queries.zero_shot)


def test_without_held_out_sets_there_is_nothing_to_choose_on(ground: Ground, queries: Queries) -> None:
    with pytest.raises(ReadoutError, match="held_out"):
        Shrunk(Fixed(Near(), wrong(queries, slice(0, 0)))).fit(replace(ground, held_out=None))


@pytest.mark.parametrize("name", BEYOND)
def test_each_is_a_method_that_fits_the_router_itself(name: str, study: Study, queries: Queries) -> None:
    variant = with_settings(default_variant("tiny"), epochs=1)
    method = make_method(name, variant)()
    assert method.name == name
    method.fit(study.ground(1))
    assert np.isfinite(method.answer(queries)).all()
