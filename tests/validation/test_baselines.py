"""Baselines by hand, fitted to the fit distribution only."""

import numpy as np
import pytest
from scipy import optimize

from readout.errors import FitError
from readout.fitting import Observations, draw_observations
from readout.validation import baseline_predictions, prompt_errors
from readout.validation.baselines import fit_match_constant, label_frequency, match, match_log_count, uniform


@pytest.fixture
def prompt():
    """One prompt with labels a, a, a, b; b matches; a third label has no demonstration."""
    return Observations.from_arrays(
        None, np.array([[0.0, 0, 0, 1]]), np.array([[0, 0, 0, 1]]), np.zeros(1),
        label_probability=np.array([[0.4, 0.5, 0.1]]),
    )  # fmt: skip


def test_uniform_and_frequency_are_counts(prompt):
    assert uniform(prompt)[0] == pytest.approx(np.ones(3) / 3)
    assert label_frequency(prompt)[0] == pytest.approx([0.75, 0.25, 0], abs=1e-5)


def test_match_is_a_softmax_of_its_constant(prompt):
    weights = np.array([1, np.exp(1.5), 1])
    assert match(prompt, 1.5)[0] == pytest.approx(weights / weights.sum())


def test_match_and_log_count_weighs_labels_by_their_demonstrations(prompt):
    weights = np.array([3, np.exp(1.5), 0])
    assert match_log_count(prompt, 1.5)[0] == pytest.approx(weights / weights.sum(), abs=1e-5)


def test_a_graded_match_adds_each_demonstrations_own_weight(prompt):
    graded = prompt.with_match(np.array([[0.1, 0.4, 0.2, 0.9]]))
    weights = np.array([np.exp([0.2, 0.8, 0.4]).sum(), np.exp(1.8), 0])
    assert match_log_count(graded, 2.0)[0] == pytest.approx(weights / weights.sum(), abs=1e-5)
    means = np.array([np.exp([0.2, 0.8, 0.4]).mean(), np.exp(1.8), 1])
    assert match(graded, 2.0)[0] == pytest.approx(means / means.sum())


@pytest.mark.parametrize(("count", "predict"), [(True, match_log_count), (False, match)])
@pytest.mark.parametrize("graded", [True, False])
def test_the_constant_minimises_the_divergence(count, predict, graded):
    drawn = draw_observations(-1.0, 2.0, contexts=30, counts=((2, 6), (1, 3)), graded=graded, label_noise=0.5)

    def loss(c):
        return prompt_errors(drawn.label_probability, predict(drawn, c), drawn.label_mask)["kl"].mean()

    assert fit_match_constant(drawn, count) == pytest.approx(
        optimize.minimize_scalar(loss, bounds=(-5, 8), method="bounded", options={"xatol": 1e-8}).x, abs=1e-4
    )


def test_baselines_of_the_target_do_not_depend_on_the_targets_answers():
    fit, target = (draw_observations(-1.0, 2.0, contexts=20, counts=((2, 6),), seed=s) for s in (1, 2))
    flipped = Observations.from_arrays(
        None, target.match, target.label, target.context, label_probability=target.label_probability[:, ::-1]
    )
    one, constants = baseline_predictions(fit, target)
    two, _ = baseline_predictions(fit, flipped)
    assert list(one) == ["uniform", "label_frequency", "match", "match_log_count"]
    assert constants["match_log_count"] == pytest.approx(2.0, abs=1e-4)
    for name in one:
        assert np.array_equal(one[name], two[name])


def test_probabilities_are_needed_to_fit_a_baseline(prompt):
    bare = Observations.from_arrays(None, prompt.match, prompt.label, prompt.context)
    with pytest.raises(FitError, match="label_probability is needed"):
        fit_match_constant(bare, count=True)
