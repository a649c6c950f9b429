"""A routed forward pass against the plain one, side by side.

    python benchmarks/route.py [--model smollm2-135m] [--tokens 64,128,256,512,1024,2048] [--rounds 7]

One thread, CPU time, one prompt at a time, the last token unembedded. The ratio is the median over rounds in which both
passes run one after the other, in alternating order. What happens once a query beside the pass (sentence encoder and
router) is printed too, and the ratio with it.
"""

import argparse

import numpy as np
import torch

from readout.errors import FitError
from readout.icr.basis import Basis, third
from readout.icr.encoders import Encode, make_encoder
from readout.icr.latency import measure_latency
from readout.icr.router import Router, RouterSettings
from readout.icr.routing import Routing, Weights
from readout.models import LanguageModel, load_model

BOUNDS = {512: 1.10, 2048: 1.10}
"""What issue 6 asks for."""


def made_up_routing(model: LanguageModel, rank: int) -> tuple[Routing, Weights]:
    """Late layers, random directions, random weights: the time does not depend on their values."""
    draw = torch.Generator().manual_seed(0)
    layers = third("late", len(model.wiring.attentions))
    query, key = {}, {}
    for part in model.wiring.attentions:
        if part.layer in layers:
            query[part.layer] = torch.randn(part.n_heads * part.value_dim, rank, generator=draw) * 0.01
            key[part.layer] = torch.randn(part.n_kv_heads * part.value_dim, rank, generator=draw) * 0.01
    heads = model.wiring.attentions[0].n_heads
    weights = Weights(torch.rand(1, len(layers), rank) - 0.5, torch.rand(1, len(layers), heads))
    return Routing(model, Basis(query, key)), weights


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--tokens", default="64,128,256,512,1024,2048")
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    torch.set_num_threads(1)
    model = load_model(options.model, device="cpu")
    routing, weights = made_up_routing(model, options.rank)
    encode: Encode | None
    try:
        encode = make_encoder("minilm", model)
        encode(["warm up"])
    except FitError as error:
        print(error)
        encode = None
    router = Router(384, len(routing.basis.layers), options.rank, weights.gamma.shape[-1], RouterSettings())
    number = iter(range(10**9))

    def before(tokens: int) -> None:
        assert encode is not None
        # a new text each time, since embeddings are kept; about three tokens in four are words
        text = " ".join(f"word{next(number)}" if i == 0 else "film" for i in range(max(1, 3 * tokens // 4)))
        router(torch.from_numpy(np.asarray(encode([text]), np.float32)))

    layers = len(routing.basis.layers)
    print(f"{model.name}, one thread, rank {options.rank}, {layers} routed layers, {options.rounds} rounds", flush=True)
    lengths = [int(one) for one in options.tokens.split(",")]
    for one in measure_latency(model, routing, weights, lengths, options.rounds, before if encode else None):
        bound = f" (asked: {BOUNDS[one.tokens]:.2f})" if one.tokens in BOUNDS else ""
        with_encoder = (one.plain * one.ratio + one.encoder) / one.plain
        print(f"{one.summary()}{bound}; with encoder and router {with_encoder:.3f}", flush=True)


if __name__ == "__main__":
    main()
