"""Token heads of a hand-built model that has one of each."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from handmade import MOST_TOKENS, build, by_numpy

from readout.circuit.token_heads import TokenScores, score_token_heads
from readout.errors import ReadoutError
from readout.models import LanguageModel

VOCABULARY, LENGTH = 60, 12
SIZES = {"token": VOCABULARY, "before": VOCABULARY, "place": MOST_TOKENS, "next": MOST_TOKENS}
HEADS = {
    (0, 0): ([("place", "next", 6.0)], ("token", "before", 1.0)),
    (0, 1): ([("token", "token", 8.0), ("place", "place", -20.0)], ("place", "place", 0.0)),
    (1, 1): ([("token", "before", 8.0)], ("place", "place", 0.0)),
}


def token_model() -> LanguageModel:
    """L0H0 attends to the token before, L0H1 to the same token, L1H1 to the token after it; the others are even."""
    model, at = build(SIZES, HEADS, VOCABULARY, VOCABULARY + MOST_TOKENS, (2, 2))  # type: ignore[arg-type]
    with torch.no_grad():
        model.tokens.weight[:, at["token"]] = torch.eye(VOCABULARY)
        model.places.weight[:, at["place"]] = torch.eye(MOST_TOKENS)
        model.places.weight[:-1, at["next"]] = torch.eye(MOST_TOKENS)[1:]
    return LanguageModel(model, None, "token heads")


@pytest.fixture(scope="module")
def scores() -> TokenScores:
    return score_token_heads(token_model(), sequences=16, length=LENGTH)


def test_each_head_gets_its_role_and_no_other(scores: TokenScores) -> None:
    assert {(part.role, part.name) for part in scores.parts()} == {
        ("previous-token", "L0H0"),
        ("duplicate-token", "L0H1"),
        ("induction", "L1H1"),
    }


def test_the_previous_token_score_is_the_softmax_of_its_score(scores: TokenScores) -> None:
    before = np.arange(LENGTH, 2 * LENGTH)
    assert scores.scores["previous-token"][:, 0] == pytest.approx((np.exp(6) / (np.exp(6) + before)).mean(), abs=1e-5)


def test_an_even_head_is_at_the_chance_level(scores: TokenScores) -> None:
    even = (1 / np.arange(LENGTH + 1, 2 * LENGTH + 1)).mean()
    for role in scores.scores:
        assert scores.scores[role][:, 2] == pytest.approx(even, abs=1e-5)
        assert scores.chance[role][:, 2] == pytest.approx(even, abs=1e-5)


def test_the_induction_score_is_what_numpy_gives(scores: TokenScores) -> None:
    # Tokens differ in name only: every sequence of different tokens gives the same attention.
    attention = by_numpy(token_model(), np.tile(np.arange(LENGTH), 2))[1][1, 1]
    rows = np.arange(LENGTH, 2 * LENGTH)
    assert scores.scores["induction"][:, 3] == pytest.approx(attention[rows, rows - LENGTH + 1].mean(), abs=1e-5)


def test_without_a_repeat_duplicate_and_induction_heads_find_nothing(scores: TokenScores) -> None:
    assert scores.chance["duplicate-token"][:, 1].max() < 0.1
    assert scores.chance["induction"][:, 3].max() < 0.1


def test_too_few_tokens_are_refused() -> None:
    with pytest.raises(ReadoutError, match="lower length"):
        score_token_heads(token_model(), length=31)
