"""Effects of label words, against drawn effects and against a minimum found another way."""

import json

import numpy as np
import pytest
from scipy import optimize

from readout.errors import FitError
from readout.fitting import Observations
from readout.fitting.label_words import LabelWords, fit_label_words
from readout.fitting.links import masked_softmax

WORDS, LABELS, PROMPTS = 24, 3, 240


def drawn(effects: np.ndarray, seed: int = 0, words: np.ndarray | None = None, prompts: int = PROMPTS):
    """Observations whose label probabilities come of a prediction and of effects of words; that prediction."""
    rng = np.random.default_rng(seed)
    chosen = np.arange(len(effects)) if words is None else words
    label_id = np.array([rng.choice(chosen, LABELS, replace=False) for _ in range(prompts)])
    prediction = rng.dirichlet(np.full(LABELS, 2.0), size=prompts)
    mask = np.ones((prompts, LABELS), dtype=bool)
    truth = masked_softmax(np.log(prediction) + effects[label_id], mask)
    label = np.tile(np.arange(LABELS), (prompts, 1))
    data = Observations.from_arrays(
        None, np.ones((prompts, LABELS)), label, np.arange(prompts) // 2, label_probability=truth
    )
    return data, prediction, label_id


def kl(truth, prediction):
    return (truth * np.log(truth / prediction)).sum(axis=1).mean()


@pytest.fixture(scope="module")
def smooth():
    """Effects that are linear in the words' vectors, and the vectors."""
    rng = np.random.default_rng(7)
    rows = rng.normal(size=(WORDS, 4))
    return rows @ np.array([0.6, -0.4, 0.3, 0.0]), dict(enumerate(rows))


def test_known_effects_are_recovered_up_to_a_constant(smooth):
    effects, _ = smooth
    found = fit_label_words(*drawn(effects), spreads=(100.0,), leave="contexts")
    assert found.effects - found.effects.mean() == pytest.approx(effects - effects.mean(), abs=0.05)


def test_effects_are_the_minimum_that_another_optimiser_finds(smooth):
    effects, _ = smooth
    data, prediction, label_id = drawn(effects, prompts=60)
    found = fit_label_words(data, prediction, label_id, spreads=(0.2,), leave="contexts")

    def loss(u):
        predicted = masked_softmax(np.log(prediction) + u[label_id], data.label_mask)
        return -(data.label_probability * np.log(predicted)).sum() + u @ u / 0.4

    best = optimize.minimize(loss, np.zeros(WORDS), method="BFGS", options={"gtol": 1e-6}).x
    assert found.effects == pytest.approx(best, abs=1e-4)


def test_a_word_never_seen_gets_the_effect_of_words_with_like_vectors(smooth):
    effects, vectors = smooth
    data, prediction, label_id = drawn(effects, words=np.arange(16))
    found = fit_label_words(data, prediction, label_id, vectors)
    other, blind, ids = drawn(effects, seed=1, words=np.arange(16, WORDS))
    with_effects = found.predict(blind, other.label_mask, ids, vectors)
    assert kl(other.label_probability, with_effects) < 0.5 * kl(other.label_probability, blind)


def test_without_vectors_a_word_never_seen_has_no_effect(smooth):
    effects, _ = smooth
    found = fit_label_words(*drawn(effects, words=np.arange(16)), leave="contexts")
    other, blind, ids = drawn(effects, seed=1, words=np.arange(16, WORDS))
    assert found.predict(blind, other.label_mask, ids) == pytest.approx(blind)


def test_where_what_is_missed_has_nothing_to_do_with_words_next_to_nothing_is_lost_on_fresh_prompts():
    vectors = {i: np.eye(WORDS)[i] for i in range(WORDS)}

    def noisy(seed):
        data, prediction, label_id = drawn(np.zeros(WORDS), seed)
        noise = np.random.default_rng(seed + 3).normal(size=prediction.shape)
        return data, masked_softmax(np.log(prediction) + noise, data.label_mask), label_id

    found = fit_label_words(*noisy(0), vectors)
    data, prediction, label_id = noisy(1)
    truth = data.label_probability
    with_effects = found.predict(prediction, data.label_mask, label_id, vectors)
    assert found.spread <= 0.01
    assert kl(truth, with_effects) < 1.01 * kl(truth, prediction)


def test_a_spread_of_zero_leaves_the_prediction_as_it_was(smooth):
    effects, vectors = smooth
    data, prediction, label_id = drawn(effects)
    found = fit_label_words(data, prediction, label_id, vectors, spreads=(0.0,))
    assert found.predict(prediction, data.label_mask, label_id, vectors) == pytest.approx(prediction)


def test_the_cross_validated_error_is_that_of_fits_without_the_words_left_out(smooth):
    effects, _ = smooth
    data, prediction, label_id = drawn(effects, prompts=80)
    found = fit_label_words(data, prediction, label_id, spreads=(0.1,), folds=2, seed=4)
    fold = np.random.default_rng(4).permutation(WORDS) % 2
    left_out = []
    for part in range(2):
        left = (fold[label_id] == part).any(axis=1)
        kept = data.select_prompts(~left)
        own = fit_label_words(kept, prediction[~left], label_id[~left], spreads=(0.1,), leave="contexts")
        truth = data.label_probability[left]
        predicted = own.predict(prediction[left], data.label_mask[left], label_id[left])
        left_out.append((truth * np.log(truth / predicted)).sum(axis=1))
    assert found.errors[0.1] == pytest.approx(np.concatenate(left_out).mean(), rel=1e-6)


def test_effects_go_through_json(smooth):
    effects, vectors = smooth
    data, prediction, label_id = drawn(effects)
    found = fit_label_words(data, prediction, label_id, vectors)
    again = LabelWords.from_dict(json.loads(json.dumps(found.to_dict())))
    assert again.predict(prediction, data.label_mask, label_id, vectors) == pytest.approx(
        found.predict(prediction, data.label_mask, label_id, vectors)
    )


def test_a_word_without_a_vector_is_refused_by_its_token(smooth):
    effects, vectors = smooth
    data, prediction, label_id = drawn(effects)
    with pytest.raises(FitError, match="no vector for token 5"):
        fit_label_words(data, prediction, label_id, {i: v for i, v in vectors.items() if i != 5})


def test_a_prediction_of_other_prompts_is_refused(smooth):
    effects, _ = smooth
    data, prediction, label_id = drawn(effects)
    with pytest.raises(FitError, match=r"expected prediction and label_id of shape \(240, 3\)"):
        fit_label_words(data, prediction[:5], label_id)
