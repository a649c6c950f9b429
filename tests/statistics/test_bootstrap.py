"""The cluster bootstrap against scipy and against the clustered t interval."""

import numpy as np
import pytest
from scipy import stats

from readout.errors import FitError, ReadoutError
from readout.statistics import (
    bootstrap_difference,
    bootstrap_weights,
    cluster_bootstrap,
    cluster_mean,
    ratio_bootstrap,
)


def mean(sums):
    return sums[:, 0] / sums[:, 1]


@pytest.fixture
def sample():
    rng = np.random.default_rng(0)
    clusters = np.repeat(np.arange(40), 3)
    y = rng.exponential(1, 120) + rng.exponential(1, 40)[clusters]
    return np.column_stack([y, np.ones(120)]), clusters


def test_weights_draw_as_many_clusters_as_there_are():
    weights = bootstrap_weights(7, 50, seed=3)
    assert (weights.sum(axis=1) == 7).all()
    assert weights.mean() == pytest.approx(1)


def test_the_same_seed_gives_the_same_interval(sample):
    one, two, other = (cluster_bootstrap(*sample, mean, seed=s) for s in (1, 1, 2))
    assert one == two
    assert one != other


def test_the_bootstrap_error_of_a_mean_is_the_clustered_error(sample):
    values, clusters = sample
    estimate = cluster_bootstrap(values, clusters, mean, draws=20000)
    exact = cluster_mean(values[:, 0], clusters)
    assert estimate.value == pytest.approx(exact.value)
    # The bootstrap's variance lacks the factor C / (C - 1).
    assert estimate.se == pytest.approx(exact.se * np.sqrt(39 / 40), rel=0.03)


def test_percentile_and_bca_intervals_equal_scipys_on_cluster_means(sample):
    values, clusters = sample
    means = values[:, 0].reshape(40, 3).mean(axis=1)
    for method in ("percentile", "bca"):
        ours = cluster_bootstrap(values, clusters, mean, draws=20000, method=method)
        theirs = stats.bootstrap(
            (means,), np.mean, n_resamples=20000, method=method.replace("bca", "BCa"), rng=np.random.default_rng(1)
        ).confidence_interval
        assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=0.02)


def test_a_ratio_is_bootstrapped_with_both_its_sums(sample):
    values, clusters = sample
    assert ratio_bootstrap(values[:, 0], values[:, 1], clusters) == cluster_bootstrap(values, clusters, mean)


def test_two_samples_have_the_error_of_a_difference_of_independent_means(sample):
    values, clusters = sample
    y = values[:, 0]
    estimate = bootstrap_difference(y, clusters, y[:60] + 1, clusters[:60], draws=20000)
    errors = [cluster_mean(v, c).se for v, c in ((y, clusters), (y[:60], clusters[:60]))]
    assert estimate.value == pytest.approx(y.mean() - y[:60].mean() - 1)
    assert estimate.se == pytest.approx(np.hypot(*errors), rel=0.05)


def test_one_cluster_gives_a_value_without_an_interval():
    estimate = cluster_bootstrap(np.ones((3, 2)), np.zeros(3), mean)
    assert estimate.value == 1
    assert np.isnan(estimate.low)


def test_an_unknown_method_or_a_wrong_number_of_rows_is_refused(sample):
    values, clusters = sample
    with pytest.raises(ReadoutError, match="'percentile' or 'bca'"):
        cluster_bootstrap(values, clusters, mean, method="basic")
    with pytest.raises(ReadoutError, match="one row per cluster name"):
        cluster_bootstrap(values, clusters[1:], mean)


def test_draws_levels_and_seeds_out_of_range_are_refused():
    values, clusters = np.arange(6.0), np.repeat([0, 1, 2], 2)
    for options, message in (
        ({"seed": -1}, "seed: expected a whole number of at least 0, got -1"),
        ({"draws": 1}, "draws: expected a whole number of at least 2"),
        ({"draws": -3}, "draws"),
        ({"level": 1.2}, "level: expected a number between 0 and 1"),
        ({"level": float("nan")}, "level"),
    ):
        with pytest.raises(FitError, match=message):
            ratio_bootstrap(values, values + 1, clusters, **options)
        with pytest.raises(FitError, match=message):
            bootstrap_difference(values, clusters, values, clusters, **options)
