"""Partial pooling across heads, against the formulas of its limits and against drawn constants."""

from dataclasses import replace

import numpy as np
import pytest

from readout.errors import FitError
from readout.fitting import ConstantsFit, pool_constants


def fitted(theta: np.ndarray, covariance: np.ndarray) -> ConstantsFit:
    heads = tuple(f"L0H{h}" for h in range(len(theta)))
    status = tuple("ok" for _ in heads)
    return ConstantsFit(heads, ("base", "match"), theta, covariance, status, np.zeros(len(theta)), None, 40, 10)


def drawn(seed: int, heads: int = 40, spread: float = 0.5, error: float = 1.0):
    rng = np.random.default_rng(seed)
    true = np.array([-2.0, 1.5]) + spread * rng.normal(size=(heads, 2))
    covariance = np.broadcast_to(error**2 * np.eye(2), (heads, 2, 2))
    return true, fitted(true + error * rng.normal(size=(heads, 2)), covariance.copy())


def test_heads_that_differ_by_no_more_than_their_errors_get_one_weighted_mean():
    theta = np.array([[-1.0, 2.0], [-1.1, 2.1], [-0.9, 1.9]])
    errors = np.array([1.0, 2.0, 4.0])
    pooled = pool_constants(fitted(theta, errors[:, None, None] * np.eye(2)))
    weighted = (theta / errors[:, None]).sum(0) / (1 / errors).sum()
    assert pooled.spread == pytest.approx(np.zeros((2, 2)))
    assert pooled.fit.theta == pytest.approx(np.tile(weighted, (3, 1)))


def test_heads_that_are_known_exactly_stay_as_they_are():
    theta = np.array([[-1.0, 2.0], [-3.0, 0.5], [0.0, 5.0], [2.0, 1.0]])
    pooled = pool_constants(fitted(theta, np.broadcast_to(1e-12 * np.eye(2), (4, 2, 2)).copy()))
    assert pooled.fit.theta == pytest.approx(theta, abs=1e-9)


def test_one_term_is_drawn_in_by_the_share_of_the_error_in_all_variance():
    theta = np.array([[-3.0, 0.0], [-1.0, 0.0], [1.0, 0.0]])
    pooled = pool_constants(fitted(theta, np.broadcast_to(np.eye(2), (3, 2, 2)).copy()))
    # The variance of -3, -1, 1 is 4, of which 1 is error: three quarters of the distance from -1 are kept.
    assert pooled.fit.theta[:, 0] == pytest.approx([-2.5, -1.0, 0.5])


def test_pooled_constants_lie_nearer_to_those_they_were_drawn_from():
    gains = []
    for seed in range(20):
        true, fit = drawn(seed)
        before = ((fit.theta - true) ** 2).mean()
        gains.append(((pool_constants(fit).fit.theta - true) ** 2).mean() / before)
    # Spread .5 and error 1 leave .25 / 1.25 of the squared error, and a little for T and mu being estimated.
    assert np.mean(gains) == pytest.approx(0.2, abs=0.06)


def test_with_many_heads_posterior_intervals_cover_the_constants_they_were_drawn_from():
    inside = []
    for seed in range(10):
        true, fit = drawn(seed, heads=1000, spread=1.0)
        pooled = pool_constants(fit).fit
        se = np.sqrt(np.einsum("hdd->hd", pooled.covariance))
        inside.append((np.abs(pooled.theta - true) < 1.96 * se).mean())
    assert np.mean(inside) == pytest.approx(0.95, abs=0.01)


def test_heads_without_constants_are_left_out_and_few_heads_are_refused():
    _, fit = drawn(0, heads=4)
    theta = fit.theta.copy()
    theta[3] = np.nan
    lacking = replace(fit, theta=theta, status=("ok", "ok", "ok", "no attention"))
    pooled = pool_constants(lacking)
    assert np.isnan(pooled.fit.theta[3]).all()
    assert "3 heads pooled" in pooled.summary()
    with pytest.raises(FitError, match="at least 3 heads with constants, got 2"):
        pool_constants(replace(lacking, status=("ok", "ok", "no attention", "no attention")))
    with pytest.raises(FitError, match="have no covariance"):
        pool_constants(replace(fit, covariance=np.full((4, 2, 2), np.nan)))
