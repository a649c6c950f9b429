"""Passes over plain batches of prompts: whole, or from what enters a layer, with gradients where they are asked for.

Rows are padded on the right: a causal model's tokens never see what comes later, so no mask is needed. Only each
row's last token is unembedded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import Context
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from readout.models import LanguageModel
from readout.models.language_model import edit_residuals
from readout.models.wiring import hooked


@dataclass(frozen=True, eq=False)
class Batch:
    """Prompts padded on the right, and what enters a layer where it is kept.

    Attributes
    ----------
    token_ids : int64 [rows, tokens]
    last : int64 [rows]
        Each row's last token.
    hidden : float [rows, tokens, width] or None
        The residual stream that enters ``layer``.
    layer : int
        The layer at which the pass starts; 0 with ``hidden`` None is the whole pass.
    """

    token_ids: Int[Tensor, "rows tokens"]
    last: Int[Tensor, " rows"]
    hidden: Float[Tensor, "rows tokens width"] | None = None
    layer: int = 0


def make_batch(
    token_ids: Sequence[np.ndarray], hidden: Sequence[np.ndarray] | None = None, layer: int = 0, device: Any = "cpu"
) -> Batch:
    """Pad prompts (int64 [tokens] each) and, if given, their streams (float32 [tokens, width]) on the right."""
    lengths = [len(one) for one in token_ids]
    ids = np.zeros((len(lengths), max(lengths)), np.int64)
    for row, one in enumerate(token_ids):
        ids[row, : len(one)] = one
    stream = None
    if hidden is not None:
        stream = np.zeros((*ids.shape, hidden[0].shape[1]), np.float32)
        for row, values in enumerate(hidden):
            stream[row, : len(values)] = values
    last = torch.tensor(lengths, device=device) - 1
    streamed = None if stream is None else torch.from_numpy(stream).to(device)
    return Batch(torch.from_numpy(ids).to(device), last, streamed, layer)


def last_logits(
    model: LanguageModel,
    batch: Batch,
    residuals: Mapping[int, Sequence[Callable[[Tensor], Tensor]]] | None = None,
    keep: dict[int, Tensor] | None = None,
) -> Float[Tensor, "rows vocabulary"]:
    """Logits (float32) of what follows each row's last token.

    Parameters
    ----------
    model : LanguageModel
    batch : Batch
    residuals : mapping of int to edits, optional
        Changes of the stream [rows, tokens, width] that enters a layer.
    keep : dict, optional
        Its keys are layers; what enters them is put there.
    """
    # Found out before the hooks below are set: it takes a pass of its own.
    in_tuple = batch.hidden is not None and _returns_tuple(model)
    with ExitStack() as stack:
        stack.enter_context(unembedding_last(model, batch.last))
        if batch.hidden is not None:
            stack.enter_context(_starting_at(model, batch.layer, in_tuple))
            given = batch.hidden.to(model.dtype)
            edit_residuals(stack, model.wiring, {batch.layer: [lambda _: given]})
        edit_residuals(stack, model.wiring, residuals or {})
        for layer in keep or {}:
            edit_residuals(stack, model.wiring, {layer: [_keeping(keep or {}, layer)]})
        logits: Tensor = model.model(input_ids=batch.token_ids, use_cache=False).logits
    return logits[:, 0].float()


@contextmanager
def unembedding_last(model: LanguageModel, last: Int[Tensor, " rows"]) -> Iterator[None]:
    """Unembed only each row's last token: logits are [rows, 1, vocabulary]."""

    def narrow(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        hidden = args[0]
        rows = torch.arange(len(last), device=hidden.device)
        return ((hidden[rows, last.to(hidden.device)][:, None], *args[1:]), kwargs)

    with hooked(model.wiring.unembedding, narrow):
        yield


def _keeping(into: dict[int, Tensor], layer: int) -> Callable[[Tensor], Tensor]:
    def keep(hidden: Tensor) -> Tensor:
        into[layer] = hidden
        return hidden

    return keep


@contextmanager
def _starting_at(model: LanguageModel, layer: int, in_tuple: bool) -> Iterator[None]:
    """Let the layers below pass on what they are given."""
    below = [part.decoder_layer for part in model.wiring.attentions if part.layer < layer]

    def pass_on(hidden_states: Tensor, *args: Any, **kwargs: Any) -> Any:
        return (hidden_states,) if in_tuple else hidden_states

    changed: list[Any] = []
    try:
        for block in below:
            block.forward = pass_on
            changed.append(block)
        yield
    finally:
        for block in changed:
            del block.forward


def _returns_tuple(model: LanguageModel) -> bool:
    """Whether the decoder layers hand on a tuple; found out once a model."""
    known: bool | None = getattr(model, "_layers_return_tuple", None)
    if known is None:
        seen: list[bool] = []
        block = model.wiring.attentions[0].decoder_layer
        handle = block.register_forward_hook(lambda module, args, output: seen.append(isinstance(output, tuple)))
        token = torch.ones(1, 1, dtype=torch.long, device=model.device)
        with torch.no_grad():
            # In a context of its own, where no session and no routing is active.
            Context().run(lambda: model.model(input_ids=token, use_cache=False))
        handle.remove()
        known = seen[0]
        model._layers_return_tuple = known  # type: ignore[attr-defined]
    return known


def by_length(lengths: Sequence[int], batch_tokens: int) -> list[np.ndarray]:
    """Batches (numbers of prompts) of alike lengths, each of at most ``batch_tokens`` padded tokens."""
    order = np.argsort(np.asarray(lengths), kind="stable")
    batches: list[list[int]] = [[]]
    for number in order.tolist():
        if batches[-1] and lengths[number] * (len(batches[-1]) + 1) > batch_tokens:
            batches.append([])
        batches[-1].append(number)
    return [np.array(one) for one in batches if one]
