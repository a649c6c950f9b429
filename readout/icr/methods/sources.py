"""Vectors of one source each: a training set's own for its queries, the pooled one for data sets never trained on."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from readout.icr.examples import Example, balanced, few_shot
from readout.icr.methods.base import Ground, Logits, by_domain
from readout.icr.passes import Batch, last_logits
from readout.icr.queries import Queries
from readout.icr.training import answers_of
from readout.models import LanguageModel

POOLED = ""
"""Name of the source that holds all training sets."""
BATCH_TOKENS = 1024

Edits = Mapping[int, Sequence[Callable[[Tensor], Tensor]]]


def rows_by_source(domains: Sequence[str]) -> dict[str, np.ndarray]:
    """Numbers of the rows of each source."""
    names = np.array(domains)
    own = {name: np.flatnonzero(names == name) for name in dict.fromkeys(domains)}
    return {POOLED: np.arange(len(names)), **own}


def answer_by_source(queries: Queries, known: Collection[str], answer: Callable[[Queries, str], Logits]) -> Logits:
    """Answer each data set's queries with its own source where there is one, else with the pooled one."""
    found = np.full(queries.options.shape, np.nan, np.float32)
    for name, rows in by_domain(queries).items():
        found[rows] = answer(queries.of(rows), name if name in known else POOLED)
    return found


@torch.inference_mode()
def edited_answers(model: LanguageModel, queries: Queries, edits: Callable[[Batch], Edits]) -> Logits:
    """Logits of the answers with the residual stream edited.

    Parameters
    ----------
    model : LanguageModel
    queries : Queries
        Passes start where they were read up to, or at the tokens if an edit is below that.
    edits : callable
        Edits of a batch, by the layer that the stream enters; the same layers for every batch.
    """
    if queries.hidden and min(edits(queries.batch([0], model)), default=queries.layer) < queries.layer:
        queries = queries.from_the_start()
    found = np.full(queries.options.shape, np.nan, np.float32)
    for rows in queries.batches(BATCH_TOKENS):
        batch = queries.batch(rows, model)
        found[rows] = answers_of(last_logits(model, batch, edits(batch)), queries.options[rows])
    return found


def at_last(batch: Batch, change: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Edit of the stream at each row's last token only; ``change`` maps [rows, width] to the same."""

    def edit(hidden: Tensor) -> Tensor:
        rows = torch.arange(len(batch.last), device=hidden.device)
        last = batch.last.to(hidden.device)
        hidden = hidden.clone()
        hidden[rows, last] = change(hidden[rows, last]).to(hidden.dtype)
        return hidden

    return edit


def few_of_each(queries: Queries, each: int) -> Queries:
    """The first queries of each data set."""
    return queries.of(np.concatenate([rows[:each] for rows in by_domain(queries).values()]))


def shown_examples(ground: Ground, each: int) -> list[Example]:
    """Demonstrations of every training set, ``each`` of every answer."""
    return [
        one for place, own in enumerate(ground.train.values()) for one in balanced(own, each, ground.seed * 211 + place)
    ]


def told(example: Example) -> str:
    """A demonstration: its prompt and its answer, nothing after it."""
    return few_shot([example]).removesuffix("\n")
