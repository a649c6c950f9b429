"""Clustered means, ratios and differences against statsmodels and by hand."""

import numpy as np
import pytest
import statsmodels.api as sm
from scipy import stats

from readout.errors import FitError, ReadoutError
from readout.statistics import (
    Estimate,
    cluster_difference,
    cluster_index,
    cluster_mean,
    cluster_means,
    cluster_ratios,
    cluster_sums,
)


@pytest.fixture
def sample():
    rng = np.random.default_rng(0)
    clusters = rng.integers(0, 12, 60)
    return rng.normal(1, 2, 60) + rng.normal(0, 1, 12)[clusters], clusters


def test_cluster_names_of_any_kind_become_consecutive_integers():
    index, count = cluster_index(np.array(["b", "a", "b", "z"]))
    assert count == 3
    assert index.tolist() == [1, 0, 1, 2]


def test_cluster_sums_add_the_rows_of_each_cluster():
    sums = cluster_sums(np.arange(8.0).reshape(4, 2), np.array([0, 1, 0, 1]), 2)
    assert sums.tolist() == [[4.0, 6.0], [8.0, 10.0]]


def test_a_clustered_mean_equals_statsmodels_cluster_robust_regression_on_a_constant(sample):
    y, clusters = sample
    fit = sm.OLS(y, np.ones(len(y))).fit(
        cov_type="cluster", cov_kwds={"groups": clusters, "use_correction": False}, use_t=True
    )
    estimate = cluster_mean(y, clusters)
    c = len(np.unique(clusters))
    se = fit.bse[0] * np.sqrt(c / (c - 1))
    assert estimate.value == pytest.approx(y.mean())
    assert estimate.se == pytest.approx(se)
    assert estimate.high - estimate.value == pytest.approx(stats.t.ppf(0.975, c - 1) * se)
    assert (estimate.n, estimate.clusters) == (60, c)


def test_one_observation_a_cluster_gives_the_ordinary_t_interval():
    y = np.array([1.0, 2.0, 4.0, 8.0])
    low, high = stats.t.interval(0.9, 3, y.mean(), stats.sem(y))
    estimate = cluster_mean(y, np.arange(4), level=0.9)
    assert (estimate.low, estimate.high) == (pytest.approx(low), pytest.approx(high))


def test_a_missing_value_is_left_out_of_its_own_column_only(sample):
    y, clusters = sample
    holed = np.column_stack([y, y])
    holed[3, 0] = np.nan
    one, two = cluster_means(holed, clusters)
    keep = np.arange(60) != 3
    for estimate, exact in ((one, cluster_mean(y[keep], clusters[keep])), (two, cluster_mean(y, clusters))):
        assert (estimate.n, estimate.clusters) == (exact.n, exact.clusters)
        assert (estimate.value, estimate.se) == (pytest.approx(exact.value), pytest.approx(exact.se))


def test_a_single_cluster_has_a_mean_but_no_interval():
    estimate = cluster_mean(np.array([1.0, 3.0]), np.array([7, 7]))
    assert estimate.value == 2
    assert np.isnan([estimate.low, estimate.high, estimate.se]).all()


def test_a_paired_difference_is_the_mean_of_differences(sample):
    y, clusters = sample
    assert cluster_difference(y, 2 * y, clusters) == cluster_mean(-y, clusters)


def test_a_ratio_of_sums_equals_statsmodels_slope_through_zero(sample):
    y, clusters = sample
    x = y + np.random.default_rng(1).normal(size=60)
    fit = sm.OLS(y, x).fit(cov_type="cluster", cov_kwds={"groups": clusters, "use_correction": False})
    estimate = cluster_ratios((x * y)[:, None], (x**2)[:, None], clusters)[0]
    c = len(np.unique(clusters))
    assert estimate.value == pytest.approx(fit.params[0])
    assert estimate.se == pytest.approx(fit.bse[0] * np.sqrt(c / (c - 1)))


def test_a_ratio_with_nothing_below_the_line_is_not_a_number():
    estimate = cluster_ratios(np.ones((4, 1)), np.zeros((4, 1)), np.arange(4))[0]
    assert np.isnan(estimate.low)


def test_rows_and_cluster_names_must_match_in_number():
    with pytest.raises(ReadoutError, match="one row per cluster name"):
        cluster_means(np.zeros((3, 1)), np.arange(4))
    with pytest.raises(ReadoutError, match="non-empty"):
        cluster_index(np.zeros(0))
    with pytest.raises(ReadoutError, match="equal shape"):
        cluster_difference(np.zeros(3), np.zeros(4), np.arange(3))


def test_an_estimate_keeps_its_numbers_and_its_missing_ones_through_json():
    estimate = Estimate(0.1 + 0.2, float("nan"), 1 / 3, 0.5, 10, 3, "by hand")
    again = Estimate.from_json(estimate.to_json())
    assert again.value == estimate.value
    assert again.high == estimate.high
    assert np.isnan(again.low)
    assert again.method == "by hand"


def test_an_estimate_prints_its_interval():
    assert str(Estimate(0.5, 0.25, 0.75, 0.1, 10, 3, "")) == "0.500 [0.250, 0.750]"


def test_a_level_that_is_no_coverage_is_refused():
    values, clusters = np.arange(4.0), np.arange(4)
    for level in (0, 1, 95, "0.95"):
        with pytest.raises(FitError, match="level: expected a number between 0 and 1"):
            cluster_mean(values, clusters, level)
        with pytest.raises(FitError, match="level"):
            cluster_ratios(values[:, None], values[:, None], clusters, level)


def test_an_estimate_that_lacks_a_field_or_is_no_object_is_refused():
    whole = cluster_mean(np.arange(4.0), np.arange(4)).to_dict()
    with pytest.raises(FitError, match="estimate: low missing"):
        Estimate.from_dict({key: value for key, value in whole.items() if key != "low"})
    with pytest.raises(FitError, match="estimate: expected a JSON object, got list"):
        Estimate.from_json("[]")
    with pytest.raises(FitError, match="estimate: a value is not of its kind"):
        Estimate.from_dict({**whole, "value": "much"})
