"""Queries and keys as they leave their projections: before the rotary embedding, after any norm and bias.

The attention function sees queries and keys after the rotary embedding, which turns them by their position. The
directions of in-context routing are taken before it, so these are read at the module that makes them, found by name
and then tested: what is read must equal what the attention function gets at position 0, where the rotary embedding
turns nothing, and must not change with the position.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from readout.errors import UnsupportedModelError
from readout.models import LanguageModel
from readout.models.attention import Core, changing

NORMS = ("{}_norm", "{}_layernorm")
SEPARATE = ("{}_proj",)
FUSED = ("c_attn", "qkv_proj")
LETTERS = {"query": "q", "key": "k"}
TOLERANCE = 1e-4


@dataclass(frozen=True)
class Source:
    """Where one layer's queries or keys can be read: a module and, of a fused projection, the columns."""

    module: nn.Module
    heads: int
    columns: slice | None = None

    def read(self, output: Tensor) -> Float[Tensor, "rows tokens width"]:
        """Heads side by side, head by head, unrepeated under grouped-query attention."""
        if self.columns is not None:
            return output[..., self.columns]
        if output.ndim == 4 and output.shape[2] != self.heads:
            output = output.transpose(1, 2)
        return output.flatten(2) if output.ndim == 4 else output


class PreRotary:
    """Reads a model's pre-rotary queries and keys, layer by layer.

    Parameters
    ----------
    model : LanguageModel
    layers : sequence of int
        The layers to read.

    Attributes
    ----------
    query, key : dict of int to Tensor
        What the last pass read: [rows, tokens, heads * head_dim] and [rows, tokens, kv_heads * head_dim].

    Raises
    ------
    UnsupportedModelError
        If a layer does not exist, or its projections cannot be found or fail the test.
    """

    def __init__(self, model: LanguageModel, layers: Sequence[int]) -> None:
        known = {part.layer: part for part in model.wiring.attentions}
        missing = [layer for layer in layers if layer not in known]
        if missing or not layers:
            raise UnsupportedModelError(
                f"{model.name} has the layers {min(known)} to {max(known)}; asked for {list(layers)}"
            )
        self.model, self.layers = model, tuple(layers)
        self.layer_of = {known[layer].module: layer for layer in layers}
        self.query: dict[int, Tensor] = {}
        self.key: dict[int, Tensor] = {}
        self.sources: dict[int, dict[str, Source]] = {}
        for layer in layers:
            part = known[layer]
            sizes = (part.n_heads, part.n_kv_heads)
            self.sources[layer] = {
                name: _source(part.module, letter, heads, sizes)
                for (name, letter), heads in zip(LETTERS.items(), sizes, strict=True)
            }
        self._test()

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Read every pass made inside."""
        with ExitStack() as stack:
            for layer, sources in self.sources.items():
                for name, source in sources.items():
                    handle = source.module.register_forward_hook(self._hook(layer, name, source))
                    stack.callback(handle.remove)
            yield

    def _hook(self, layer: int, name: str, source: Source) -> Any:
        into: dict[int, Tensor] = getattr(self, name)

        def keep(module: nn.Module, args: Any, output: Tensor) -> None:
            into[layer] = source.read(output)

        return keep

    def _test(self) -> None:
        seen: dict[tuple[str, int], Tensor] = {}

        def watch(module: nn.Module, core: Core) -> Core:
            layer = self.layer_of.get(module)
            if layer is not None:
                seen["query", layer], seen["key", layer] = core.query, core.key
            return core

        found = []
        for position in (0, 5):
            with self.reading(), changing(watch), torch.no_grad():
                token = torch.ones(1, 1, dtype=torch.long, device=self.model.device)
                self.model.model(input_ids=token, position_ids=token * position, use_cache=False)
            read = {(name, layer): getattr(self, name)[layer] for name in LETTERS for layer in self.layers}
            found.append({key: (read[key], seen[key].transpose(1, 2).flatten(2)) for key in read})
        for at_zero, later in zip(found[0].values(), found[1].values(), strict=True):
            # Learned positions change what is read too; then nothing is turned, and both must agree everywhere.
            plain = _close(*at_zero) and (_close(at_zero[0], later[0]) or _close(*later))
            if not plain:
                raise self._unsupported("its queries and keys change between the projection and the attention function")
        self.query.clear()
        self.key.clear()

    def _unsupported(self, why: str) -> UnsupportedModelError:
        return UnsupportedModelError(
            f"in-context routing does not know {type(self.model.model).__name__}: {why}. Supported are models whose "
            "queries and keys are their projection's (or norm's) output, then turned by the rotary embedding "
            "(Llama, Qwen2, Qwen3, Mistral, Gemma, SmolLM, OLMo, Phi, GPT-2)."
        )


def _close(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and torch.allclose(one.float(), other.float(), rtol=TOLERANCE, atol=TOLERANCE)


def _source(attention: nn.Module, letter: str, heads: int, sizes: tuple[int, int]) -> Source:
    for pattern in (*NORMS, *SEPARATE):
        module = getattr(attention, pattern.format(letter), None)
        if isinstance(module, nn.Module) and not isinstance(module, nn.Identity):
            return Source(module, heads)
    for name in FUSED:
        module = getattr(attention, name, None)
        if isinstance(module, nn.Module):
            n_heads, n_kv_heads = sizes
            dim = int(getattr(attention, "head_dim", 0))
            start = 0 if letter == "q" else n_heads * dim
            return Source(module, heads, slice(start, start + (n_heads if letter == "q" else n_kv_heads) * dim))
    raise UnsupportedModelError(
        f"in-context routing finds no query and key projections in {type(attention).__name__}: it looks for q_proj and "
        "k_proj (and norms after them), c_attn or qkv_proj"
    )
