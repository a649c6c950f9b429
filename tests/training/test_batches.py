"""Training sequences hold what their phase says."""

import dataclasses

import numpy as np
import pytest

from readout.training.batches import BOS, CUE, FIRST_WORD, VOCABULARY, draw_batch, draw_echo, step_generator
from readout.training.presets import TINY, Phase

LAST = TINY.phases[-1]


def batch_of(phase: Phase, size: int = 400):
    return draw_batch(phase, size, step_generator(0, 0))


def test_a_batch_depends_on_seed_and_step_only():
    same = [draw_batch(LAST, 8, step_generator(3, 70)).tokens for _ in range(2)]
    other = draw_batch(LAST, 8, step_generator(3, 71)).tokens
    assert (same[0] == same[1]).all()
    assert (same[0] != other).any()


@pytest.mark.parametrize("phase", TINY.phases, ids=lambda phase: phase.name)
def test_the_label_follows_each_prediction_position(phase):
    batch = batch_of(phase, 20)
    assert (batch.tokens[:, 0] == BOS).all()
    assert (batch.tokens[:, batch.predict_at + 1] == batch.labels).all()
    assert ((batch.tokens[:, batch.predict_at] == CUE) == phase.cue).all()


def test_a_repeating_sequence_keeps_one_label_a_class_and_a_distinct_one_repeats_none():
    batch = batch_of(LAST)
    for labels, classes, distinct in zip(batch.labels, batch.classes, batch.distinct, strict=True):
        if distinct:
            assert len(set(labels)) == len(labels)
        else:
            assert len(set(zip(classes, labels, strict=True))) == len(set(classes)) == len(set(labels))


@pytest.mark.parametrize("novel", [False, True])
def test_the_loss_of_a_repeating_sequence_starts_after_its_first_repeated_label(novel):
    batch = batch_of(dataclasses.replace(LAST, novel=novel), 100)
    for row, distinct in enumerate(batch.distinct):
        seen: list[int] = []
        repeated = False
        for label, counted, fresh in zip(batch.labels[row], batch.weight[row], batch.fresh[row], strict=True):
            assert counted == (distinct or (repeated and (novel or label in seen)))
            assert fresh == (distinct or label not in seen)
            repeated |= label in seen
            seen.append(label)


def test_a_label_is_judged_where_its_class_has_come_and_a_label_has_repeated():
    batch = batch_of(LAST, 100)
    for row, distinct in enumerate(batch.distinct):
        labels = batch.labels[row].tolist()
        expected = [not distinct and label in labels[:i] and len(set(labels[:i])) < i for i, label in enumerate(labels)]
        assert batch.judged[row].tolist() == expected


def test_noise_replaces_words_at_its_rate():
    batch = batch_of(LAST, 2000)
    words = np.stack([batch.tokens[:, batch.word_at], batch.tokens[:, batch.word_at + 1]], axis=2)
    own = (words - FIRST_WORD) // 8 == batch.classes[:, :, None]
    assert abs(1 - own.mean() - LAST.noise) < 0.01


def test_the_same_class_follows_itself_at_its_weight():
    phase = Phase("two", 1, demonstrations=2, classes=(2, 2), repeat_weight=0.25)
    batch = batch_of(phase, 8000)
    assert abs((batch.classes[:, 0] == batch.classes[:, 1]).mean() - 0.25 / 1.25) < 0.015


def test_the_first_demonstrations_cover_the_classes_when_asked_to():
    batch = batch_of(TINY.phases[0], 50)
    for classes in batch.classes:
        n = len(set(classes))
        assert len(set(classes[:n])) == n


def test_an_echo_sequence_copies_at_one_lag_half_of_the_time():
    echo = draw_echo(Phase("echo", 1, echo=4000), step_generator(0, 0))[:, 1:]
    at = {lag: (echo[:, 4:] == echo[:, 4 - lag : -lag]).mean(axis=1) for lag in (1, 2, 3)}
    # Half of the sequences copy from two tokens back, the other half from three.
    assert at[1].mean() < 0.05
    assert at[2].mean() == pytest.approx(0.25, abs=0.03)
    assert at[3].mean() == pytest.approx(0.25, abs=0.03)
    assert np.maximum(at[2], at[3]).mean() == pytest.approx(0.5, abs=0.06)
    assert echo.max() < VOCABULARY


def test_ambiguity_shares_words_between_neighbours():
    batch = batch_of(Phase("shared", 1, ambiguity=0.5, words_per_class=8, words_per_text=2), 2000)
    words = batch.tokens[:, batch.word_at] - FIRST_WORD
    foreign = words // 8 != batch.classes
    assert abs(foreign.mean() - 0.25) < 0.02
    assert (words // 16 == batch.classes // 2).all()
