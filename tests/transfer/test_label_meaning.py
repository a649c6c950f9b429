"""Constants of labels with meaning, against known ones and against statsmodels."""

import json

import numpy as np
import pytest
import statsmodels.api as sm

from readout.errors import FitError
from readout.fitting.links import masked_softmax
from readout.transfer.meaning import Bend, Labelled, fit_bend

WORDS = ("one", "two", "three")


def drawn(seed: int, bias: tuple[float, ...], meaning: float, noise: float, contexts: int = 120) -> Labelled:
    """Prompts of two of three labels; the model's logits differ from the prediction's by known constants."""
    rng = np.random.default_rng(seed)
    n = 2 * contexts
    context = np.repeat(np.arange(contexts), 2)
    word = np.stack([rng.permutation(3)[:2] for _ in range(contexts)])[context]
    names = np.zeros((n, 2), dtype=bool)
    names[np.arange(n), rng.integers(0, 2, n)] = True
    mask = np.ones((n, 2), dtype=bool)
    prediction = masked_softmax(rng.normal(0, 1, (n, 2)), mask)
    logits = np.log(prediction) + np.array(bias)[word] + meaning * names
    logits = logits + (noise * rng.normal(0, 1, (contexts, 2)))[context]
    return Labelled(masked_softmax(logits, mask), prediction, mask, word, names, context, WORDS)


def test_constants_without_noise_are_recovered_exactly_and_leave_no_error() -> None:
    bias, meaning = (0.5, -0.2, -0.3), 0.8
    found = fit_bend(drawn(0, bias, meaning, 0.0), with_meaning=True)
    assert [found.labels[word].value for word in WORDS] == pytest.approx(bias, abs=1e-5)
    assert found.meaning is not None
    assert found.meaning.value == pytest.approx(meaning, abs=1e-5)
    assert found.kl["with label bias and meaning"].value == pytest.approx(0, abs=1e-8)
    assert found.kl["readout"].value > found.kl["with label bias"].value > 0.01


def test_two_labels_are_a_logistic_regression_with_an_offset() -> None:
    data = drawn(2, (0.7, -0.7, 0.0), 0.5, 0.4)
    two = Labelled(
        data.probability, data.prediction, data.mask, np.tile([0, 1], (len(data.mask), 1)), data.names_query,
        data.context, WORDS[:2],
    )  # fmt: skip
    found = fit_bend(two, with_meaning=True)
    offset = np.log(two.prediction[:, 0] / two.prediction[:, 1])
    regressors = np.column_stack([np.ones(len(offset)), np.where(two.names_query[:, 0], 1.0, -1.0)])
    fitted = sm.GLM(two.probability[:, 0], regressors, family=sm.families.Binomial(), offset=offset).fit(
        cov_type="cluster", cov_kwds={"groups": two.context, "use_correction": True}
    )
    assert found.meaning is not None
    # u_0 - u_1 is the intercept, and u_0 = -u_1.
    assert 2 * found.labels["one"].value == pytest.approx(fitted.params[0], abs=1e-5)
    assert found.meaning.value == pytest.approx(fitted.params[1], abs=1e-5)
    assert found.meaning.se == pytest.approx(fitted.bse[1], rel=0.03)


def test_intervals_cover_the_truth_about_as_often_as_they_say() -> None:
    hits = 0
    for seed in range(200):
        data = drawn(seed, (0.0, 0.0, 0.0), 0.0, 0.5, contexts=40)
        found = fit_bend(data, with_meaning=True)
        assert found.meaning is not None
        hits += found.meaning.low <= 0 <= found.meaning.high
    # 95 % of 200, four standard deviations either way
    assert 178 <= hits <= 200


def test_constants_fitted_to_noise_gain_nothing_on_contexts_that_they_were_not_fitted_to() -> None:
    gains = []
    for seed in range(30):
        found = fit_bend(drawn(seed, (0.0, 0.0, 0.0), 0.0, 0.5, contexts=40), with_meaning=True)
        gains.append(found.gain["with label bias and meaning"].value)
    # in the fit itself every gain would be above 0
    assert np.mean(gains) < 0


def test_the_result_survives_json() -> None:
    found = fit_bend(drawn(0, (0.0, 0.0, 0.0), 0.3, 0.2), with_meaning=True)
    plain = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert Bend.from_dict(plain).to_dict() == plain


def test_a_single_label_word_is_refused() -> None:
    data = drawn(0, (0.0, 0.0, 0.0), 0.0, 0.0)
    one = Labelled(
        data.probability, data.prediction, data.mask, np.zeros_like(data.word), data.names_query, data.context, ("one",)
    )
    with pytest.raises(FitError, match="at least two label words and 5 contexts, got 1 and 120"):
        fit_bend(one, with_meaning=False)
