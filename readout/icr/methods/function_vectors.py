"""Function vectors: the mean outputs of the heads that carry a task, added to the stream at the last token.

Source: Todd et al. (2024), Function vectors in large language models; icr.md, section 6.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from readout.errors import ReadoutError
from readout.icr.examples import Example, balanced, few_shot
from readout.icr.methods.base import Ground, Logits
from readout.icr.methods.plain import cache_argument
from readout.icr.methods.sources import answer_by_source, at_last, edited_answers, rows_by_source
from readout.icr.passes import Batch, by_length, last_logits, make_batch
from readout.icr.queries import Queries, answer_ids
from readout.models import LanguageModel
from readout.models.wiring import hooked, projection_matrix
from readout.statistics import generator

CHUNK = 32
"""Heads that are tried in one pass of a prompt's last token."""


class FunctionVectors:
    """One vector a training set, of the same heads for all.

    Heads are ranked by how much their mean output over few-shot prompts, put into prompts whose labels are shuffled,
    raises the right answer's probability.

    Parameters
    ----------
    heads : int
        Heads that are summed.
    prompts : int
        Few-shot prompts of each training set that means are taken over.
    shuffled : int
        Prompts with shuffled labels of each training set.
    """

    name = "function vectors"

    def __init__(self, heads: int = 10, prompts: int = 12, shuffled: int = 5) -> None:
        self.heads, self.prompts, self.shuffled = heads, prompts, shuffled
        self.chosen: list[tuple[int, int]] = []
        self.effects: dict[tuple[int, int], float] = {}
        self.vectors: dict[str, np.ndarray] = {}
        self._ground: Ground | None = None

    def fit(self, ground: Ground) -> None:
        """Average heads' outputs, rank the heads, sum the best ones' share of the stream."""
        self._ground = ground
        model = ground.model
        domains, texts, shuffled = self._draw(ground)
        outputs = head_outputs(model, texts)
        rows = rows_by_source(domains)
        means = {source: {layer: one[own].mean(0) for layer, one in outputs.items()} for source, own in rows.items()}
        found = [head_effects(model, text, answer, means[example.dataset]) for example, text, answer in shuffled]
        total = {head: float(np.mean([one[head] for one in found])) for head in model.heads}
        self.effects = dict(sorted(total.items(), key=lambda item: -item[1]))
        self.chosen = list(self.effects)[: self.heads]
        self.vectors = {source: function_vector(model, one, self.chosen) for source, one in means.items()}

    def _draw(self, ground: Ground) -> tuple[list[str], list[str], list[tuple[Example, str, int]]]:
        """Few-shot prompts with their data sets, and prompts with shuffled labels with their answers' tokens."""
        domains, texts, wrong = [], [], []
        for place, (name, examples) in enumerate(ground.train.items()):
            draw = generator(ground.seed * 307 + place)
            answers = answer_ids(ground.model.tokenizer, examples[0])
            for number in range(self.prompts + self.shuffled):
                query = examples[int(draw.integers(len(examples)))]
                others = [one for one in examples if one.prompt != query.prompt]
                shown = balanced(others, 2, int(draw.integers(2**31)))
                if number < self.prompts:
                    domains.append(name)
                    texts.append(few_shot(shown) + query.prompt)
                    continue
                labels = draw.permutation([one.answer for one in shown])
                mixed = [replace(one, answer=int(label)) for one, label in zip(shown, labels, strict=True)]
                wrong.append((query, few_shot(mixed) + query.prompt, answers[query.answer]))
        return domains, texts, wrong

    def answer(self, queries: Queries) -> Logits:
        """With the vector added to the last token's stream a third up the model."""
        if self._ground is None:
            raise ReadoutError(f"{self.name}: fit it first")
        model = self._ground.model
        layer = len(model.wiring.attentions) // 3

        def answer(own: Queries, source: str) -> Logits:
            vector = torch.from_numpy(self.vectors[source]).to(model.device)

            def edits(batch: Batch) -> dict[int, list]:  # type: ignore[type-arg]
                return {layer: [at_last(batch, lambda stream: stream + vector)]}

            return edited_answers(model, own, edits)

        return answer_by_source(queries, self.vectors, answer)


@torch.inference_mode()
def head_outputs(model: LanguageModel, texts: Sequence[str]) -> dict[int, Float[np.ndarray, "prompts heads dim"]]:
    """Heads' outputs (before the output projection) at the last token of each text, by layer."""
    ids = [np.array(model.tokenizer(text).input_ids, np.int64) for text in texts]
    sizes = {part.layer: (part.n_heads, part.value_dim) for part in model.wiring.attentions}
    found = {layer: np.zeros((len(ids), *size), np.float32) for layer, size in sizes.items()}
    for rows in by_length([len(one) for one in ids], 2048):
        batch = make_batch([ids[row] for row in rows], device=model.device)
        with ExitStack() as stack:
            for part in model.wiring.attentions:
                stack.enter_context(hooked(part.projection, _keeping(found[part.layer], rows, batch.last)))
            last_logits(model, batch)
    return found


def _keeping(into: np.ndarray, rows: np.ndarray, last: Tensor) -> Any:
    def keep(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        own = args[0][torch.arange(len(rows)), last.to(args[0].device)]
        into[rows] = own.float().cpu().numpy().reshape(len(rows), *into.shape[1:])

    return keep


@torch.inference_mode()
def head_effects(
    model: LanguageModel, text: str, answer: int, means: dict[int, Float[np.ndarray, "heads dim"]]
) -> dict[tuple[int, int], float]:
    """Rise of the answer's probability when one head's output at the last token is its mean, head by head.

    What comes before the last token is computed once: it does not see the change.
    """
    ids = model.tokenizer(text).input_ids
    given = cache_argument(model)
    kept = getattr(model.model(input_ids=torch.tensor([ids[:-1]], device=model.device), use_cache=True), given)

    def probability(heads: Sequence[tuple[int, int]]) -> Tensor:
        cache = copy.deepcopy(kept)
        cache.batch_repeat_interleave(max(1, len(heads)))
        token = torch.full((max(1, len(heads)), 1), ids[-1], device=model.device)
        with ExitStack() as stack:
            for part in model.wiring.attentions:
                own = [(row, head) for row, (layer, head) in enumerate(heads) if layer == part.layer]
                if own:
                    stack.enter_context(hooked(part.projection, _replacing(own, means[part.layer])))
            places = torch.full_like(token, len(ids) - 1)
            logits = model.model(input_ids=token, position_ids=places, use_cache=True, **{given: cache}).logits
        return logits[:, -1].float().softmax(-1)[:, answer]  # type: ignore[no-any-return]

    base = float(probability([])[0])
    heads = model.heads
    chunks = [probability(heads[i : i + CHUNK]) for i in range(0, len(heads), CHUNK)]
    return dict(zip(heads, (torch.cat(chunks).cpu().numpy().astype(float) - base).tolist(), strict=True))


def _replacing(own: list[tuple[int, int]], means: np.ndarray) -> Any:
    def change(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        outputs = args[0].clone()
        dim = means.shape[1]
        for row, head in own:
            outputs[row, -1, head * dim : (head + 1) * dim] = torch.from_numpy(means[head]).to(outputs)
        return ((outputs, *args[1:]), kwargs)

    return change


def function_vector(
    model: LanguageModel, means: dict[int, Float[np.ndarray, "heads dim"]], heads: Sequence[tuple[int, int]]
) -> Float[np.ndarray, " width"]:
    """Sum of heads' mean outputs, each through its own part of the output projection."""
    parts = {part.layer: part for part in model.wiring.attentions}
    total: Any = 0.0
    for layer, head in heads:
        matrix, dim = projection_matrix(parts[layer].projection).cpu().numpy(), parts[layer].value_dim
        total = total + matrix[:, head * dim : (head + 1) * dim] @ means[layer][head]
    return np.asarray(total, np.float32)
