"""Corrections for many tests, against statsmodels and by hand."""

import numpy as np
import pytest
from statsmodels.stats.multitest import multipletests

from readout.errors import ReadoutError
from readout.statistics import adjust_p_values, max_t_p_values

P = np.array([0.001, 0.04, 0.03, 0.5, 0.02, 0.9, 0.02])


@pytest.mark.parametrize("method", ["holm", "fdr_bh", "fdr_by"])
def test_adjusted_p_values_equal_statsmodels(method):
    assert adjust_p_values(P, method) == pytest.approx(multipletests(P, method=method)[1])


@pytest.mark.parametrize("method", ["holm", "fdr_bh", "fdr_by"])
def test_a_test_that_could_not_be_made_stays_missing_and_is_not_counted(method):
    holed = np.insert(P, 2, np.nan)
    adjusted = adjust_p_values(holed, method)
    assert np.isnan(adjusted[2])
    assert np.delete(adjusted, 2) == pytest.approx(adjust_p_values(P, method))


def test_all_missing_stays_all_missing():
    assert np.isnan(adjust_p_values(np.full(3, np.nan))).all()


def test_a_number_that_is_no_p_value_is_refused():
    with pytest.raises(ReadoutError, match=r"\[0, 1\]"):
        adjust_p_values(np.array([1.2]))
    with pytest.raises(ReadoutError, match="holm"):
        adjust_p_values(P, "sidak")


def test_max_t_compares_each_head_with_the_largest_of_every_permutation():
    observed = np.array([3.0, 1.0, np.nan])
    permuted = np.array([[0.0, 2.0, 9.0], [1.0, 0.5, 9.0], [3.0, np.nan, 9.0]])
    # Largest among the two tests made: 2, 1, 3.
    assert max_t_p_values(observed, permuted)[:2] == pytest.approx([2 / 4, 4 / 4])
    assert np.isnan(max_t_p_values(observed, permuted)[2])
