"""Random heads: equally many, of the same layers, never the named ones."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from handmade import handmade_model

from readout.circuit.evidence import flip_p_values
from readout.circuit.random_heads import random_sets
from readout.models import LanguageModel


@pytest.fixture(scope="module")
def model() -> LanguageModel:
    return handmade_model()


def test_each_set_has_as_many_heads_of_each_layer_as_are_named(model: LanguageModel) -> None:
    found = random_sets(model, [(1, 0), (1, 2), (2, 3)], 50)
    for one in found.sets:
        assert Counter(layer for layer, _ in one) == {1: 2, 2: 1}
        assert not {(1, 0), (1, 2), (2, 3)} & set(one)
    assert not found.widened


def test_what_a_layer_lacks_comes_from_the_nearest_layers(model: LanguageModel) -> None:
    found = random_sets(model, [(2, 0), (2, 1), (2, 2)], 20)
    assert found.widened
    assert all(Counter(layer for layer, _ in one) == {2: 1, 1: 2} for one in found.sets)
    assert "nearest layers" in found.note


def test_different_sets_are_counted(model: LanguageModel) -> None:
    found = random_sets(model, [(0, 0)], 40)
    assert found.different == 3
    assert "only 3 of 40 random draws are different" in found.note


def test_the_same_seed_draws_the_same_sets(model: LanguageModel) -> None:
    assert random_sets(model, [(0, 0)], 10, 5) == random_sets(model, [(0, 0)], 10, 5)
    assert random_sets(model, [(0, 0)], 10, 5) != random_sets(model, [(0, 0)], 10, 6)


def test_rounding_that_is_the_same_everywhere_is_no_effect() -> None:
    values = np.stack([np.linspace(1.0, 2.0, 10), np.full(10, 1e-7)], 1)
    p = flip_p_values(values, np.arange(10), 0)
    assert p[0] < 0.01
    assert p[1] > 0.1
