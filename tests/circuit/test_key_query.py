"""Constants from class-mean queries and keys, against the attention that the model computes."""

import numpy as np
import pytest
import torch

from readout.circuit.key_query import HeadPass, class_means, head_passes, key_query_constants, kinds, scores
from readout.errors import InterventionError
from readout.models import LanguageModel, load_model
from readout.prompts import PromptDistribution, TokenizedPrompt, tokenize
from readout.records import extract

SPECIFICATION = PromptDistribution("synthetic", classes=3, shots=2, size=12, queries=1, seed=3)


@pytest.fixture(scope="module")
def model() -> LanguageModel:
    return load_model("tiny", device="cpu", self_test=False)


@pytest.fixture(scope="module")
def prompts(model: LanguageModel) -> list[TokenizedPrompt]:
    return list(tokenize(SPECIFICATION.prompts(), model.tokenizer))


def test_a_heads_own_vectors_give_the_recorded_attention(model, prompts, tmp_path) -> None:
    record = extract(model, SPECIFICATION, tmp_path / "record.zarr")
    number = record["layer"].values.tolist().index(1) + 2
    for prompt, one, seen in zip(
        prompts, head_passes(model, prompts, 1, 2), record["attention"].values[:, number], strict=True
    ):
        attention = scores(one.query, one.keys, one).softmax(0)[torch.as_tensor(prompt.label_positions)]
        assert np.allclose(attention, seen[: len(prompt.label_positions)], atol=1e-5)


def test_every_token_is_of_one_kind(prompts) -> None:
    prompt = prompts[0]
    found = kinds(prompt)
    assert len(found) == len(prompt.token_ids)
    shown = [found[position] for position in prompt.label_positions.tolist()]
    assert shown == [("label", one.class_name) for one in prompt.prompt.demonstrations]
    assert found[0] == ("first", "")
    assert found[-1] == ("query", "")


def test_vectors_that_are_the_same_in_a_class_give_the_constants_of_their_scores(monkeypatch, model, prompts) -> None:
    """Without a turn, a query of its class's axis scores 3 on its class's labels, 1 on others and 0 elsewhere."""
    names = sorted({one.class_name for prompt in prompts for one in prompt.prompt.demonstrations})

    def made(_, given, *__) -> list[HeadPass]:
        found = []
        for prompt in given:
            axes = torch.eye(len(names) + 1)
            query = 2 * axes[names.index(prompt.prompt.query_class)] + axes[-1]
            keys = [
                axes[names.index(name)] + axes[-1] if kind == "label" else 0 * axes[0] for kind, name in kinds(prompt)
            ]
            turn = (torch.ones(len(keys), len(names) + 1), torch.zeros(len(keys), len(names) + 1))
            found.append(HeadPass(query, torch.stack(keys), turn, 1.0, torch.zeros(len(keys))))
        return found

    monkeypatch.setattr("readout.circuit.key_query.head_passes", made)
    monkeypatch.setattr("readout.circuit.key_query.rotate_half", torch.zeros_like)
    constants = key_query_constants(model, prompts, 1, 2, draws=10)
    others = [len(prompt.token_ids) - len(prompt.label_positions) for prompt in prompts]
    assert constants.base.value == pytest.approx(1 - np.log(others).mean(), abs=1e-5)
    assert constants.match.value == pytest.approx(2, abs=1e-5)


def test_means_are_those_of_each_class_and_kind(model, prompts) -> None:
    passes = head_passes(model, prompts, 1, 0)
    queries, keys = class_means(prompts, passes)
    name = prompts[0].prompt.query_class
    own = [one.query for prompt, one in zip(prompts, passes, strict=True) if prompt.prompt.query_class == name]
    assert torch.allclose(queries[name], torch.stack(own).mean(0))
    assert torch.allclose(keys["first", ""], torch.stack([one.keys[0] for one in passes]).mean(0))


def test_both_kinds_of_demonstration_are_needed(monkeypatch, model, prompts) -> None:
    monkeypatch.setattr("readout.circuit.key_query._sums", lambda *_: (0.0, 0, 1.0, 1))
    with pytest.raises(InterventionError, match="both of the query's class and of another one are needed"):
        key_query_constants(model, prompts[:2], 1, 2)
