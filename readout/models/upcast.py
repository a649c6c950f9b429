"""Running a low-precision model in float32 with its own weights, at the memory of one more layer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn

from readout.models.wiring import Wiring

ORDINARY = (torch.float32, torch.bfloat16, torch.float16)


def can_upcast(model: nn.Module) -> bool:
    """Whether all weights are ordinary floating-point numbers at hand: not quantised, not offloaded."""
    return all(one.dtype in ORDINARY and not one.is_meta for one in model.parameters())


@contextmanager
def in_float32(model: nn.Module, wiring: Wiring) -> Iterator[None]:
    """Let the model compute in float32 with the very weights that it has.

    What lies outside the decoder layers is cast for the duration, each layer only while it runs, so that a model
    that just fits still fits. The weights themselves are put back, not cast back.
    """
    layers = list(dict.fromkeys(part.decoder_layer for part in wiring.attentions))
    inside = {id(tensor) for layer in layers for tensor in _tensors(layer)}
    with ExitStack() as stack:
        stack.callback(_put_back, _cast([one for one in _tensors(model) if id(one) not in inside]))
        for layer in layers:
            _cast_while_running(stack, layer)
        yield


def _tensors(module: nn.Module) -> list[torch.Tensor]:
    return [*module.parameters(), *module.buffers()]


def _cast(tensors: list[torch.Tensor]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Cast in place; returns the tensors with what they held."""
    held = [(one, one.data) for one in tensors if one.is_floating_point() and one.dtype != torch.float32]
    with torch.inference_mode(False):  # a tensor made in inference mode cannot stand in for a weight
        for one, data in held:
            one.data = data.float()
    return held


def _put_back(held: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
    with torch.inference_mode(False):
        for one, data in held:
            one.data = data
    held.clear()


def _cast_while_running(stack: ExitStack, layer: nn.Module) -> None:
    held: list[tuple[torch.Tensor, torch.Tensor]] = []

    def before(*_: Any) -> None:
        held.extend(_cast(_tensors(layer)))

    def after(*_: Any) -> None:
        _put_back(held)

    stack.callback(after)
    stack.callback(layer.register_forward_pre_hook(before).remove)
    stack.callback(layer.register_forward_hook(after).remove)
