"""Implicit in-context learning: demonstrations' attention and feed-forward outputs, mixed in with trained weights.

In every layer and at every token, a branch's output becomes ``kept * output + added * context``, with the context the
mean over demonstrations (each run alone) of that branch's last-token output, and two numbers a branch.

Source: Li et al. (2025), Implicit in-context learning; icr.md, section 6.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from readout.errors import ReadoutError, UnsupportedModelError
from readout.icr.examples import Example
from readout.icr.methods.base import Ground, Logits
from readout.icr.methods.sources import BATCH_TOKENS, answer_by_source, rows_by_source, shown_examples, told
from readout.icr.passes import by_length, last_logits, make_batch
from readout.icr.queries import Queries, answer_ids
from readout.icr.training import answers_of
from readout.models import LanguageModel
from readout.statistics import generator

START = (0.1, 1.0)
"""Weights of context and output before training."""
NOISE, WARM_UP = 0.001, 0.05
FEED_FORWARD = ("mlp", "feed_forward", "ffn")

Contexts = Mapping[tuple[int, int], Tensor]
"""By layer and branch (0 attention, 1 feed-forward), [width]."""


class ImplicitContext:
    """One set of contexts and weights a training set, and one of all.

    Parameters
    ----------
    shots : int
        Demonstrations of each answer.
    epochs : int
        Passes over them in training; the authors take 100.
    learning_rate, weight_decay, batch
        Of AdamW.
    """

    name = "i2cl"

    def __init__(
        self,
        shots: int = 5,
        epochs: int = 10,
        learning_rate: float = 0.01,
        weight_decay: float = 1e-3,
        batch: int = 2,
    ) -> None:
        self.shots, self.epochs, self.batch = shots, epochs, batch
        self.learning_rate, self.weight_decay = learning_rate, weight_decay
        self.contexts: dict[str, Contexts] = {}
        self.weights: dict[str, Tensor] = {}
        self.losses: dict[str, list[float]] = {}
        self._ground: Ground | None = None
        self._branches: Branches | None = None

    def fit(self, ground: Ground) -> None:
        """Average the demonstrations' outputs and train the weights on the same demonstrations."""
        self._ground, self._branches = ground, Branches(ground.model)
        examples = shown_examples(ground, self.shots)
        outputs = self._branches.last_outputs([told(one) for one in examples])
        for source, rows in rows_by_source([one.dataset for one in examples]).items():
            chosen = torch.from_numpy(rows)
            self.contexts[source] = {key: one[chosen].mean(0) for key, one in outputs.items()}
            self._train(source, [examples[row] for row in rows], ground)

    def _train(self, source: str, examples: Sequence[Example], ground: Ground) -> None:
        assert self._branches is not None
        model = ground.model
        ids = [np.array(model.tokenizer(one.prompt).input_ids, np.int64) for one in examples]
        tokens = {one.dataset: answer_ids(model.tokenizer, one) for one in examples}
        targets = torch.tensor([tokens[one.dataset][one.answer] for one in examples], device=model.device)
        layers = len(model.wiring.attentions)
        weights = nn.Parameter(torch.tensor(START, device=model.device).repeat(layers, 2, 1))
        optimizer = torch.optim.AdamW([weights], lr=self.learning_rate, weight_decay=self.weight_decay)
        draw = generator(ground.seed * 503)
        noise = torch.Generator(model.device).manual_seed(ground.seed)
        losses = self.losses.setdefault(source, [])
        steps = self.epochs * math.ceil(len(ids) / self.batch)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _rate(step, steps))
        for _ in range(self.epochs):
            total = 0.0
            for rows in np.array_split(draw.permutation(len(ids)), math.ceil(len(ids) / self.batch)):
                batch = make_batch([ids[row] for row in rows], device=model.device)
                with self._branches.mixed(self.contexts[source], weights, noise):
                    loss = F.cross_entropy(last_logits(model, batch), targets[torch.from_numpy(rows).to(model.device)])
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                schedule.step()
                total += float(loss.detach()) * len(rows)
            losses.append(total / len(ids))
        self.weights[source] = weights.detach()

    def answer(self, queries: Queries) -> Logits:
        """With the contexts mixed in."""
        return answer_by_source(queries.from_the_start(), self.weights, self._answer)

    @torch.inference_mode()
    def _answer(self, queries: Queries, source: str) -> Logits:
        if self._ground is None or self._branches is None:
            raise ReadoutError(f"{self.name}: fit it first")
        model = self._ground.model
        found = np.full(queries.options.shape, np.nan, np.float32)
        for rows in queries.batches(BATCH_TOKENS):
            with self._branches.mixed(self.contexts[source], self.weights[source]):
                logits = last_logits(model, queries.batch(rows, model))
            found[rows] = answers_of(logits, queries.options[rows])
        return found


def _rate(step: int, steps: int) -> float:
    """Linear warm-up, then half a cosine."""
    warm = max(1, round(WARM_UP * steps))
    if step < warm:
        return (step + 1) / warm
    return 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, steps - warm)))


class Branches:
    """What attention and feed-forward add to the residual stream, layer by layer.

    Parameters
    ----------
    model : LanguageModel

    Raises
    ------
    UnsupportedModelError
        If a layer's feed-forward part is not found, or the two do not add up to what the layer does.
    """

    def __init__(self, model: LanguageModel) -> None:
        self.model = model
        self.modules: dict[tuple[int, int], nn.Module] = {}
        for part in model.wiring.attentions:
            names = [name for name in FEED_FORWARD if isinstance(getattr(part.decoder_layer, name, None), nn.Module)]
            if not names:
                raise self._unsupported("a layer has no module " + ", ".join(FEED_FORWARD))
            self.modules[part.layer, 0] = part.post_norm or part.projection
            self.modules[part.layer, 1] = getattr(part.decoder_layer, names[0])
        self._test()

    def _unsupported(self, why: str) -> UnsupportedModelError:
        return UnsupportedModelError(
            f"i2cl does not know {type(self.model.model).__name__}: {why}. Supported are models whose layers add the "
            "outputs of attention and of a feed-forward module to the residual stream (Llama, Qwen, Mistral, GPT-2)."
        )

    def _test(self) -> None:
        """Every layer but the last must be its input plus the two branches."""
        layers = [part.layer for part in self.model.wiring.attentions]
        stream = {layer: torch.empty(0) for layer in layers}
        found: dict[tuple[int, int], Tensor] = {}
        batch = make_batch([np.ones(3, np.int64)], device=self.model.device)
        with torch.no_grad(), self._hooks(lambda key, output: found.__setitem__(key, output)):
            last_logits(self.model, batch, keep=stream)
        scale = self.model.wiring.residual_scale
        for below, layer in pairwise(layers):
            whole = stream[below] + scale * (found[below, 0] + found[below, 1])
            if not torch.allclose(whole, stream[layer], rtol=1e-3, atol=1e-3 * float(stream[layer].abs().max())):
                raise self._unsupported(f"the branches of layer {below} do not add up to its output")

    @contextmanager
    def _hooks(self, act: Any) -> Iterator[None]:
        handles = [
            module.register_forward_hook(lambda _, args, output, key=key: act(key, output))
            for key, module in self.modules.items()
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    @torch.inference_mode()
    def last_outputs(self, texts: Sequence[str]) -> dict[tuple[int, int], Tensor]:
        """Each branch's output at the last token of each text, [texts, width]."""
        ids = [np.array(self.model.tokenizer(text).input_ids, np.int64) for text in texts]
        found: dict[tuple[int, int], Tensor] = {}
        for rows in by_length([len(one) for one in ids], BATCH_TOKENS):
            batch = make_batch([ids[row] for row in rows], device=self.model.device)

            def keep(key: tuple[int, int], output: Tensor, batch: Any = batch, rows: Any = rows) -> None:
                own = output[torch.arange(len(rows)), batch.last.to(output.device)].float()
                store = found.setdefault(key, torch.zeros(len(ids), own.shape[1], device=own.device))
                store[torch.from_numpy(rows)] = own

            with self._hooks(keep):
                last_logits(self.model, batch)
        return {key: one.clone() for key, one in found.items()}

    @contextmanager
    def mixed(self, contexts: Contexts, weights: Tensor, noise: torch.Generator | None = None) -> Iterator[None]:
        """Mix contexts in; weights are [layers, branches, (context, output)].

        With ``noise`` (training), each output gets Gaussian noise of a thousandth of its norm.
        """
        place = {part.layer: number for number, part in enumerate(self.model.wiring.attentions)}

        def change(key: tuple[int, int], output: Tensor) -> Tensor:
            added, kept = weights[place[key[0]], key[1]]
            mixed: Tensor = kept * output.float() + added * contexts[key]
            if noise is not None:
                drawn = torch.randn(mixed.shape, generator=noise, device=mixed.device)
                mixed = mixed + NOISE * mixed.detach().norm(dim=-1, keepdim=True) * drawn / mixed.shape[-1] ** 0.5
            return mixed.to(output.dtype)

        with self._hooks(change):
            yield
