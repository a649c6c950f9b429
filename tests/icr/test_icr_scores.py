"""Scores against values by hand, and methods that need no training against other ways to compute them."""

import json

import numpy as np
import pytest
import torch
from scipy.special import log_softmax

from readout.errors import ReadoutError
from readout.icr.encoders import Reader, random_vectors
from readout.icr.examples import few_shot
from readout.icr.methods.plain import FewShot, ZeroShot
from readout.icr.methods.references import ContextualCalibration, EncoderOnly, LabelBias, softmax_regression
from readout.icr.passes import last_logits, make_batch
from readout.icr.scores import Scores, crossed_bootstrap, right_answers, summarise
from readout.icr.study import Study
from readout.statistics import Estimate

RNG = np.random.default_rng(0)


def scores(zero: float = 0.5, few: float = 0.9, icr: float = 0.7, items: int = 400) -> Scores:
    def drawn(share: float, seeds: int = 1) -> np.ndarray:
        found = np.zeros((seeds, items), bool)
        found[:, : round(share * items)] = True
        return found

    names = ("a", "b")
    right = {
        "zero-shot": dict.fromkeys(names, drawn(zero)),
        "few-shot": {"a": drawn(few), "b": drawn(zero)},
        "icr": {"a": drawn(icr, 3), "b": drawn(zero - 0.005, 3)},
    }
    return Scores(right, {"a": "in-domain", "b": "far"}, {"a": 0.5, "b": 0.5})


def test_the_answer_is_the_likeliest_of_a_querys_own() -> None:
    logits = np.array([[1.0, 2.0, np.nan], [3.0, 1.0, 2.0]])
    assert right_answers(logits, np.array([1, 2])).tolist() == [True, False]


def test_recovery_is_the_share_of_the_gap_and_read_only_where_there_is_one() -> None:
    found = scores()
    recovery = found.recovery("icr", "a")
    assert recovery is not None
    assert recovery.value == pytest.approx(0.5)
    assert recovery.low < 0.5 < recovery.high
    assert found.recovery("icr", "b") is None
    assert found.recovery("zero-shot", "a") is None
    assert found.recovery("few-shot", "a") is None


def test_the_table_has_recovery_in_a_column_for_each_set_where_few_shot_is_better() -> None:
    told = summarise(scores().to_dict()).split("recovery, ")[1].splitlines()
    assert told[1].split() == ["a"]
    assert [line.split()[0] for line in told[2:]] == ["icr"]


def test_collapses_are_counted_raw_and_by_a_paired_interval() -> None:
    assert scores().collapses("icr") == (["b"], [])
    assert scores(zero=0.8, icr=0.7).collapses("icr") == (["a", "b"], ["a"])
    assert scores().collapses("few-shot") == ([], [])  # a tie is none


def test_an_interval_over_items_is_the_binomials_and_seeds_add_to_it() -> None:
    items = RNG.random((1, 500)) < 0.6
    one = crossed_bootstrap([items.astype(float)])
    assert one.se == pytest.approx(np.sqrt(items.mean() * (1 - items.mean()) / 500), rel=0.1)
    apart = np.stack([RNG.random(500) < share for share in (0.4, 0.6, 0.8)]).astype(float)
    same = np.repeat(items, 3, 0).astype(float)
    assert crossed_bootstrap([same]).se == pytest.approx(one.se, rel=1e-9)
    assert crossed_bootstrap([apart]).se > 3 * one.se
    with pytest.raises(ReadoutError, match="same seeds"):
        crossed_bootstrap([apart, items.astype(float)])


def test_the_interval_covers_the_truth_as_often_as_it_says() -> None:
    hits = 0
    for run in range(200):
        draw = np.random.default_rng(run)
        values = [(draw.random((1, 80)) < 0.7).astype(float) for _ in range(2)]
        found = crossed_bootstrap(values, draws=300)
        hits += found.low <= 0.7 <= found.high
    assert 0.9 <= hits / 200 <= 0.985


def test_a_result_is_plain_json_with_the_fields_that_are_promised() -> None:
    result = json.loads(json.dumps(scores().to_dict(), allow_nan=False))
    own = result["methods"]["icr"]
    assert {"accuracy", "recovery", "difference"} <= set(own["sets"]["a"])
    assert {"value", "low", "high"} <= set(own["sets"]["a"]["accuracy"])
    assert (own["collapse_raw"], own["collapse_significant"], own["seeds"]) == (1, 0, 3)
    assert own["averages"]["in-domain"]["difference"]["value"] == pytest.approx(0.2)
    text = summarise(result)
    assert "70.0" in text
    recovery = Estimate.from_dict(own["sets"]["a"]["recovery"])
    assert text.splitlines()[-1].split(maxsplit=1) == ["icr", recovery.summary(2)]


def test_few_shot_after_a_kept_beginning_equals_the_whole_prompt(study: Study) -> None:
    method = FewShot()
    method.fit(study.ground(0))
    queries = study.test("synthetic1").of(range(5))
    found = method.answer(queries)
    for row, example in enumerate(queries.examples):
        ids = study.model.tokenizer(method.text("synthetic1") + example.prompt).input_ids
        with torch.no_grad():
            logits = last_logits(study.model, make_batch([np.array(ids)]))[0].numpy()
        np.testing.assert_allclose(found[row], logits[queries.options[row]], atol=1e-4)


def test_few_shot_of_an_unknown_set_mixes_all_training_sets(study: Study) -> None:
    method = FewShot()
    method.fit(study.ground(0))
    mixed, own = method.text("synthetic4"), method.text("synthetic0")
    assert len(mixed.splitlines()) == 9
    assert len(own.splitlines()) == 15
    known = {text for one in study.train_examples(0).values() for text in few_shot(one).splitlines()}
    assert set(mixed.splitlines()) <= known


def test_few_shot_of_the_built_in_model_beats_zero_shot(study: Study) -> None:
    few = study.right(FewShot, (0,), ["synthetic0"])["synthetic0"].mean()
    zero = study.right(ZeroShot, (0,), ["synthetic0"])["synthetic0"].mean()
    assert few > zero + 0.3


def test_softmax_regression_is_scikit_learns() -> None:
    from sklearn.linear_model import LogisticRegression

    features = RNG.standard_normal((150, 4))
    answers = (features[:, 0] + RNG.standard_normal(150) > 0).astype(int) + (features[:, 1] > 0.5)
    matrix, bias = softmax_regression(features, answers, 3, 0.01)
    theirs = LogisticRegression(C=1 / (0.01 * 150), tol=1e-10, max_iter=5000).fit(features, answers)
    # theirs has no ridge on the bias, ours a thousandth of the matrix'
    ours = np.exp(log_softmax(features @ matrix + bias, 1))
    np.testing.assert_allclose(ours, theirs.predict_proba(features), atol=1e-3)


def test_a_fitted_label_bias_gives_the_answers_their_share(study: Study) -> None:
    ground = study.ground(0)
    method = LabelBias()
    method.fit(ground)
    fitted = method.answer(ground.queries)
    rows = [i for i, one in enumerate(ground.queries.domains) if one == "synthetic1"]
    share = np.exp(log_softmax(fitted[rows], 1)).mean(0)
    np.testing.assert_allclose(share, np.bincount(ground.queries.answers[rows]) / len(rows), atol=5e-3)
    other = study.test("synthetic4")
    np.testing.assert_array_equal(method.answer(other), other.zero_shot)


def test_contextual_calibration_makes_inputs_without_content_neutral(study: Study) -> None:
    method = ContextualCalibration()
    method.fit(study.ground(0))
    queries = study.test("synthetic4").of(range(4))
    moved = method.answer(queries) - queries.zero_shot
    np.testing.assert_allclose(moved - moved[:1], 0, atol=1e-5)
    assert np.ptp(moved[0]) > 0.01


def test_the_encoder_alone_knows_only_sets_with_a_training_sets_answers(study: Study) -> None:
    right = study.right(EncoderOnly, (0,))
    assert set(right) == {"synthetic0", "synthetic1", "synthetic2", "synthetic3"}
    assert right["synthetic0"].mean() > 0.9


def test_readers_give_the_router_what_their_kind_says() -> None:
    table = {"a1": [1, 0.1], "a2": [1, -0.2], "b1": [0, 1], "b2": [0.1, 2]}

    def encode(texts: list[str]) -> np.ndarray:
        return np.array([table[one] for one in texts], float)

    texts, domains = list(table), ["a", "a", "b", "b"]
    readers = {kind: Reader.fit(encode, kind, texts, domains) for kind in ("query", "constant", "centroid", "shuffled")}
    own = {kind: reader(texts, domains) for kind, reader in readers.items()}
    np.testing.assert_allclose((own["query"] ** 2).mean(1), 1, rtol=1e-5)
    assert own["constant"].tolist() == [[1.0]] * 4
    np.testing.assert_array_equal(own["centroid"][0], own["centroid"][1])
    assert (own["centroid"][0] != own["centroid"][2]).any()
    np.testing.assert_allclose(own["shuffled"], own["query"][[1, 0, 3, 2]])
    near = readers["query"].nearness(texts)
    assert (near > 0.95).all()
    with pytest.raises(ReadoutError, match="router"):
        Reader.fit(encode, "nearest", texts, domains)


def test_a_random_encoder_gives_a_text_the_same_vector_each_time_and_tells_nothing() -> None:
    one = random_vectors(["x", "y", "x"], 400, 0)
    np.testing.assert_array_equal(one[0], one[2])
    assert abs(np.corrcoef(one[0], one[1])[0, 1]) < 0.2
    assert (random_vectors(["x"], 400, 1) != one[0]).any()
