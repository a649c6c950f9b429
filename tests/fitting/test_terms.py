"""Terms of the score, against columns written down by hand."""

import numpy as np

from readout.fitting import Observations
from readout.fitting.terms import features

LABELS = np.array([[0, 1, 0, 1], [1, 1, 0, -1]])


def observed() -> Observations:
    match = np.array([[0.5, 0.0, 1.0, 0.25], [1.0, 0.0, 0.5, 0.0]])
    attention = np.where(LABELS >= 0, 0.1, 0.0)[:, None]
    return Observations.from_arrays(attention, match=match, label=LABELS, context=np.arange(2), mask=LABELS >= 0)


def column(term: str) -> list[list[float]]:
    return features(observed(), ("base", term))[:, :, 1].tolist()


def test_the_first_occurrence_is_the_first_demonstration_of_each_label():
    assert column("first_occurrence") == [[1, 1, 0, 0], [1, 0, 1, 0]]


def test_the_match_drifts_with_the_logarithm_of_the_number_of_demonstrations():
    four, three = np.log(4), np.log(3)
    assert np.allclose(column("match_log_count"), [[0.5 * four, 0, four, 0.25 * four], [three, 0, 0.5 * three, 0]])
