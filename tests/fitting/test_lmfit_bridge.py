"""The lmfit bridge against Newton, and its own abilities."""

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy import optimize, stats

from readout.errors import FitError
from readout.fitting import draw_observations, fit_constants
from readout.fitting.lmfit_bridge import LmfitResult, fit_lmfit, make_parameters, parameter_name


@pytest.fixture(scope="module")
def observations():
    return draw_observations([-2.0, -1.0], [2.0, 1.0], contexts=30, counts=((2, 6), (4, 4)), seed=1)


@pytest.mark.parametrize("graded", [False, True])
def test_constants_equal_newtons_to_a_millionth(graded):
    drawn = draw_observations([-2.0, 0.5, -4.0], [2.0, -1.0, 3.0], contexts=20, graded=graded, seed=2)
    assert fit_lmfit(drawn).theta == pytest.approx(fit_constants(drawn).theta, abs=1e-6)


def test_clustered_errors_equal_the_sandwich(observations):
    result, fit = fit_lmfit(observations), fit_constants(observations).estimates()
    for head in observations.heads:
        for term in ("base", "match"):
            ours = result.estimates[parameter_name(head, term)]
            assert (ours.low, ours.high) == pytest.approx((fit[head][term].low, fit[head][term].high), abs=1e-5)


def test_a_fixed_constant_stays_and_the_others_adapt(observations):
    parameters = make_parameters(observations.heads)
    parameters["L0H0_match"].set(value=1.0, vary=False)
    result = fit_lmfit(observations, parameters)
    assert result.theta[0, 1] == 1.0
    assert np.isnan(result.estimates["L0H0_match"].low)
    head = observations.select_heads(["L0H0"])

    def loss(b):
        odds = np.exp(b + head.match)
        total = np.log1p((odds * head.mask).sum(axis=1))
        return (total - (head.attention[:, 0] * (b + head.match)).sum(axis=1)).sum()

    assert result.theta[0, 0] == pytest.approx(optimize.minimize_scalar(loss).x, abs=1e-5)


def test_a_constant_tied_across_heads_is_one_constant(observations):
    parameters = make_parameters(observations.heads)
    parameters["L0H1_match"].set(expr="L0H0_match")
    result = fit_lmfit(observations, parameters)
    free = fit_constants(observations).theta[:, 1]
    assert result.theta[0, 1] == result.theta[1, 1]
    assert free.min() < result.theta[0, 1] < free.max()
    assert result.estimates["L0H0_match"].se > 0
    assert result.deviance > fit_lmfit(observations).deviance


def test_a_bound_holds_and_a_constant_at_it_has_no_error(observations):
    parameters = make_parameters(observations.heads)
    parameters["L0H0_match"].set(value=0.5, max=1.0)
    result = fit_lmfit(observations, parameters)
    assert result.theta[0, 1] == pytest.approx(1.0, abs=1e-4)
    assert np.isnan(result.estimates["L0H0_match"].se)


def test_a_profile_interval_ends_where_the_scaled_deviance_has_risen_enough(observations):
    head = observations.select_heads(["L0H0"])
    result = fit_lmfit(head)
    interval = result.profile("L0H0_match")
    model = np.linalg.inv(_information(head, result.theta[0]))
    ratio = result.estimates["L0H0_match"].se ** 2 / model[1, 1]
    for end in (interval.low, interval.high):
        parameters = make_parameters(head.heads)
        parameters["L0H0_match"].set(value=end, vary=False)
        rise = fit_lmfit(head, parameters).deviance - result.deviance
        assert rise / ratio == pytest.approx(stats.f.ppf(0.95, 1, 29), rel=1e-2)


def _information(observations, theta):
    total = np.zeros((2, 2))
    for m, here in zip(observations.match, observations.mask, strict=True):
        x = np.stack([np.ones(here.sum()), m[here]], axis=1)
        p = np.exp(x @ theta)
        p /= 1 + p.sum()
        total += (x * p[:, None]).T @ x - np.outer(p @ x, p @ x)
    return total


def test_profile_intervals_cover_known_constants():
    hits = []
    for seed in range(25):
        drawn = draw_observations(-2.0, 2.0, contexts=24, counts=((2, 4),), concentration=5, seed=seed)
        interval = fit_lmfit(drawn).profile("L0H0_match")
        hits.append(interval.low <= 2.0 <= interval.high)
    # Binomial(25, .95): fewer than 20 happens about once in 800 times.
    assert sum(hits) >= 20


def test_a_result_is_kept_as_json_without_dill(observations, tmp_path):
    parameters = make_parameters(observations.heads)
    parameters["L0H1_match"].set(expr="L0H0_match")
    result = fit_lmfit(observations, parameters)
    result.save(tmp_path / "lmfit.json")
    again = LmfitResult.load(tmp_path / "lmfit.json")
    assert again.to_dict() == result.to_dict()
    assert again.summary() == result.summary()
    assert "= L0H0_match" in again.summary()
    with pytest.raises(FitError, match="loaded result has none"):
        again.profile("L0H0_match")


def test_names_of_other_tools_become_names_that_expressions_can_use():
    assert parameter_name("L18H6", "match") == "L18H6_match"
    assert parameter_name("8.1", "base") == "head_8_1_base"
    with pytest.raises(FitError, match="rename one"):
        make_parameters(["8.1", "8-1"])


def test_misuse_is_refused_with_what_to_do(observations, tmp_path):
    with pytest.raises(FitError, match="start from make_parameters"):
        fit_lmfit(observations, make_parameters(["L0H0"]))
    parameters = make_parameters(observations.heads)
    parameters["L0H0_base"].set(vary=False)
    with pytest.raises(FitError, match="'L0H0_base' was not free"):
        fit_lmfit(observations, parameters).profile("L0H0_base")
    (tmp_path / "x.json").write_text(json.dumps({}))
    with pytest.raises(FitError, match="expected format"):
        LmfitResult.load(tmp_path / "x.json")


def test_a_degenerate_head_is_named_with_newtons_status(observations):
    for value, why in ((0.0, "no attention on labels"), (np.nan, "not measured")):
        attention = observations.attention.copy()
        attention[:, 1] = value
        dead = replace(observations, attention=attention)
        assert fit_constants(dead).status[1] == why
        with pytest.raises(FitError, match=rf"no constants can be fitted to L0H1 \({why}\); leave out"):
            fit_lmfit(dead)
    blank = observations.with_match(np.zeros(observations.match.shape))
    with pytest.raises(FitError, match=r"L0H0 \(no matching demonstrations\), L0H1"):
        fit_lmfit(blank)


def test_a_head_whose_match_runs_away_is_called_saturated(observations):
    attention = np.where(observations.match[:, None] > 0, observations.attention, 0.0)
    only = replace(observations, attention=attention)
    assert set(fit_constants(only).status) == {"saturated"}
    with pytest.raises(FitError, match=r"L0H0 \(saturated\), L0H1 \(saturated\)"):
        fit_lmfit(only)


def test_a_free_parameter_that_nothing_uses_is_named(observations):
    parameters = make_parameters(observations.heads)
    parameters.add("shared", value=1.0)
    with pytest.raises(FitError, match="parameters: shared free but without effect"):
        fit_lmfit(observations, parameters)
    for name in ("L0H0_match", "L0H1_match"):
        parameters[name].set(expr="shared")
    result = fit_lmfit(observations, parameters)
    assert result.theta[0, 1] == result.theta[1, 1] == result.estimates["shared"].value


def test_a_damaged_lmfit_file_is_refused(observations):
    data = fit_lmfit(observations).to_dict()
    with pytest.raises(FitError, match=r"lmfit file: theta: expected shape \(2, 2\), got \(1, 1\)"):
        LmfitResult.from_dict({**data, "theta": [[1.0]]})
    with pytest.raises(FitError, match="lmfit file: settings missing"):
        LmfitResult.from_dict({key: value for key, value in data.items() if key != "settings"})
    with pytest.raises(FitError, match="expected a JSON object, got list"):
        LmfitResult.from_dict([])
