"""Behaviour: what the model answers, before any constant."""

from dataclasses import replace

import numpy as np
import pytest

from readout.errors import FitError
from readout.fitting import Observations, draw_observations
from readout.statistics import cluster_mean
from readout.validation import Behaviour, measure_behaviour


def answers(right, labels=2):
    """Prompts, four a context, of which these are answered rightly."""
    right = np.asarray(right, bool)
    n = len(right)
    probability = np.full((n, labels), 0.1)
    probability[np.arange(n), np.where(right, 0, 1)] = 0.6
    label = np.tile(np.arange(labels), (n, 1))
    return Observations.from_arrays(
        None, np.zeros((n, labels)), label, np.arange(n) // 4, label_probability=probability,
        query_label=np.zeros(n, int), vocabulary_mass=np.full(n, 0.25),
    )  # fmt: skip


def test_accuracy_is_the_share_of_right_answers_clustered_by_context():
    right = np.random.default_rng(0).random(80) < 0.8
    behaviour = measure_behaviour(answers(right))
    assert behaviour.accuracy == cluster_mean(right.astype(float), np.arange(80) // 4)
    assert behaviour.label_mass.value == pytest.approx(0.25)
    assert behaviour.chance == 0.5
    assert behaviour.does_task


def test_a_model_at_chance_does_not_do_the_task():
    behaviour = measure_behaviour(answers(np.arange(80) % 2 == 0))
    assert not behaviour.does_task
    assert "NOT" in behaviour.summary()


def test_chance_counts_each_prompts_own_labels():
    observations = answers(np.ones(8), labels=4)
    mask = observations.label_mask.copy()
    mask[:4, 2:] = False
    label = np.where(mask, observations.label, -1)
    mixed = replace(observations, label_mask=mask, label=label, mask=mask)
    assert measure_behaviour(mixed).chance == pytest.approx((0.5 + 0.25) / 2)


def test_an_interval_of_a_share_stays_between_0_and_1():
    right = np.ones(40)
    right[0] = 0
    assert measure_behaviour(answers(right)).accuracy.high == 1.0


def test_one_context_gives_no_verdict_in_favour():
    assert not measure_behaviour(answers(np.ones(4))).does_task


def test_behaviour_comes_back_from_json():
    behaviour = measure_behaviour(answers(np.arange(40) % 5 > 0))
    assert Behaviour.from_json(behaviour.to_json()) == behaviour
    assert behaviour.to_dict()["does_task"] is True


def test_unknown_answers_are_refused():
    observations = draw_observations(-1.0, 1.0, contexts=3)
    with pytest.raises(FitError, match="query_label"):
        measure_behaviour(replace(observations, query_label=np.full(12, -1)))
