"""Measures of growth, on models whose answer is known."""

import numpy as np
import pytest
import torch
import xarray as xr

from readout.models import LanguageModel
from readout.prompts import PromptDistribution, tokenize
from readout.prompts.repeats import without_repeat
from readout.training.growth import (
    Growth,
    divergence,
    matching_gap,
    measure_growth,
    reader_gap,
    suppression,
    writer_effect,
)
from readout.training.model import build_model
from readout.training.presets import TINY
from readout.training.tokenizer import build_tokenizer


@pytest.fixture(scope="module")
def untrained() -> LanguageModel:
    return LanguageModel(build_model(TINY, 0), build_tokenizer(), "untrained")


def record() -> xr.Dataset:
    """Two heads, two contexts, three demonstrations of classes 0, 1, 0; the second head looks at the match."""
    attention = np.zeros((4, 2, 3), np.float32)
    attention[:, 0] = 0.2
    attention[:, 1] = [[0.5, 0.1, 0.3], [0.1, 0.7, 0.1], [0.5, 0.1, 0.3], [0.1, 0.7, 0.1]]
    return xr.Dataset(
        {
            "attention": (("prompt", "head", "demonstration"), attention),
            "sink": (("prompt", "head"), np.full((4, 2), 0.05)),
            "demonstration_class": (("prompt", "demonstration"), np.tile([0, 1, 0], (4, 1))),
            "demonstration_label": (("prompt", "demonstration"), np.tile([0, 1, 0], (4, 1))),
            "query_class": ("prompt", np.array([0, 1, 0, 1])),
            "query_label": ("prompt", np.array([0, 1, 0, 1])),
            "label_logprob": (("prompt", "label"), np.log(np.tile([0.5, 0.2, 0.1], (4, 1)))),
            "context": ("prompt", np.array([0, 0, 1, 1])),
        },
        coords={"layer": ("head", [0, 1]), "head_in_layer": ("head", [0, 0])},
    )


def test_the_gap_is_matching_minus_other_attention():
    expected = [[0.2, 0.7], [-0.2, 0.5], [0.2, 0.7], [-0.2, 0.5]]
    assert matching_gap(record()) == pytest.approx(np.array(expected), abs=1e-6)


def test_the_reader_is_the_head_of_the_greatest_gap():
    gap, sink, layer = reader_gap(record())
    assert (gap, sink, layer) == pytest.approx((0.6, 0.05, 1))


def test_suppression_compares_the_last_label_with_other_labels_that_do_not_match():
    # Prompts whose answer is label 1: the last label 0 (.5) against label 2 (.1).
    assert suppression(record()) == pytest.approx(np.log(5))


def test_the_divergence_is_zero_for_equal_distributions_and_known_for_others():
    truth = np.array([[0.5, 0.5, 0.0]])
    assert divergence(truth, truth) == 0
    assert divergence(truth, np.array([[0.25, 0.75, 0.0]])) == pytest.approx(0.5 * np.log(2) + 0.5 * np.log(0.5 / 0.75))


def test_a_twin_without_a_repeat_differs_in_the_first_label_only():
    for prompt in PromptDistribution("synthetic", classes=3, shots=(1, 1, 2), size=6).prompts():
        twin = without_repeat(prompt)
        labels = [[shown.label for shown in side.demonstrations] for side in (prompt, twin)]
        assert len(set(labels[0])) == 3
        assert len(set(labels[1])) == 4
        changed = [number for number, (a, b) in enumerate(zip(*labels, strict=True)) if a != b]
        assert changed == [number for number, label in enumerate(labels[0]) if label in labels[0][number + 1 :]]
        assert [shown.text for shown in prompt.demonstrations] == [shown.text for shown in twin.demonstrations]


def test_a_fresh_label_stands_for_the_class_of_its_demonstration():
    for prompt in PromptDistribution("synthetic", classes=3, shots=3, size=4).prompts():
        twin = without_repeat(prompt)
        owner = dict(zip(twin.labels, twin.label_classes, strict=True))
        assert len({shown.label for shown in twin.demonstrations}) == 9
        assert all(owner[shown.label] == shown.class_name for shown in twin.demonstrations)


def test_swapping_no_head_has_no_effect(untrained):
    prompts = tokenize(PromptDistribution("synthetic", classes=2, shots=2, size=4).prompts(), untrained.tokenizer)
    assert writer_effect(untrained, prompts, 0) == 0


def test_an_untrained_model_shows_none_of_the_parts():
    model = build_model(TINY, 0)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    growth = Growth(**measure_growth(model, build_tokenizer()))
    assert growth.accuracy < 0.1
    assert growth.reader_gap < 0.1
    assert abs(growth.gate_pair) < 0.05
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert all(parameter.requires_grad for parameter in model.parameters())
