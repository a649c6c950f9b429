"""How a model is wired, found out by watching one small forward pass instead of by name.

Needed for the direct effect of a head: the attention modules in the order of their layers, the projection that their
heads' outputs go through, a norm that may follow it (Gemma 2, OLMo 2), the decoder layers, the final norm and the
unembedding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers import AttentionInterface

from readout.errors import UnsupportedModelError
from readout.models.attention import NAME, attention

PROBE_LENGTH = 6
RECURRENT = ("linear", "lightning", "delta")
SUPPORTED = (
    "Supported are causal language models whose softmax attention does, once a layer (Llama, Qwen2, Qwen3, Mistral, "
    "Gemma, GPT-2, GPT-NeoX, OLMo, Phi, OPT, Granite, Cohere, GPT-OSS, LFM2, Jamba, ...; not Bloom, Falcon or GPT-Neo)."
)


@dataclass(frozen=True)
class AttentionLayer:
    """One layer's attention: its module, its place, its sizes and what its heads' outputs go through."""

    module: nn.Module
    layer: int
    decoder_layer: nn.Module
    n_heads: int
    n_kv_heads: int
    value_dim: int
    projection: nn.Module
    post_norm: nn.Module | None


@dataclass(frozen=True)
class Wiring:
    """The parts of a causal language model that taps, edits and direct effects refer to.

    ``final_norm`` is None where the unembedding does not directly follow a norm: heads' direct effects on the logits
    are then not defined here, and ``why_no_effect`` says why. ``without_attention`` names the layers of a hybrid that
    hold another mixer (a convolution, a state space, linear attention): no head is read there.
    """

    attentions: tuple[AttentionLayer, ...]
    final_norm: nn.Module | None
    unembedding: nn.Module
    residual_scale: float
    logit_scale: float
    why_no_effect: str = ""
    without_attention: tuple[int, ...] = ()

    @property
    def heads(self) -> tuple[tuple[int, int], ...]:
        """(layer, head) of every query head, in order."""
        return tuple((part.layer, head) for part in self.attentions for head in range(part.n_heads))

    @property
    def layer_of(self) -> dict[nn.Module, int]:
        return {part.module: part.layer for part in self.attentions}


@dataclass
class _Call:
    module: nn.Module
    inputs: Tensor | None
    output: Tensor | None


@dataclass
class _Attended:
    module: nn.Module
    n_heads: int
    n_kv_heads: int
    value_dim: int
    after: int
    """Number of module calls that had ended when this one was made."""
    outputs: Tensor


def find_wiring(model: Any) -> Wiring:
    """Run ``model`` on a few tokens and read off how it is wired.

    Raises
    ------
    UnsupportedModelError
        If it has attention that does not call the registered function (the model does not use transformers' attention
        interface), or that several layers share.
    """
    calls, attended = _watch(model)
    modules = [one.module for one in attended]
    layers = _decoder_layers(model, modules)
    place = [next(n for n, block in enumerate(layers) if _holds(block, module)) for module in modules]
    others = [number for number in range(len(layers)) if number not in place]
    own = [number for number in others if any(map(_is_attention, layers[number].modules()))]
    if own or len(set(place)) != len(place):
        raise UnsupportedModelError(
            f"{type(model).__name__} is not supported: {len(set(place))} of its {len(set(place)) + len(own)} layers "
            f"with attention call transformers' attention interface, {'once' if own else 'some more than once'}. "
            f"{SUPPORTED}"
        )
    attentions = tuple(_attention_layer(one, at, layers[at], calls) for one, at in zip(attended, place, strict=True))
    unembedding = model.get_output_embeddings()
    final_norm, why = _final_norm(unembedding, calls)
    config = model.config.get_text_config()
    return Wiring(
        attentions,
        final_norm,
        unembedding,
        residual_scale=float(getattr(config, "residual_multiplier", None) or 1.0),
        logit_scale=_logit_scale(config),
        why_no_effect=why,
        without_attention=tuple(others),
    )


def _watch(model: Any) -> tuple[list[_Call], list[_Attended]]:
    """One forward pass: the leaf modules' calls, in order of ending, and the attention calls."""
    calls: list[_Call] = []
    attended: list[_Attended] = []

    def watching(module: nn.Module, query: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any) -> Any:
        # Contiguous, so that the reshape before the projection is a view and can be told from a gate or a norm.
        outputs = attention(module, query, key, value, *args, **kwargs)[0].contiguous()
        attended.append(_Attended(module, query.shape[1], key.shape[1], value.shape[3], len(calls), outputs))
        return outputs, None

    def hook(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        given = args[0] if args and isinstance(args[0], Tensor) else None
        calls.append(_Call(module, given, output if isinstance(output, Tensor) else None))

    leaves = [part for part in model.modules() if not any(True for _ in part.children())]
    handles = [leaf.register_forward_hook(hook) for leaf in leaves]
    AttentionInterface.register(NAME, watching)
    try:
        with torch.no_grad():
            model(input_ids=torch.ones(1, PROBE_LENGTH, dtype=torch.long, device=model.device), use_cache=False)
    finally:
        AttentionInterface.register(NAME, attention)
        for handle in handles:
            handle.remove()
    return calls, attended


def _decoder_layers(model: nn.Module, modules: list[nn.Module]) -> list[nn.Module]:
    """The list of blocks, each of which holds one of the attention modules or none."""
    for candidate in model.modules():
        blocks = list(candidate) if isinstance(candidate, nn.ModuleList) else []
        if modules and len(blocks) >= len(modules) and all(any(_holds(one, own) for one in blocks) for own in modules):
            return blocks
    raise UnsupportedModelError(
        f"{type(model).__name__} is not supported: none of its layers calls transformers' attention interface. "
        f"{SUPPORTED}"
    )


def _holds(block: nn.Module, module: nn.Module) -> bool:
    return any(part is module for part in block.modules())


def _is_attention(module: nn.Module) -> bool:
    """Whether a module is softmax attention by its name; linear, lightning and delta attention are recurrences."""
    name = type(module).__name__.lower()
    return "attention" in name and not any(kind in name for kind in RECURRENT)


def _same(left: Tensor | None, right: Tensor | None) -> bool:
    """Whether two tensors are the same memory (a view that keeps all of it counts)."""
    if left is None or right is None:
        return False
    return left.data_ptr() == right.data_ptr() and left.numel() == right.numel()


def _passes_on(module: nn.Module) -> bool:
    return isinstance(module, nn.Dropout | nn.Identity)


def _attention_layer(one: _Attended, layer: int, decoder_layer: nn.Module, calls: list[_Call]) -> AttentionLayer:
    family = type(one.module).__name__
    own = set(one.module.modules())
    projection = next((c for c in calls[one.after :] if c.module in own and _same(c.inputs, one.outputs)), None)
    if projection is None or "norm" in type(projection.module).__name__.lower():
        raise UnsupportedModelError(
            f"{family} is not supported: its heads' outputs pass a gate or a norm before the output projection, so a "
            "head has no output of its own there."
        )
    output = projection.output
    later = calls[calls.index(projection) + 1 :]
    post_norm = next((c.module for c in later if _same(c.inputs, output) and not _passes_on(c.module)), None)
    if post_norm is not None and "norm" not in type(post_norm).__name__.lower():
        post_norm = None
    return AttentionLayer(
        one.module,
        layer,
        decoder_layer,
        one.n_heads,
        one.n_kv_heads,
        one.value_dim,
        projection.module,
        post_norm,
    )


def _final_norm(unembedding: nn.Module, calls: list[_Call]) -> tuple[nn.Module | None, str]:
    last = next((call for call in reversed(calls) if call.module is unembedding), None)
    if last is None:
        return None, "the output embedding is not called as a module"
    before = next((c for c in reversed(calls) if _same(c.output, last.inputs) and not _passes_on(c.module)), None)
    if before is None or "norm" not in type(before.module).__name__.lower():
        return None, "the unembedding does not directly follow a norm"
    return before.module, ""


def _logit_scale(config: Any) -> float:
    """What the logits are multiplied by after the unembedding (Cohere's logit_scale, Granite's logits_scaling)."""
    scale = getattr(config, "logit_scale", None)
    divisor = getattr(config, "logits_scaling", None)
    return float(scale if scale is not None else 1.0) / float(divisor if divisor is not None else 1.0)


@contextmanager
def hooked(module: nn.Module, hook: Callable[[tuple[Any, ...], dict[str, Any]], Any]) -> Iterator[None]:
    """Call ``hook(args, kwargs)`` before each call of a module, for the duration."""
    handle = module.register_forward_pre_hook(lambda _, args, kwargs: hook(args, kwargs), with_kwargs=True)
    try:
        yield
    finally:
        handle.remove()


def projection_matrix(projection: Any) -> Float[Tensor, "out inside"]:
    """The matrix of a linear module, out of its weight or, for wrapped or quantised ones, by applying it."""
    if isinstance(projection, nn.Linear) and projection.weight.is_floating_point():
        return projection.weight.detach().float()
    if type(projection).__name__ == "Conv1D":  # transformers' transposed linear, used by GPT-2
        return torch.as_tensor(projection.weight).detach().float().T
    parameter = next(projection.parameters())
    dtype = parameter.dtype if parameter.is_floating_point() else torch.float32
    eye = torch.eye(int(projection.in_features), device=parameter.device, dtype=dtype)
    with torch.no_grad():
        applied: Tensor = projection(eye) - projection(torch.zeros_like(eye[:1]))
    return applied.float().T


@dataclass(frozen=True)
class FrozenNorm:
    """A norm as the linear map it is once its scale is held at the value that a given input produces.

    ``y = gain * centre(x) / scale(x) + shift``, with ``centre`` the identity for RMS norms. Found by two probes, so
    any norm of that form is covered, whatever its parameters are called.
    """

    gain: Float[Tensor, " width"]
    shift: Float[Tensor, " width"]
    centred: bool

    @classmethod
    def of(cls, norm: nn.Module, width: int, device: torch.device, dtype: torch.dtype) -> FrozenNorm:
        # Alternating signs have mean 0 and mean square 1 (widths are even), so any norm returns its gain times them;
        # the factor makes the norm's epsilon vanish.
        probe = 1e3 * (1 - 2 * (torch.arange(width, device=device) % 2)).to(dtype)
        with torch.no_grad():
            shift = norm(torch.zeros_like(probe)[None])[0].float()
            plain, moved = norm(probe[None])[0].float(), norm(probe[None] + 1e3)[0].float()
        centred = bool(torch.allclose(moved, plain, rtol=1e-3, atol=1e-5))
        gain = (plain - shift) * probe.float().sign()
        return cls(gain, shift, centred)

    def pull_back(
        self,
        direction: Float[Tensor, "... width"],
        given: Float[Tensor, "... width"],
        result: Float[Tensor, "... width"],
    ) -> Float[Tensor, "... width"]:
        """Direction at the norm's input whose product with an input part is that part's share of ``direction . y``.

        ``given`` and ``result`` are the norm's actual input and output, which fix its scale.
        """
        base = given - given.mean(-1, keepdim=True) if self.centred else given
        base = base * self.gain
        scaled = result - self.shift
        inverse_scale = (scaled * base).sum(-1, keepdim=True) / (base * base).sum(-1, keepdim=True).clamp_min(1e-30)
        pulled = direction * self.gain * inverse_scale
        return pulled - pulled.mean(-1, keepdim=True) if self.centred else pulled
