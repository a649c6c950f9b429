"""Errors of predictions, by hand and against scikit-learn and statsmodels."""

import numpy as np
import pytest
import statsmodels.api as sm
from scipy import special
from sklearn.metrics import r2_score

from readout.validation import attention_errors, calibrate, prompt_errors
from readout.validation.calibration import Calibration
from readout.validation.metrics import bootstrap_mean, mean_errors

MODEL = np.array([[0.5, 0.5, 0.0], [0.7, 0.2, 0.1], [0.6, 0.4, 0.0]])
PREDICTION = np.array([[0.25, 0.75, 0.0], [0.4, 0.4, 0.2], [0.5, 0.5, 0.0]])
LABELS = np.array([[True, True, False], [True, True, True], [True, True, False]])


def test_errors_of_a_prompt_are_those_of_paper():
    errors = prompt_errors(MODEL, PREDICTION, LABELS)
    assert errors["kl"][0] == pytest.approx(0.5 * np.log(2) + 0.5 * np.log(2 / 3))
    assert errors["kl"] == pytest.approx(special.rel_entr(MODEL, PREDICTION).sum(axis=1))
    assert errors["tv"] == pytest.approx([0.25, 0.3, 0.1])
    assert errors["mae"] == pytest.approx([0.25, 0.2, 0.1])
    assert errors["brier"] == pytest.approx([0.125, 0.14, 0.02])


def test_brier_is_what_the_expected_score_lies_above_the_models_own():
    def expected(q, p):
        return sum(p[k] * ((q - np.eye(3)[k]) ** 2).sum() for k in range(3))

    excess = expected(PREDICTION[1], MODEL[1]) - expected(MODEL[1], MODEL[1])
    assert prompt_errors(MODEL, PREDICTION, LABELS)["brier"][1] == pytest.approx(excess)


def test_agreement_shares_a_tied_prediction_out():
    assert prompt_errors(MODEL, PREDICTION, LABELS)["agreement"] == pytest.approx([0, 0.5, 0.5])


def test_a_perfect_prediction_has_no_error():
    errors = prompt_errors(MODEL, MODEL, LABELS)
    assert all((errors[name] == 0).all() for name in ("kl", "tv", "mae", "brier"))


def test_a_prediction_of_zero_costs_much_but_not_infinitely():
    kl = prompt_errors(np.array([[0.5, 0.5]]), np.array([[1.0, 0.0]]), np.ones((1, 2), bool))["kl"][0]
    assert 10 < kl < 20


def test_mean_errors_are_means_with_intervals_over_contexts():
    rng = np.random.default_rng(0)
    values, context = rng.normal(size=60), np.repeat(np.arange(15), 4)
    table = mean_errors({"kl": values}, context)
    assert table["kl"] == bootstrap_mean(values, context)
    assert table["kl"].value == pytest.approx(values.mean())
    assert table["kl"].low < values.mean() < table["kl"].high


def test_attention_errors_equal_scikit_learn_a_head_each():
    rng = np.random.default_rng(1)
    observed, labels = rng.random((40, 2, 3)), rng.random((40, 3)) < 0.8
    labels[:, 0] = True
    predicted = observed + rng.normal(0, 0.1, observed.shape)
    table = attention_errors(observed, predicted, labels, np.arange(40) // 2, ["a", "b"])
    for h, name in enumerate("ab"):
        y, x = observed[:, h][labels], predicted[:, h][labels]
        assert table[name]["r2"].value == pytest.approx(r2_score(y, x))
        assert table[name]["mae"].value == pytest.approx(np.abs(y - x).mean())
        assert table[name]["bias"].value == pytest.approx((x - y).mean())
        assert table[name]["r2"].low < table[name]["r2"].value < table[name]["r2"].high
    flat = [np.concatenate([v[:, h][labels] for h in (0, 1)]) for v in (observed, predicted)]
    means = np.repeat([observed[:, h][labels].mean() for h in (0, 1)], labels.sum())
    pooled = 1 - ((flat[0] - flat[1]) ** 2).sum() / ((flat[0] - means) ** 2).sum()
    assert table["pooled"]["r2"].value == pytest.approx(pooled)
    assert table["pooled"]["mae"].value == pytest.approx(np.abs(flat[0] - flat[1]).mean())


def labelled(n=200, seed=0):
    rng = np.random.default_rng(seed)
    prediction = rng.dirichlet([2, 2, 2], n)
    return prediction, np.ones((n, 3), bool), np.arange(n) // 4, rng


def test_calibration_is_a_fractional_logit_with_clustered_errors():
    prediction, labels, context, rng = labelled()
    model = rng.dirichlet([1, 1, 1], 200) * 0.5 + prediction * 0.5
    found = calibrate(model, prediction, labels, context)
    logit = np.log(prediction / (1 - prediction)).ravel()
    fit = sm.GLM(model.ravel(), sm.add_constant(logit), family=sm.families.Binomial()).fit(
        cov_type="cluster", cov_kwds={"groups": np.repeat(context, 3)}
    )
    assert (found.intercept.value, found.slope.value) == pytest.approx(tuple(fit.params))
    assert found.slope.se == pytest.approx(fit.bse[1])
    assert found.slope.low < found.slope.value < found.slope.high


def test_a_perfect_prediction_has_slope_one_and_intercept_zero():
    prediction, labels, context, _ = labelled()
    found = calibrate(prediction, prediction, labels, context)
    assert found.slope.value == pytest.approx(1, abs=1e-6)
    assert found.intercept.value == pytest.approx(0, abs=1e-6)
    assert all(b.actual.value == pytest.approx(b.predicted) for b in found.curve)


def test_predictions_that_are_too_sure_have_a_slope_below_one():
    prediction, labels, context, _ = labelled()
    odds = (prediction / (1 - prediction)) ** 0.5
    model = odds / (1 + odds)
    assert calibrate(model, prediction, labels, context).slope.value == pytest.approx(0.5, abs=0.01)


def test_predictions_that_never_vary_have_a_curve_but_no_slope():
    _, labels, context, rng = labelled()
    found = calibrate(rng.dirichlet([1, 1, 1], 200), np.full((200, 3), 1 / 3), labels, context)
    assert np.isnan(found.slope.value)
    assert len(found.curve) == 10


def test_the_reliability_curve_covers_all_labels_from_low_to_high():
    prediction, labels, context, _ = labelled()
    found = calibrate(prediction, prediction, labels, context, bins=7)
    assert sum(b.actual.n for b in found.curve) == 600
    assert np.all(np.diff([b.predicted for b in found.curve]) > 0)
    assert Calibration.from_dict(found.to_dict()) == found
