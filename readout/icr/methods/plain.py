"""Zero-shot and few-shot: the model as it is."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from readout.errors import ReadoutError
from readout.icr.examples import Example, balanced, few_shot
from readout.icr.methods.base import Ground, Logits, by_domain
from readout.icr.passes import by_length, last_logits, make_batch, unembedding_last
from readout.icr.queries import Queries
from readout.icr.training import answers_of
from readout.models import LanguageModel

OTHERS = 3
"""Demonstrations of each in-domain set in the prompt for a set that has none of its own (the paper's protocol)."""


class ZeroShot:
    """The template only."""

    name = "zero-shot"

    def fit(self, ground: Ground) -> None:
        """Nothing to learn."""

    def answer(self, queries: Queries) -> Logits:
        """As read."""
        return queries.zero_shot


class FewShot:
    """Demonstrations before the query: of its own data set, or a few of each in-domain set where it has none.

    Parameters
    ----------
    max_tokens : int
        Demonstrations are left out until their text is no longer.
    """

    name = "few-shot"

    def __init__(self, max_tokens: int = 2048) -> None:
        self.max_tokens = max_tokens
        self._ground: Ground | None = None
        self._texts: dict[str, str] = {}

    def fit(self, ground: Ground) -> None:
        """Draw the demonstrations."""
        self._ground = ground
        mixed: list[Example] = []
        for place, (name, examples) in enumerate(ground.train.items()):
            shown = balanced(examples, ground.shots, ground.seed * 101 + place)
            self._texts[name] = self._short(shown, ground)
            mixed += balanced(examples, 1, ground.seed * 103 + place)[:OTHERS]
        order = np.random.Generator(np.random.PCG64(ground.seed)).permutation(len(mixed))
        self._texts[""] = self._short([mixed[i] for i in order], ground)

    def _short(self, shown: Sequence[Example], ground: Ground) -> str:
        while len(ground.model.tokenizer(few_shot(shown)).input_ids) > self.max_tokens:
            shown = shown[1:]
        return few_shot(shown)

    def text(self, name: str) -> str:
        """What stands before a data set's queries."""
        return self._texts.get(name, self._texts[""])

    @torch.inference_mode()
    def answer(self, queries: Queries) -> Logits:
        """With the demonstrations' keys and values computed once a data set."""
        if self._ground is None:
            raise ReadoutError("few-shot: fit it first")
        model = self._ground.model
        found = np.full(queries.options.shape, np.nan, np.float32)
        for name, rows in by_domain(queries).items():
            prefix = self.text(name)
            ids = model.tokenizer(prefix).input_ids
            whole = [model.tokenizer(prefix + queries.examples[row].prompt).input_ids for row in rows]
            shares = all(one[: len(ids)] == ids for one in whole)
            found[rows] = (
                answers_after(model, ids, [np.array(one[len(ids) :], np.int64) for one in whole], queries.options[rows])
                if shares
                else _whole(model, whole, queries.options[rows])
            )
        return found


def _whole(model: LanguageModel, prompts: Sequence[Sequence[int]], options: np.ndarray) -> np.ndarray:
    """Where a tokenizer joins the demonstrations with what follows: each prompt on its own."""
    found = np.full(options.shape, np.nan, np.float32)
    for row, ids in enumerate(prompts):
        batch = make_batch([np.array(ids, np.int64)], device=model.device)
        found[[row]] = answers_of(last_logits(model, batch), options[[row]])
    return found


def answers_after(
    model: LanguageModel,
    prefix: Sequence[int],
    endings: Sequence[np.ndarray],
    options: np.ndarray,
    batch_tokens: int = 512,
) -> np.ndarray:
    """Logits of answers after prompts that all begin alike; the beginning is computed once.

    Parameters
    ----------
    model : LanguageModel
    prefix : sequence of int
        The beginning.
    endings : sequence of int64 [tokens]
        What follows it.
    options : int64 [prompts, answers]
        Tokens of the answers, -1 where there is none.
    batch_tokens : int
        Most tokens of endings in a batch.
    """
    given = cache_argument(model)
    first = torch.tensor([list(prefix)], device=model.device)
    # only the cache is wanted: the head need not unembed the whole beginning
    kept = getattr(model.model(input_ids=first, use_cache=True, logits_to_keep=1), given)
    found = np.full(options.shape, np.nan, np.float32)
    for rows in by_length([len(one) for one in endings], batch_tokens):
        batch = make_batch([endings[row] for row in rows], device=model.device)
        cache = copy.deepcopy(kept)
        cache.batch_repeat_interleave(len(rows))
        places = len(prefix) + torch.arange(batch.token_ids.shape[1], device=model.device).expand(len(rows), -1)
        asked: Mapping[str, Any] = {given: cache}
        with unembedding_last(model, batch.last):
            logits = model.model(input_ids=batch.token_ids, position_ids=places, use_cache=True, **asked).logits
        found[rows] = answers_of(logits[:, 0], options[rows])
    return found


def cache_argument(model: LanguageModel) -> str:
    """How this version of transformers calls the keys and values of past tokens."""
    return "cache" if "cache" in inspect.signature(type(model.model).forward).parameters else "past_key_values"
