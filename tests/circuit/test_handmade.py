"""The hand-built model is what its docstring says."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from handmade import DISTRIBUTION, by_numpy, handmade_model

from readout.models import LanguageModel, pack
from readout.models.check import check
from readout.prompts import TokenizedPrompt, tokenize
from readout.prompts.repeats import without_repeat


@pytest.fixture(scope="module")
def model() -> LanguageModel:
    return handmade_model()


@pytest.fixture(scope="module")
def prompts(model: LanguageModel) -> list[TokenizedPrompt]:
    return tokenize(DISTRIBUTION.prompts(), model.tokenizer)


def test_it_passes_the_self_test_of_a_loaded_model(model: LanguageModel) -> None:
    assert check(model).can_share


def test_the_package_and_numpy_compute_the_same(model: LanguageModel, prompts: list[TokenizedPrompt]) -> None:
    one = prompts[0]
    logits, attention, _ = by_numpy(model, one.token_ids)
    expected = logits[one.label_ids] - np.log(np.exp(logits).sum())
    columns = torch.arange(len(one.token_ids))[None]
    reading = model.run(pack([[one.token_ids]]), torch.from_numpy(one.label_ids)[None], columns)
    assert np.allclose(reading.log_probabilities[0].numpy(), expected, atol=1e-4)
    assert reading.attention is not None
    assert np.allclose(reading.attention[0].numpy(), attention[:, :, -1].reshape(12, -1), atol=1e-5)


def test_the_reader_has_the_masses_that_its_scores_give(model: LanguageModel, prompts: list[TokenizedPrompt]) -> None:
    one = prompts[0]
    match = np.array([shown.class_name == one.prompt.query_class for shown in one.prompt.demonstrations])
    attention = by_numpy(model, one.token_ids)[1][2, 0, -1]
    weights = np.exp([7.0] * 4 + [4.0] * 4 + [6.0] + [0.0] * (len(one.token_ids) - 9))
    expected = weights / weights.sum()
    assert attention[one.label_positions[match]] == pytest.approx(expected[:4], abs=0.01)
    assert attention[one.label_positions[~match]] == pytest.approx(expected[4:8], abs=0.01)
    assert attention[0] == pytest.approx(expected[8], abs=0.01)


def test_without_a_repeated_label_the_reader_looks_at_the_first_token(model: LanguageModel) -> None:
    closed = tokenize([without_repeat(DISTRIBUTION.prompts()[0])], model.tokenizer)[0]
    attention = by_numpy(model, closed.token_ids)[1][2, 0, -1]
    assert attention[0] > 0.9
    assert attention[closed.label_positions].sum() < 0.01


def test_the_suppressor_looks_at_the_last_label(model: LanguageModel, prompts: list[TokenizedPrompt]) -> None:
    attention = by_numpy(model, prompts[0].token_ids)[1][2, 1, -1]
    # Neighbouring labels are three tokens apart, half a nat a token.
    last, before = attention[prompts[0].label_positions[[-1, -2]]]
    assert last / before == pytest.approx(np.exp(1.5))
