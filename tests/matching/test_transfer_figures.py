"""The figures of the transfer study show the committed numbers."""

import pytest
from matplotlib.figure import Figure
from pages import load

from readout.figures.transfer import AGAINST, SHOWN, transfer_constants, transfer_errors

STUDY = load("transfer")


def drawn(figure: Figure, panel: int) -> list[float]:
    """The x of every point of a panel."""
    return sorted(float(x) for line in figure.axes[panel].containers for x in line.lines[0].get_xdata())


def test_every_pairs_difference_is_drawn() -> None:
    rows = [pair["pooled"][name] for pair in STUDY["pairs"].values() for name in SHOWN if name in pair["pooled"]]
    expected = sorted(row[f"minus {AGAINST}"]["value"] for row in rows)
    assert drawn(transfer_errors(STUDY), 0) == pytest.approx(expected)


def test_the_first_heads_constants_are_drawn_on_source_and_draws() -> None:
    expected = []
    for pair in STUDY["pairs"].values():
        draws = [draw["constants"]["graded"] for draw in pair["draws"].values()]
        head = next(iter(draws[0]))
        own = [draw[head]["match"] for draw in draws if head in draw]
        expected += [own[0]["source"]["value"], *(one["target"]["value"] for one in own)]
    assert drawn(transfer_constants(STUDY), 3) == pytest.approx(sorted(expected))
