"""Methods that need no demonstrations in the prompt: each against its own definition, computed another way."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from readout.icr.methods.base import Ground
from readout.icr.methods.function_vectors import FunctionVectors, function_vector, head_effects, head_outputs
from readout.icr.methods.i2cl import Branches, ImplicitContext
from readout.icr.methods.icv import InContextVectors, differences, first_direction, moving
from readout.icr.methods.lora_head import LoraHead, head_inputs
from readout.icr.methods.sources import POOLED, answer_by_source, at_last, edited_answers, told
from readout.icr.methods.task_vectors import TaskVectors
from readout.icr.passes import last_logits, make_batch
from readout.icr.queries import Queries
from readout.icr.registry import PLAIN
from readout.icr.study import Study
from readout.models import LanguageModel
from readout.models.wiring import hooked

METHODS = ("task vectors", "function vectors", "icv", "i2cl", "lora on the head")


@pytest.fixture(scope="module")
def ground(study: Study) -> Ground:
    return study.ground(0)


@pytest.fixture(scope="module")
def few(ground: Ground) -> Queries:
    return ground.development.of([0, 1, 12, 13, 24])


def last_streams(model: LanguageModel, queries: Queries, layer: int) -> torch.Tensor:
    stream = {layer: torch.empty(0)}
    batch = queries.from_the_start().batch(range(len(queries)), model)
    with torch.no_grad():
        last_logits(model, batch, keep=stream)
    return stream[layer][torch.arange(len(queries)), batch.last]


def test_a_last_token_overwritten_by_its_own_stream_changes_nothing_and_by_anothers_something(
    tiny_model: LanguageModel, few: Queries
) -> None:
    own = last_streams(tiny_model, few, 2)
    for row in range(len(few)):
        one = few.of([row])
        kept = edited_answers(tiny_model, one, lambda batch, row=row: {2: [at_last(batch, lambda _: own[[row]])]})
        np.testing.assert_allclose(kept, one.zero_shot, atol=1e-4)
    other = edited_answers(tiny_model, few.of([0]), lambda batch: {2: [at_last(batch, lambda _: own[[2]])]})
    assert np.abs(other - few.zero_shot[:1]).max() > 0.01


def test_a_task_vector_is_the_mean_stream_of_its_own_sets_few_shot_prompts(ground: Ground) -> None:
    method = TaskVectors(layers=2, items=4)
    method.fit(ground)
    rows = [i for i, name in enumerate(ground.vectors.domains) if name == "synthetic1"]
    by_hand = sum(ground.vectors.residual[method.layer][i] for i in rows) / len(rows)
    np.testing.assert_allclose(method.vectors["synthetic1"][method.layer], by_hand, rtol=1e-5)
    assert set(method.vectors) == {POOLED, "synthetic0", "synthetic1", "synthetic2"}
    assert method.layer > 0


def test_a_set_that_was_not_trained_on_gets_the_pooled_source(few: Queries) -> None:
    asked: list[str] = []

    def answer(queries: Queries, source: str) -> np.ndarray:
        asked.append(source)
        return queries.zero_shot

    found = answer_by_source(few, {POOLED, few.domains[0]}, answer)
    np.testing.assert_array_equal(found, few.zero_shot)
    assert asked == [few.domains[0], POOLED, POOLED]


def test_a_heads_causal_effect_equals_that_of_a_full_pass(tiny_model: LanguageModel, ground: Ground) -> None:
    text, answer = ground.queries.examples[0].prompt, int(ground.queries.options[0, 0])
    means = {part.layer: np.full((part.n_heads, part.value_dim), 0.3) for part in tiny_model.wiring.attentions}
    found = head_effects(tiny_model, text, answer, means)
    assert list(found) == list(tiny_model.heads)
    batch = make_batch([np.array(tiny_model.tokenizer(text).input_ids)])
    with torch.no_grad():
        base = last_logits(tiny_model, batch).softmax(-1)[0, answer]
        for layer, head in tiny_model.heads[::5]:
            part = tiny_model.wiring.attentions[layer]
            dim = part.value_dim

            def replace(args: tuple, kwargs: dict, head: int = head, dim: int = dim) -> tuple:  # type: ignore[type-arg]
                outputs = args[0].clone()
                outputs[0, -1, head * dim : (head + 1) * dim] = 0.3
                return (outputs,), kwargs

            with hooked(part.projection, replace):
                slow = last_logits(tiny_model, batch).softmax(-1)[0, answer]
            assert found[layer, head] == pytest.approx(float(slow - base), abs=1e-5)
    assert max(map(abs, found.values())) > 1e-4


def test_the_function_vector_of_a_layers_heads_is_the_layers_mean_attention_output(
    tiny_model: LanguageModel, ground: Ground
) -> None:
    texts = [one.prompt for one in ground.queries.examples[:3]]
    means = {layer: one.mean(0) for layer, one in head_outputs(tiny_model, texts).items()}
    part = tiny_model.wiring.attentions[2]
    seen: list[torch.Tensor] = []
    handle = part.projection.register_forward_hook(lambda module, args, output: seen.append(output[0, -1]))
    with torch.no_grad():
        for text in texts:
            tiny_model.model(input_ids=torch.tensor([tiny_model.tokenizer(text).input_ids]))
    handle.remove()
    found = function_vector(tiny_model, means, [(2, head) for head in range(part.n_heads)])
    # the projection's bias belongs to no head
    bias = part.projection.bias.detach()
    np.testing.assert_allclose(found, (torch.stack(seen).mean(0) - bias).numpy(), atol=1e-4)


def test_function_vectors_take_the_heads_of_the_largest_effects(ground: Ground) -> None:
    method = FunctionVectors(heads=3, prompts=2, shuffled=1)
    method.fit(ground)
    assert len(method.chosen) == 3
    largest = sorted(method.effects.values(), reverse=True)[:3]
    assert [method.effects[head] for head in method.chosen] == largest


def test_a_planted_direction_is_found_with_its_sign() -> None:
    draw = np.random.default_rng(0)
    planted = draw.standard_normal(12)
    planted /= np.linalg.norm(planted)
    vectors = draw.uniform(2, 4, (30, 1)) * planted + 0.01 * draw.standard_normal((30, 12))
    for sign in (1, -1):
        np.testing.assert_allclose(first_direction(sign * vectors), sign * planted, atol=0.01)


def test_an_in_context_vector_turns_a_stream_and_keeps_its_norm() -> None:
    hidden, direction = torch.randn(2, 3, 8), F.normalize(torch.randn(8), dim=0)
    moved = moving(direction, 0.5)(hidden)
    torch.testing.assert_close(moved.norm(dim=-1), hidden.norm(dim=-1))
    cosine = F.cosine_similarity(moved, direction, dim=-1)
    assert (cosine > F.cosine_similarity(hidden, direction, dim=-1)).all()
    torch.testing.assert_close(moving(direction, 0.0)(hidden), hidden)


def test_differences_are_the_stream_with_the_answer_less_without(tiny_model: LanguageModel, ground: Ground) -> None:
    examples = ground.queries.examples[:3]
    found = differences(tiny_model, examples)
    assert sorted(found) == [part.layer for part in tiny_model.wiring.attentions][1:]

    def stream(text: str) -> np.ndarray:
        kept = {3: torch.empty(0)}
        with torch.no_grad():
            last_logits(tiny_model, make_batch([np.array(tiny_model.tokenizer(text).input_ids)]), keep=kept)
        return kept[3][0, -1].numpy()

    expected = [stream(told(one)) - stream(one.prompt) for one in examples]
    np.testing.assert_allclose(found[3], np.stack(expected), atol=1e-4)


def test_in_context_vectors_choose_a_strength_on_development_queries(ground: Ground) -> None:
    method = InContextVectors(shots=2, items=4)
    method.fit(ground)
    assert method.strength > 0
    for directions in method.directions.values():
        for one in directions.values():
            assert np.linalg.norm(one) == pytest.approx(1, abs=1e-5)


def test_contexts_with_weight_zero_and_outputs_with_weight_one_are_zero_shot(
    tiny_model: LanguageModel, few: Queries
) -> None:
    branches = Branches(tiny_model)
    contexts = branches.last_outputs(few.texts)
    plain = torch.tensor([0.0, 1.0]).repeat(len(tiny_model.wiring.attentions), 2, 1)
    mean = {key: one.mean(0) for key, one in contexts.items()}
    batch = few.from_the_start().batch(range(len(few)), tiny_model)
    with torch.no_grad():
        base = last_logits(tiny_model, batch)
        with branches.mixed(mean, plain):
            torch.testing.assert_close(last_logits(tiny_model, batch), base)
        with branches.mixed(mean, plain + torch.tensor([0.5, 0.0])):
            assert (last_logits(tiny_model, batch) - base).abs().max() > 0.01


def test_training_of_contexts_lowers_the_loss_and_moves_the_four_weights_of_a_layer_only(
    ground: Ground, few: Queries
) -> None:
    before = {name: one.clone() for name, one in ground.model.model.named_parameters()}
    method = ImplicitContext(shots=1, epochs=2)
    method.fit(ground)
    assert method.losses[POOLED][-1] < method.losses[POOLED][0]
    assert method.weights[POOLED].shape == (len(ground.model.wiring.attentions), 2, 2)
    assert all(torch.equal(one, before[name]) for name, one in ground.model.model.named_parameters())
    assert np.isfinite(method.answer(few)[few.options >= 0]).all()


def test_the_adapted_head_is_the_head_plus_a_product_of_low_rank(ground: Ground, few: Queries) -> None:
    method = LoraHead(rank=3, epochs=2, learning_rate=0.01)
    method.fit(ground)
    assert method.losses[-1] < method.losses[0]
    matrix = (method._up @ method._down).numpy()
    assert np.linalg.matrix_rank(matrix) == 3
    inputs = head_inputs(ground.model, few).numpy()
    head = ground.model.wiring.unembedding.weight.detach().numpy()
    whole = inputs @ (head + matrix).T
    rows: Sequence[int] = range(len(few))
    expected = np.stack([whole[row][few.options[row]] for row in rows])
    np.testing.assert_allclose(method.answer(few), expected, atol=1e-3)
    assert method.parameters == 3 * sum(head.shape)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_is_reached_by_its_name(name: str) -> None:
    assert PLAIN[name]().name == name
