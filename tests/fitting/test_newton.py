"""Constants against statsmodels, scipy and paper; degenerate heads by name."""

from itertools import pairwise

import numpy as np
import pytest
import statsmodels.api as sm
from scipy import optimize

from readout.errors import FitError
from readout.fitting import Observations, draw_observations, features, fit_constants
from readout.fitting.likelihood import Likelihood, observed_rows, predicted_attention
from readout.fitting.patterns import find_patterns

COUNTS = ((4, 4), (2, 6), (1, 3))


def one_head(attention, match, label=None):
    """A single head in prompts that are a context each."""
    match = np.asarray(match, float)
    label = np.where(match > 0, 0, 1) if label is None else label
    return Observations.from_arrays(np.asarray(attention, float)[:, None, :], match, label, np.arange(len(match)))


def negative_log_likelihood(theta, observations, columns, head):
    attention = observations.attention[:, head]
    scores = columns @ theta
    total = np.where(observations.mask, np.exp(scores), 0).sum(axis=1)
    return -(attention * scores).sum() + np.log1p(total).sum()


def test_one_prompt_gives_the_constants_of_paper():
    # Matching labels get .4 between two, others .1, the rest .5: exp(b) = .1/.5, exp(a) = .2/.1.
    fit = fit_constants(one_head([[0.2, 0.2, 0.1]], [[1, 1, 0]]))
    assert fit.theta[0] == pytest.approx([np.log(0.2), np.log(2)])


def test_constants_equal_a_poisson_regression_with_prompt_effects():
    # A conditional logit is a Poisson regression of the masses with one free level a prompt.
    observations = draw_observations(-1.0, 1.5, contexts=6, queries=2, counts=COUNTS, concentration=5, seed=1)
    n = observations.n_prompts
    cells, design = [], []
    for i in range(n):
        for j in [*np.flatnonzero(observations.mask[i]), None]:
            row = np.zeros(n + 2)
            row[i] = 1
            if j is None:
                cells.append(1 - observations.attention[i, 0].sum())
            else:
                cells.append(observations.attention[i, 0, j])
                row[n:] = 1, observations.match[i, j]
            design.append(row)
    poisson = sm.GLM(np.array(cells), np.array(design), family=sm.families.Poisson()).fit(tol=1e-14)
    assert fit_constants(observations).theta[0] == pytest.approx(poisson.params[n:], abs=1e-7)


@pytest.mark.parametrize("graded", [False, True])
def test_all_heads_at_once_equal_one_scipy_minimisation_a_head(graded):
    base, match = [-3.0, -1.0, 0.5, -6.0], [2.0, -1.0, 0.0, 4.0]
    observations = draw_observations(base, match, contexts=12, counts=COUNTS, graded=graded, seed=2)
    fit = fit_constants(observations)
    columns = features(observations, ("base", "match"))
    for head in range(4):
        found = optimize.minimize(
            negative_log_likelihood, np.zeros(2), args=(observations, columns, head), method="BFGS", tol=1e-9
        )
        assert fit.theta[head] == pytest.approx(found.x, abs=1e-5)
        assert -fit.log_likelihood[head] * observations.n_prompts == pytest.approx(found.fun)


def test_the_score_equations_hold_in_every_cell():
    observations = draw_observations([-2.0, -1.0], [2.0, 0.5], contexts=10, counts=COUNTS, seed=3)
    columns = features(observations, ("base", "match"))
    predicted = predicted_attention(columns, observations.mask, fit_constants(observations).theta)
    left = observed_rows(observations.attention - predicted, columns).sum(axis=0)
    assert left == pytest.approx(np.zeros((2, 2)), abs=1e-9)


def test_score_and_hessian_are_the_derivatives_of_the_log_likelihood():
    observations = draw_observations([-2.0, -1.0, -3.0], [2.0, 0.5, 0.0], contexts=5, graded=True, seed=4)
    columns = features(observations, ("base", "match", "recency"))
    patterns = find_patterns(columns, observations.mask)
    sums = observed_rows(observations.attention, columns).sum(axis=0)
    likelihood = Likelihood(patterns, patterns.prompts, sums)
    theta, every = np.array([[-1.0, 1.0, 0.3], [-2.0, 0.0, -0.5], [0.0, 2.0, 0.1]]), np.arange(3)
    _, score, information = likelihood.evaluate(theta, every)
    for j in range(3):
        step = 1e-5 * np.eye(3)[j]
        high, low = (likelihood.evaluate(theta + s * step, every) for s in (1, -1))
        assert score[:, j] == pytest.approx((high[0] - low[0]) / 2e-5, rel=1e-5, abs=1e-5)
        assert -information[:, j] == pytest.approx((high[1] - low[1]) / 2e-5, rel=1e-5, abs=1e-5)


def test_predicted_attention_sums_to_one_with_the_rest_even_at_extreme_scores():
    observations = draw_observations(-1.0, 1.0, contexts=3, counts=COUNTS)
    columns = features(observations, ("base", "match"))
    theta = np.array([[-1.0, 1.0], [800.0, 100.0], [-800.0, 0.0]])
    predicted = predicted_attention(columns, observations.mask, theta)
    rest = 1 / (1 + np.exp(columns @ theta[0]).sum(axis=1, where=observations.mask))
    assert predicted[:, 0].sum(axis=1) + rest == pytest.approx(np.ones(12))
    assert predicted[:, 1].sum(axis=1) == pytest.approx(np.ones(12))
    assert predicted[:, 2].sum() == 0


def test_prompts_with_equal_counts_share_a_pattern():
    observations = draw_observations(-1.0, 1.0, contexts=50, queries=4, counts=((2, 6),), seed=5)
    patterns = find_patterns(features(observations, ("base", "match")), observations.mask)
    # Two matching and six others, or the other way round.
    assert sorted(map(tuple, patterns.counts)) == [(2.0, 6.0), (6.0, 2.0)]
    assert patterns.prompts.sum() == 200


def test_attention_without_noise_gives_the_constants_that_made_it():
    base, match = np.linspace(-6, 1, 30), np.linspace(4, -2, 30)
    observations = draw_observations(base, match, contexts=8, counts=COUNTS, concentration=1e12, seed=6)
    assert fit_constants(observations).theta == pytest.approx(np.stack([base, match], axis=1), abs=1e-3)


def test_degenerate_heads_are_named_and_get_no_numbers():
    healthy = draw_observations(-1.0, 1.0, contexts=8, counts=((2, 2),), seed=7)
    m, shape = healthy.match, healthy.match.shape
    heads = {
        "ok": healthy.attention[:, 0],
        "no attention on labels": np.zeros(shape),
        "saturated": m / m.sum(axis=1, keepdims=True),
        "not measured": np.full(shape, np.nan),
    }
    # Attention to matching labels alone: the constant of the others is minus infinity.
    heads["saturated, half"] = heads["saturated"] / 2
    observations = Observations.from_arrays(
        np.stack(list(heads.values()), axis=1), m, healthy.label, healthy.context, heads=list(heads)
    )
    fit = fit_constants(observations, bootstrap=20)
    assert fit.status == ("ok", "no attention on labels", "saturated", "not measured", "saturated")
    assert np.isfinite(fit.theta[0]).all()
    assert np.isnan(fit.theta[1:]).all()
    assert np.isnan(fit.covariance[1:]).all()
    assert np.isnan(fit.estimates()["saturated"]["match"].high)


def test_data_without_matching_demonstrations_is_named():
    fit = fit_constants(one_head([[0.1, 0.2], [0.2, 0.2]], np.zeros((2, 2))))
    assert fit.status == ("no matching demonstrations",)


def test_a_match_that_never_differs_is_named():
    fit = fit_constants(one_head([[0.1, 0.2], [0.2, 0.2]], np.ones((2, 2))))
    assert fit.status == ("match not identified",)


def test_a_very_small_but_steady_attention_is_still_fitted():
    observations = draw_observations(-9.0, 1.0, contexts=30, counts=COUNTS, concentration=1e9, seed=8)
    assert fit_constants(observations).theta[0] == pytest.approx([-9, 1], abs=0.01)


@pytest.mark.parametrize(
    ("term", "truth"), [("recency", -0.7), ("log_count", -1.1), ("gate", 0.9)], ids=lambda v: str(v)
)
def test_a_further_term_is_one_more_column_whose_constant_is_found(term, truth):
    counts = ((1, 1), (4, 4), (2, 6), (1, 3))
    observations = draw_observations(-1.0, 1.5, contexts=60, counts=counts, seed=9)
    terms = ("base", "match", term)
    columns = features(observations, terms)
    exact = predicted_attention(columns, observations.mask, np.array([[-1.0, 1.5, truth]]))
    made = Observations.from_arrays(exact, observations.match, observations.label, observations.context)
    assert fit_constants(made, terms).theta[0] == pytest.approx([-1.0, 1.5, truth], abs=1e-8)
    likelihoods = [fit_constants(made, terms[:j]).log_likelihood[0] for j in (1, 2, 3)]
    assert all(big > small for small, big in pairwise(likelihoods))


def test_terms_are_what_they_say():
    label = np.array([[0, 1, 0, -1], [0, 1, -1, -1]])
    observations = Observations.from_arrays(None, np.zeros((2, 4)), label, np.arange(2))
    columns = features(observations, ("gate", "recency", "log_count"))
    assert columns[:, :, 0].tolist() == [[0, 0, 0, 0], [1, 1, 0, 0]]
    assert columns[:, :, 1].tolist() == [[0, 0, 1, 0], [0, 1, 0, 0]]
    assert columns[:, 0, 2] == pytest.approx(np.log([3, 2]))


def test_unknown_terms_are_refused_with_the_known_ones():
    with pytest.raises(FitError, match="base, match, gate, recency, log_count"):
        features(draw_observations(-1.0, 1.0, contexts=3), ("base", "matches"))
