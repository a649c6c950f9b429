"""The figure of constants from class means shows the committed numbers."""

import pytest
from pages import load

from readout.figures.key_query import KINDS, key_query


def test_both_kinds_of_constants_are_drawn_for_every_reader() -> None:
    study = load("key_query")
    figure = key_query(study)
    for axes, term in zip(figure.axes, ("base", "match"), strict=False):
        drawn = [line.lines[0].get_xdata().tolist() for line in axes.containers]
        expected = [[one[kind][term]["value"] for one in study["readers"].values()] for kind in KINDS]
        assert drawn == [pytest.approx(row) for row in expected]
