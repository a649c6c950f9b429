"""The README's tables about the model trained from scratch are those of the committed results."""

import importlib.util
import math
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def tables():
    spec = importlib.util.spec_from_file_location("growth_table", ROOT / "fits" / "growth_table.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_readmes_tables_are_made_from_the_committed_results(tables):
    assert tables.START in tables.README.read_text()
    assert tables.readme_with(tables.made()) == tables.README.read_text()


def test_the_built_in_seeds_keep_their_task_in_every_number_of_classes(tables):
    seeds = tables.load("growth")["seeds"]
    assert sorted(seeds) == ["0", "1", "2", "3", "4"]
    for run in seeds.values():
        assert sorted(run["accuracy_by_classes"]) == ["2", "3", "4", "5", "6"]
        assert min(run["accuracy_by_classes"].values()) >= 0.95


def test_parking_is_the_greatest_rise_over_readers_alone(tables):
    heads = {
        "L1H0": {"reader": True, "first_none": 0.5, "first_repeat": 0.1},
        "L1H1": {"reader": True, "first_none": 0.1, "first_repeat": 0.3},
        "L2H0": {"reader": False, "first_none": 0.9, "first_repeat": 0.0},
    }
    assert tables.parks(heads) == pytest.approx(0.4)
    assert math.isnan(tables.parks({}))


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
def test_a_suppressor_looks_at_the_last_label_writes_against_it_and_is_missed(tables, change, counts):
    head = {"last": 0.3, "others": 0.1, "effect": -0.3, "ablated": 0.4} | change
    assert tables.suppressing({"heads": {"L3H0": head}}, set()) == (["L3H0"] if counts else [])
    assert tables.suppressing({"heads": {"L3H0": head}}, {"L3H0"}) == []
