"""SoftmaxReadout: fit, predict, print, keep."""

import json

import numpy as np
import pytest
from test_observations import record

from readout.errors import FitError
from readout.fitting import Observations, SoftmaxReadout, draw_observations, fit_constants

COUNTS = ((2, 6), (4, 4))


@pytest.fixture(scope="module")
def observations():
    return draw_observations([-2.0, -1.0, -3.0], [2.0, 1.0, 0.0], contexts=20, counts=COUNTS, seed=1)


def test_a_fit_recovers_the_constants_it_was_drawn_from():
    truth = np.array([[-2.0, 2.0], [-1.0, 1.0]])
    drawn = draw_observations(*truth.T, contexts=200, counts=COUNTS, seed=2)
    readout = SoftmaxReadout().fit(drawn)
    for head, row in zip(readout.heads_, truth, strict=True):
        for term, value in zip(("base", "match"), row, strict=True):
            estimate = readout.constants_[head][term]
            assert abs(estimate.value - value) < 3 * estimate.se
            assert estimate.low < estimate.value < estimate.high


def test_predicted_attention_follows_the_two_constants(observations):
    readout = SoftmaxReadout(heads=["L0H1"]).fit(observations)
    b, a = readout.theta_[0]
    prompt = 7
    odds = np.where(observations.mask[prompt], np.exp(b + a * observations.match[prompt]), 0)
    assert readout.predict_attention(observations)[prompt, 0] == pytest.approx(odds / (1 + odds.sum()))


def test_predicted_probabilities_sum_to_one_over_a_prompts_labels(observations):
    for link in ("share", "power", "gain", "gain_per_head"):
        prediction = SoftmaxReadout(link).fit(observations).predict_proba(observations)
        assert prediction.sum(axis=1) == pytest.approx(np.ones(80))


def test_prediction_needs_no_observed_attention(observations):
    readout = SoftmaxReadout().fit(observations)
    bare = Observations.from_arrays(None, observations.match, observations.label, observations.context)
    assert readout.predict_proba(bare) == pytest.approx(readout.predict_proba(observations))


def test_chosen_heads_alone_are_fitted_in_the_order_given(observations):
    readout = SoftmaxReadout(heads=["L0H2", "L0H0"]).fit(observations)
    every = fit_constants(observations)
    assert readout.heads_ == ("L0H2", "L0H0")
    assert readout.theta_ == pytest.approx(every.theta[[2, 0]], abs=1e-9)


def test_a_record_is_fitted_like_its_observations():
    by_record = SoftmaxReadout(match="similarity").fit(record())
    by_hand = SoftmaxReadout().fit(Observations.from_record(record(), match="similarity"))
    assert np.array_equal(by_record.theta_, by_hand.theta_, equal_nan=True)


def test_a_degenerate_head_is_named_and_takes_no_part(observations):
    attention = observations.attention.copy()
    attention[:, 1] = 0
    dead = Observations.from_arrays(
        attention, observations.match, observations.label, observations.context,
        label_probability=observations.label_probability,
    )  # fmt: skip
    readout = SoftmaxReadout("gain_per_head").fit(dead)
    assert readout.status_["H1"] == "no attention on labels"
    assert readout.usable_heads_ == ("H0", "H2")
    assert len(readout.link_.constants) == 2
    assert np.isfinite(readout.predict_proba(dead)).all()
    assert np.isnan(readout.predict_attention(dead)[:, 1]).all()
    assert "no attention on labels: 1 (H1)" in readout.summary()


def test_a_saved_readout_comes_back_exactly(observations, tmp_path):
    attention = observations.attention.copy()
    attention[:, 1] = 0
    dead = Observations.from_arrays(
        attention, observations.match, observations.label, observations.context,
        label_probability=observations.label_probability,
    )  # fmt: skip
    readout = SoftmaxReadout("power", bootstrap=20, match="similarity").fit(dead)
    readout.save(tmp_path / "fit.json")
    again = SoftmaxReadout.load(tmp_path / "fit.json")
    assert again.to_dict() == readout.to_dict()
    assert np.array_equal(again.theta_, readout.theta_, equal_nan=True)
    assert np.array_equal(again.predict_proba(dead), readout.predict_proba(dead))
    assert again.summary() == readout.summary()


def test_the_summary_names_constants_intervals_and_fits_a_screen():
    many = draw_observations(np.full(200, -2.0), np.full(200, 1.0), contexts=5)
    text = SoftmaxReadout().fit(many).summary()
    assert "200 heads" in text
    assert "and 180 more" in text
    assert "sandwich clustered by context" in text
    assert len(text.splitlines()) < 40


def test_misuse_is_refused_with_what_to_do(observations, tmp_path):
    with pytest.raises(FitError, match="call fit"):
        SoftmaxReadout().predict_attention(observations)
    with pytest.raises(FitError, match="call fit"):
        SoftmaxReadout().summary()
    with pytest.raises(FitError, match="L1H1 not among"):
        SoftmaxReadout(heads=["L1H1"]).fit(observations)
    with pytest.raises(FitError, match="at least one head"):
        SoftmaxReadout(heads=[]).fit(observations)
    blank = observations.with_match(np.zeros(observations.match.shape))
    with pytest.raises(FitError, match="no matching demonstrations"):
        SoftmaxReadout().fit(blank).predict_proba(blank)
    with pytest.raises(FitError, match="cannot be read as JSON"):
        SoftmaxReadout.load(tmp_path / "missing.json")
    (tmp_path / "other.json").write_text(json.dumps({"format": "something"}))
    with pytest.raises(FitError, match="expected format"):
        SoftmaxReadout.load(tmp_path / "other.json")


def test_synthetic_attention_has_the_mean_of_the_model_and_is_correlated_within_contexts():
    drawn = draw_observations(np.full(2000, -1.0), np.full(2000, 1.0), contexts=4, queries=2, counts=((2, 2),))
    expected = SoftmaxReadout()
    expected.fit(drawn.select_heads(["L0H0"]))
    expected.theta_ = np.array([[-1.0, 1.0]])
    mean = expected.predict_attention(drawn)[:, 0]
    assert drawn.attention.mean(axis=1) == pytest.approx(mean, abs=0.01)
    noise = drawn.attention - mean[:, None]
    same = np.corrcoef(noise[0, :, 0], noise[1, :, 0])[0, 1]
    other = np.corrcoef(noise[0, :, 0], noise[2, :, 0])[0, 1]
    assert same > 0.3
    assert abs(other) < 0.1


def test_the_match_array_of_the_fit_is_not_used_for_other_records():
    readout = SoftmaxReadout(match=record()["similarity"].values).fit(record())
    with pytest.raises(FitError, match=r"cannot be another record's; give Observations .* or set match to"):
        readout.predict_attention(record())
    assert readout.predict_attention(Observations.from_record(record(), match="similarity")).shape == (2, 2, 2)


def test_a_loaded_readout_asks_for_the_match_that_its_file_lacks(observations, tmp_path):
    readout = SoftmaxReadout(match=lambda data: data["similarity"].values).fit(observations)
    readout.save(tmp_path / "fit.json")
    again = SoftmaxReadout.load(tmp_path / "fit.json")
    with pytest.raises(FitError, match="which its file lacks"):
        again.predict_attention(record())
    assert again.to_dict() == readout.to_dict()
    again.match = "similarity"
    assert np.array_equal(again.predict_attention(record()), readout.predict_attention(record()))


def test_an_unfitted_readout_says_so_in_every_prediction(observations):
    for predict in (SoftmaxReadout().predict_proba, SoftmaxReadout().predict_mass):
        with pytest.raises(FitError, match="not fitted yet; call fit, or load one"):
            predict(observations)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"theta": [[1.0]]}, r"theta: expected shape \(3, 2\) .* got \(1, 1\)"),
        ({"theta": [[1.0, 2.0], [3.0]]}, "theta: a value is not of its kind"),
        ({"theta": [[None, None]] * 3}, "theta: expected numbers for the heads whose status is 'ok'"),
        ({"covariance": [[0.0]]}, r"covariance: expected shape \(3, 2, 2\)"),
        ({"heads": ["L0H0"]}, r"theta: expected shape \(1, 2\)"),
        ({"heads": "L0H0"}, "heads: expected a list of different names"),
        ({"terms": ["base", "likeness"]}, "terms: expected names among base, match"),
        ({"status": {"L0H0": "ok"}}, "status: expected one for each of the 3 heads, got 1"),
        ({"link_constants": [1.0, 2.0]}, "link_constants: link 'power' with 3 usable heads has 1 constant, got 2"),
        ({"link": "logit"}, "link: expected one of"),
        ({"constants": {}}, r"constants: expected an estimate for every head \(3\)"),
        ({"match": 3}, "match: expected null, a name or a similarity, got int"),
        ({"n_prompts": "many"}, "n_prompts: expected a whole number"),
        ({"level": 95}, "level: expected a number between 0 and 1"),
    ],
)
def test_a_file_whose_parts_do_not_go_together_is_refused(observations, change, message):
    data = SoftmaxReadout("power").fit(observations).to_dict()
    with pytest.raises(FitError, match=message):
        SoftmaxReadout.from_dict({**data, **change})


def test_a_file_that_lacks_a_field_or_is_a_list_is_refused(observations, tmp_path):
    data = SoftmaxReadout().fit(observations).to_dict()
    for name in set(data) - {"format"}:
        with pytest.raises(FitError, match=f"readout file: {name} missing"):
            SoftmaxReadout.from_dict({key: value for key, value in data.items() if key != name})
    (tmp_path / "list.json").write_text("[1, 2]")
    with pytest.raises(FitError, match="expected a JSON object, got list"):
        SoftmaxReadout.load(tmp_path / "list.json")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"level": 1.0}, "level: expected a number between 0 and 1"),
        ({"level": -0.5}, "level"),
        ({"bootstrap": -5}, "bootstrap: expected a whole number of at least 2 .* or 0 for none, got -5"),
        ({"bootstrap": 1}, "bootstrap"),
        ({"seed": -1}, "seed: expected a whole number of at least 0, got -1"),
    ],
)
def test_settings_out_of_range_are_refused(options, message):
    with pytest.raises(FitError, match=message):
        SoftmaxReadout(**options)


def test_one_head_one_prompt_and_one_context_are_singular():
    one = draw_observations(-1.0, 1.0, contexts=1, queries=1, counts=((1, 1),))
    assert "1 head, fitted to 1 prompt in 1 context" in SoftmaxReadout().fit(one).summary()
