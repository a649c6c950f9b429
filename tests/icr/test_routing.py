"""Routed attention against the bias written out, and what it must leave alone."""

import pytest
import torch
from families import tiny
from torch import Tensor

from readout.errors import ReadoutError, UnsupportedModelError
from readout.icr.basis import Basis, third
from readout.icr.passes import Batch, last_logits, make_batch
from readout.icr.projections import PreRotary
from readout.icr.routing import Routing, Weights
from readout.models import LanguageModel, pack

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")

RANK, LAYERS = 3, (1, 2)
PROMPTS = [torch.randint(3, 96, (n,), generator=torch.Generator().manual_seed(n)).numpy() for n in (9, 5, 12)]


def model_of(family: str = "llama") -> LanguageModel:
    return LanguageModel(tiny(family))


def basis_of(model: LanguageModel, layers: tuple[int, ...] = LAYERS, seed: int = 0) -> Basis:
    draw = torch.Generator().manual_seed(seed)
    taps = PreRotary(model, layers)
    query, key = {}, {}
    for layer in layers:
        part = model.wiring.attentions[layer]
        dim = part.module.head_dim
        query[layer] = torch.randn(part.n_heads * dim, RANK, generator=draw) * 0.2
        key[layer] = torch.randn(part.n_kv_heads * dim, RANK, generator=draw) * 0.2
    assert taps.layers == layers
    return Basis(query, key)


def weights_of(model: LanguageModel, inputs: int = 3, layers: int = len(LAYERS), seed: int = 1) -> Weights:
    draw = torch.Generator().manual_seed(seed)
    heads = model.wiring.attentions[0].n_heads
    return Weights(torch.randn(inputs, layers, RANK, generator=draw), torch.rand(inputs, layers, heads, generator=draw))


def routed(routing: Routing, weights: Weights, batch: Batch | None = None) -> Tensor:
    batch = batch or make_batch(PROMPTS)
    with torch.no_grad(), routing.on(weights, batch.last):
        return last_logits(routing.model, batch)


def plain(model: LanguageModel, batch: Batch | None = None) -> Tensor:
    with torch.no_grad():
        return last_logits(model, batch or make_batch(PROMPTS))


@pytest.mark.parametrize("family", ["llama", "qwen3", "gpt2", "phi3", "mistral"])
def test_lengthened_queries_and_keys_equal_the_bias_written_out(family: str) -> None:
    model = model_of(family)
    routing = Routing(model, basis_of(model))
    weights = weights_of(model, 1)
    candidates = torch.arange(96)[None]
    for prompt in PROMPTS:
        batch = pack([[prompt]])
        with routing.taps.reading():
            slow = model.run(batch, candidates, edits=routing.explicit(weights)).log_probabilities
        with routing.on(weights):
            fast = model.run(batch, candidates).log_probabilities
        torch.testing.assert_close(fast, slow, atol=2e-5, rtol=1e-4)
        assert (fast - model.run(batch, candidates).log_probabilities).abs().max() > 1e-2


def test_the_bias_is_what_the_equation_says() -> None:
    model = model_of()
    basis = basis_of(model, (1,))
    weights = weights_of(model, 1, 1)
    routing = Routing(model, basis)
    batch = make_batch(PROMPTS[:1])
    with torch.no_grad(), routing.taps.reading():
        last_logits(model, batch)
        # Q and K out of the projections' own weights and the stream that enters the layer
        keep: dict[int, Tensor] = {1: torch.empty(0)}
        last_logits(model, batch, keep=keep)
        block = model.model.model.layers[1]
        normed = block.input_layernorm(keep[1][0])
        queries, keys = normed @ block.self_attn.q_proj.weight.T, normed @ block.self_attn.k_proj.weight.T
    by_hand = torch.zeros(4, len(PROMPTS[0]), len(PROMPTS[0]))
    for head in range(4):
        for j in range(RANK):
            left, right = queries @ basis.query[1][:, j], keys @ basis.key[1][:, j]
            by_hand[head] += weights.gamma[0, 0, head] * weights.alpha[0, 0, j] * torch.outer(left, right)
    edit = routing.explicit(weights).scores[1][0]
    at = torch.arange(len(PROMPTS[0]))[None]
    with torch.no_grad(), routing.taps.reading():
        last_logits(model, batch)
        found = edit(torch.zeros(1, 4, at.shape[1], at.shape[1]), at, None)
    torch.testing.assert_close(found[0], by_hand, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("what", ["alpha", "basis", "outside"])
def test_off_is_equal_to_the_bit(what: str) -> None:
    model = model_of()
    before = plain(model)
    weights = weights_of(model)
    basis = basis_of(model)
    if what == "outside":
        routed(Routing(model, basis), weights)
        assert torch.equal(plain(model), before)
        return
    if what == "alpha":
        weights = weights.times(0.0)
    else:
        basis = Basis({k: v * 0 for k, v in basis.query.items()}, dict(basis.key))
    assert torch.equal(routed(Routing(model, basis), weights), before)


def test_the_causal_mask_wins_over_any_bias() -> None:
    model = model_of()
    routing = Routing(model, basis_of(model))
    weights = weights_of(model, 1).times(30.0)
    prompt = PROMPTS[2]
    changed = prompt.copy()
    changed[7:] = changed[7:][::-1] + 1
    candidates = torch.arange(96)[None]
    with routing.on(weights):
        first, other = (model.run(pack([[one[:7]]]), candidates).log_probabilities for one in (prompt, changed))
    assert torch.equal(first, other)
    kept = []
    for one in (prompt, changed):
        stream: dict[int, Tensor] = {2: torch.empty(0)}
        with torch.no_grad(), routing.on(weights):
            last_logits(model, make_batch([one]), keep=stream)
        kept.append(stream[2][0])
    torch.testing.assert_close(kept[0][:7], kept[1][:7], atol=1e-5, rtol=0)
    assert not torch.allclose(kept[0][7:], kept[1][7:])


@pytest.mark.parametrize("rows", ["all", "last"])
def test_padding_changes_nothing(rows: str) -> None:
    model = model_of()
    routing = Routing(model, basis_of(model), rows)
    weights = weights_of(model)
    together = routed(routing, weights)
    for number, prompt in enumerate(PROMPTS):
        alone = routed(routing, weights.of(slice(number, number + 1)), make_batch([prompt]))
        torch.testing.assert_close(together[number], alone[0], atol=1e-5, rtol=1e-4)


def test_only_the_last_row_is_biased_when_asked() -> None:
    model = model_of()
    basis = basis_of(model, (1,))
    weights = weights_of(model, 1, 1)
    streams = {}
    for rows in ("all", "last"):
        keep: dict[int, Tensor] = {2: torch.empty(0)}
        with torch.no_grad(), Routing(model, basis, rows).on(weights):
            last_logits(model, make_batch(PROMPTS[:1]), keep=keep)
        streams[rows] = keep[2][0]
    unrouted: dict[int, Tensor] = {2: torch.empty(0)}
    with torch.no_grad():
        last_logits(model, make_batch(PROMPTS[:1]), keep=unrouted)
    torch.testing.assert_close(streams["last"][:-1], unrouted[2][0, :-1], atol=1e-5, rtol=0)
    torch.testing.assert_close(streams["last"][-1], streams["all"][-1], atol=1e-5, rtol=0)
    assert not torch.allclose(streams["all"][:-1], unrouted[2][0, :-1], atol=1e-3)


def test_repeated_key_heads_span_the_same_bias_up_to_their_number() -> None:
    """Repeating key-value heads, as the concatenation over query heads would, scales Z_k by the group's size."""
    model = model_of()
    basis = basis_of(model, (1,))
    routing = Routing(model, basis)
    with torch.no_grad(), routing.taps.reading():
        last_logits(model, make_batch(PROMPTS[:1]))
        keys = routing.taps.key[1][0]
    part = model.wiring.attentions[1]
    group = part.n_heads // part.n_kv_heads

    def repeat(wide: Tensor) -> Tensor:
        return wide.reshape(*wide.shape[:-1], part.n_kv_heads, -1).repeat_interleave(group, -2).flatten(-2)

    # A unit direction of the repeated keys is the unrepeated one, repeated, over sqrt(group).
    direction = repeat(basis.key[1].T).T / group**0.5
    torch.testing.assert_close(repeat(keys) @ direction, keys @ basis.key[1] * group**0.5, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("family", ["llama", "qwen3", "gpt2"])
def test_decoding_with_a_cache_equals_whole_passes(family: str) -> None:
    model = model_of(family)
    routing = Routing(model, basis_of(model))
    weights = weights_of(model, 1).times(2.0)
    prompt = torch.from_numpy(PROMPTS[0])[None]
    options = {"max_new_tokens": 8, "min_new_tokens": 8, "return_dict_in_generate": True, "output_logits": True}
    made = routing.generate(prompt, weights, **options)
    for step, logits in enumerate(made.logits):
        ids = made.sequences[:, : prompt.shape[1] + step]
        whole = routed(routing, weights, make_batch([ids[0].numpy()]))
        torch.testing.assert_close(logits, whole, atol=2e-5, rtol=1e-4)
    assert made.logits[-1].isfinite().all()


def test_a_batch_padded_on_the_left_generates_what_each_prompt_does() -> None:
    model = model_of()
    routing = Routing(model, basis_of(model))
    weights = weights_of(model, 2)
    short, long = (torch.from_numpy(PROMPTS[i]) for i in (1, 0))
    ids = torch.stack([torch.cat([torch.zeros(len(long) - len(short), dtype=torch.long), short]), long])
    mask = torch.ones_like(ids)
    mask[0, : len(long) - len(short)] = 0
    options = {"max_new_tokens": 4, "min_new_tokens": 4}
    both = routing.generate(ids, weights, mask, **options)[:, -4:]
    for row, prompt in enumerate((short, long)):
        alone = routing.generate(prompt[None], weights.of(slice(row, row + 1)), **options)[0, -4:]
        assert torch.equal(both[row], alone)


def test_beams_and_a_cache_made_without_routing_are_refused() -> None:
    model = model_of()
    routing = Routing(model, basis_of(model))
    weights = weights_of(model, 1)
    with pytest.raises(ReadoutError, match="num_beams"):
        routing.generate(torch.ones(1, 4, dtype=torch.long), weights, num_beams=2)
    made = model.model(input_ids=torch.ones(1, 4, dtype=torch.long), use_cache=True)
    with pytest.raises(ReadoutError, match="cache of 4 tokens"), torch.no_grad(), routing.on(weights):
        model.model(input_ids=torch.ones(1, 1, dtype=torch.long), past_key_values=made.past_key_values)


def test_gradients_reach_the_weights_and_nothing_else() -> None:
    model = model_of()
    routing = Routing(model, basis_of(model))
    weights = weights_of(model)
    weights.alpha.requires_grad_()
    weights.gamma.requires_grad_()
    with routing.on(weights):
        last_logits(model, make_batch(PROMPTS))[:, 5].sum().backward()
    assert weights.alpha.grad.abs().min() > 0
    assert weights.gamma.grad.abs().min() > 0
    assert all(parameter.grad is None for parameter in model.model.parameters())


def test_the_gradient_of_the_fused_pass_is_that_of_finite_differences() -> None:
    model = model_of()
    routing = Routing(model, basis_of(model))
    weights = weights_of(model)
    alpha = weights.alpha.clone().requires_grad_()
    batch = make_batch(PROMPTS)
    with routing.on(Weights(alpha, weights.gamma)):
        last_logits(model, batch)[:, 5].sum().backward()
    step = torch.zeros_like(alpha)
    step[1, 0, 2] = 1e-2
    with torch.no_grad():
        ends = []
        for sign in (1, -1):
            with routing.on(Weights(weights.alpha + sign * step, weights.gamma)):
                ends.append(last_logits(model, batch)[:, 5].sum())
    assert float(alpha.grad[1, 0, 2]) == pytest.approx(float(ends[0] - ends[1]) / 2e-2, rel=2e-2)


def test_flipping_both_directions_of_a_pair_changes_nothing_and_one_is_absorbed_by_alpha() -> None:
    model = model_of()
    basis, weights = basis_of(model), weights_of(model)
    flip = torch.tensor([1.0, -1.0, 1.0])
    flipped_query = {layer: matrix * flip for layer, matrix in basis.query.items()}
    flipped_key = {layer: matrix * flip for layer, matrix in basis.key.items()}
    straight = routed(Routing(model, basis), weights)
    both = routed(Routing(model, Basis(flipped_query, flipped_key)), weights)
    torch.testing.assert_close(both, straight, atol=1e-5, rtol=1e-4)
    one = Routing(model, Basis(flipped_query, dict(basis.key)))
    assert not torch.allclose(routed(one, weights), straight, atol=1e-3)
    torch.testing.assert_close(
        routed(one, Weights(weights.alpha * flip, weights.gamma)), straight, atol=1e-5, rtol=1e-4
    )


@pytest.mark.parametrize("family", ["llama", "qwen3", "gpt2", "gemma3_text"])
@pytest.mark.parametrize("layer", [0, 1, 2])
def test_a_pass_that_starts_at_a_layer_equals_the_whole_one(family: str, layer: int) -> None:
    model = model_of(family)
    whole = make_batch(PROMPTS)
    keep: dict[int, Tensor] = {layer: torch.empty(0)}
    with torch.no_grad():
        expected = last_logits(model, whole, keep=keep)
        hidden = [keep[layer][row, : len(one)].numpy() for row, one in enumerate(PROMPTS)]
        found = last_logits(model, make_batch(PROMPTS, hidden, layer))
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)
    if family != "gemma3_text":
        routing = Routing(model, basis_of(model, (layer,)))
        weights = weights_of(model, 3, 1)
        torch.testing.assert_close(
            routed(routing, weights, make_batch(PROMPTS, hidden, layer)), routed(routing, weights), atol=1e-5, rtol=1e-4
        )
    assert torch.equal(plain(model), expected)


def test_no_tensor_of_the_routed_pass_grows_with_the_square_of_the_tokens() -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    class Largest(TorchDispatchMode):
        size = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            for one in result if isinstance(result, tuple | list) else [result]:
                if isinstance(one, Tensor):
                    self.size = max(self.size, one.numel())
            return result

    model = model_of()
    routing = Routing(model, basis_of(model))
    weights = weights_of(model, 1)
    sizes = []
    for tokens in (32, 128):
        batch = make_batch([PROMPTS[0].repeat(20)[:tokens]])
        with torch.no_grad(), routing.on(weights), Largest() as largest:
            last_logits(model, batch)
        sizes.append(largest.size)
    assert sizes[1] <= 4 * sizes[0]


def test_what_cannot_be_routed_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedModelError, match="GPTNeoXAttention"):
        PreRotary(model_of("gpt_neox"), [0])
    with pytest.raises(UnsupportedModelError, match="Llama4"):
        PreRotary(model_of("llama4_text"), [0])
    model = model_of("gemma2")
    with pytest.raises(UnsupportedModelError, match="caps its attention logits"):
        routed(Routing(model, basis_of(model)), weights_of(model))
    model = model_of()
    with pytest.raises(ReadoutError, match="unrepeated"):
        Routing(model, Basis({1: torch.zeros(32, 2)}, {1: torch.zeros(32, 2)}))
    with pytest.raises(ReadoutError, match="alpha"):
        routed(Routing(model, basis_of(model)), weights_of(model, 3, 1))
    with pytest.raises(ReadoutError, match="2 inputs"):
        routed(Routing(model, basis_of(model)), weights_of(model, 2))


def test_thirds_follow_the_papers_rule() -> None:
    assert third("late", 30) == tuple(range(20, 30))
    assert third("late", 32) == tuple(range(21, 32))
    assert third("early", 30) + third("middle", 30) + third("late", 30) == third("all", 30)
