"""How long a routed pass takes, beside the plain one and a few-shot prompt's."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from readout.icr.passes import Batch, last_logits, make_batch
from readout.icr.routing import Routing, Weights
from readout.models import LanguageModel


@dataclass(frozen=True)
class Latency:
    """Seconds of one pass at one length, the least of some rounds; and the ratio, the median of the rounds' own.

    Attributes
    ----------
    tokens : int
    plain, routed : float
        Processor seconds of the pass without and with the bias.
    ratio : float
        Median over rounds of routed over plain, each measured side by side.
    encoder : float
        Seconds that the sentence encoder and the router take for the query's text; 0 where it was not given.
    """

    tokens: int
    plain: float
    routed: float
    ratio: float
    encoder: float

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return asdict(self)

    def summary(self) -> str:
        """One line."""
        told = f", encoder and router {self.encoder:.3f} s more" if self.encoder else ""
        return (
            f"{self.tokens:5} tokens: plain {self.plain:.3f} s, routed {self.routed:.3f} s, "
            f"ratio {self.ratio:.3f}{told}"
        )


@torch.inference_mode()
def measure_latency(
    model: LanguageModel,
    routing: Routing,
    weights: Weights,
    lengths: Sequence[int],
    rounds: int = 5,
    before: Callable[[int], Any] | None = None,
) -> list[Latency]:
    """Time plain and routed passes of random tokens, in turns, after one of each to warm up.

    Parameters
    ----------
    model : LanguageModel
    routing : Routing
    weights : Weights
        Of one input, not 0.
    lengths : sequence of int
        Tokens.
    rounds : int
        Pairs of passes; their order alternates.
    before : callable, optional
        What happens once a query before its pass (encoder and router), given the number of tokens.
    """
    vocabulary = int(model.model.get_input_embeddings().num_embeddings)
    found = []
    for tokens in lengths:
        ids = np.random.default_rng(tokens).integers(0, vocabulary, tokens)
        batch = make_batch([ids], device=model.device)
        times: dict[str, list[float]] = {"plain": [], "routed": [], "before": []}
        passes = {"plain": partial(_pass, model, batch), "routed": partial(_pass, model, batch, routing, weights)}
        for number in range(rounds + 1):
            for name in ("plain", "routed") if number % 2 else ("routed", "plain"):
                times[name].append(_timed(passes[name]))
            if before is not None:
                times["before"].append(_timed(partial(before, tokens)))
        plain, routed = (np.array(times[name][1:]) for name in ("plain", "routed"))
        encoder = min(times["before"][1:]) if before is not None else 0.0
        ratio = float(np.median(routed / plain))
        found.append(Latency(tokens, float(plain.min()), float(routed.min()), ratio, float(encoder)))
    return found


def _pass(model: LanguageModel, batch: Batch, routing: Routing | None = None, weights: Weights | None = None) -> None:
    if routing is None or weights is None:
        last_logits(model, batch)
        return
    with routing.on(weights):
        last_logits(model, batch)


def _timed(call: Callable[[], Any]) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start
