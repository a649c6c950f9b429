"""Errors of the constants: coverage on known constants, and agreement between methods."""

from dataclasses import replace

import numpy as np
import pytest

from readout.fitting import draw_observations, fit_constants
from readout.fitting.covariance import cluster_robust


def covered(fit, truth, level=0.95):
    estimates = fit.estimates(level)
    return {
        term: np.mean([row[term].low <= value <= row[term].high for row in estimates.values()])
        for term, value in truth.items()
    }


@pytest.mark.parametrize(
    ("counts", "queries", "graded"),
    [
        (((4, 4),), 4, False),
        (((2, 6), (4, 4), (1, 3)), 4, False),
        (((2, 6), (4, 4)), 4, True),
        (((2, 2, 4, 8),), 8, False),
    ],
    ids=["balanced", "mixed counts", "graded match", "four classes"],
)
def test_intervals_cover_known_constants_in_93_to_97_percent_of_1000_draws(counts, queries, graded):
    # Each head is a draw: the same prompts and constants, noise of its own, shared within contexts.
    draws = draw_observations(
        np.full(1000, -2.0), np.full(1000, 2.0), contexts=64, queries=queries, counts=counts, graded=graded,
        concentration=5, context_correlation=0.5, seed=3,
    )  # fmt: skip
    fit = fit_constants(draws)
    for share in covered(fit, {"base": -2.0, "match": 2.0}).values():
        assert 0.93 <= share <= 0.97
    assert fit.theta.mean(axis=0) == pytest.approx([-2, 2], abs=0.02)


def test_errors_that_ignore_contexts_would_be_too_small():
    draws = draw_observations(
        np.full(300, -2.0), np.full(300, 2.0), contexts=64, queries=8, concentration=5, context_correlation=0.8
    )
    clustered = fit_constants(draws)
    alone = fit_constants(replace(draws, context=np.arange(draws.n_prompts)))
    assert covered(clustered, {"base": -2.0})["base"] >= 0.93
    assert covered(alone, {"base": -2.0})["base"] < 0.9


def test_the_bootstrap_agrees_with_the_sandwich_and_names_itself():
    observations = draw_observations([-2.0, -1.0], [2.0, 1.0], contexts=80, counts=((2, 6), (4, 4)), seed=1)
    fit = fit_constants(observations, bootstrap=1000)
    sandwich, bootstrap = fit.estimates(), fit.bootstrap_estimates()
    for head in observations.heads:
        for term in ("base", "match"):
            assert bootstrap[head][term].se == pytest.approx(sandwich[head][term].se, rel=0.15)
            assert bootstrap[head][term].value == sandwich[head][term].value
    assert "sandwich" in sandwich["L0H0"]["base"].method
    assert "bootstrap" in bootstrap["L0H0"]["base"].method


def test_a_bootstrap_draw_is_the_fit_of_the_contexts_it_drew():
    from readout.statistics import bootstrap_weights

    observations = draw_observations(-2.0, 2.0, contexts=10, counts=((2, 6), (4, 4)), seed=2)
    fit = fit_constants(observations, bootstrap=3, seed=5)
    times = bootstrap_weights(10, 3, 5)[1].astype(int)[observations.context]
    drawn = observations.select_prompts(np.repeat(np.arange(40), times))
    assert fit.draws[1, 0] == pytest.approx(fit_constants(drawn).theta[0], abs=1e-6)


def test_one_context_gives_constants_without_errors():
    fit = fit_constants(draw_observations(-2.0, 2.0, contexts=1, queries=8), bootstrap=10)
    assert np.isfinite(fit.theta).all()
    assert np.isnan(fit.covariance).all()
    assert np.isnan(fit.bootstrap_estimates()["L0H0"]["base"].low)


def test_the_adjusted_sandwich_of_a_mean_is_its_unbiased_variance():
    # A mean of clusters of equal size: CR2 gives exactly the sample variance over n.
    y = np.array([1.0, 2.0, 4.0, 9.0])
    score = (y - y.mean())[:, None, None]
    covariance = cluster_robust(score, np.ones((4, 1, 1, 1)))
    assert covariance[0, 0, 0] == pytest.approx(y.var(ddof=1) / 4)
