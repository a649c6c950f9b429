"""The README's tables about the model trained from scratch are those of the committed results."""

import math

import growth_table
import pytest
from pages import load


def test_the_built_in_seeds_keep_their_task_in_every_number_of_classes():
    seeds = load("growth")["seeds"]
    assert sorted(seeds) == ["0", "1", "2", "3", "4"]
    for run in seeds.values():
        assert sorted(run["accuracy_by_classes"]) == ["2", "3", "4", "5", "6"]
        assert min(run["accuracy_by_classes"].values()) >= 0.95


def test_parking_is_the_greatest_rise_over_readers_alone():
    heads = {
        "L1H0": {"reader": True, "first_none": 0.5, "first_repeat": 0.1},
        "L1H1": {"reader": True, "first_none": 0.1, "first_repeat": 0.3},
        "L2H0": {"reader": False, "first_none": 0.9, "first_repeat": 0.0},
    }
    assert growth_table.parks(heads) == pytest.approx(0.4)
    assert math.isnan(growth_table.parks({}))


@pytest.mark.parametrize(
    ("change", "counts"),
    [
        ({}, True),
        ({"last": 0.19}, False),
        ({"effect": -0.05}, False),
        ({"effect": 0.3}, False),
        ({"ablated": 0}, False),
    ],
)
def test_a_suppressor_looks_at_the_last_label_writes_against_it_and_is_missed(change, counts):
    head = {"last": 0.3, "others": 0.1, "effect": -0.3, "ablated": 0.4} | change
    assert growth_table.suppressing({"heads": {"L3H0": head}}, set()) == (["L3H0"] if counts else [])
    assert growth_table.suppressing({"heads": {"L3H0": head}}, {"L3H0"}) == []
