"""Packing prompts that share a context into one row, so that the context is computed once.

A row holds the tokens that the prompts of a context have in common (segment 0), then the remaining tokens of each
prompt as a branch of its own (segments 1, 2, ...). A token sees the tokens of segment 0 and of its own segment that
are not later than itself, by *logical* position: the place that the token has in its own prompt. One pass over
``len(common) + sum(len(branch))`` tokens then equals one pass a prompt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

PADDING = -1


@dataclass(frozen=True)
class PackedBatch:
    """Rows of packed contexts, padded on the right to one length.

    Attributes
    ----------
    token_ids : int64 [rows, tokens]
    positions : int64 [rows, tokens]
        Place of each token in its own prompt, from 0.
    segments : int64 [rows, tokens]
        0 for tokens that all prompts of the row share, 1, 2, ... for the branches, -1 for padding.
    queries : int64 [rows, queries]
        Index in the row of each prompt's last token; padded with 0.
    is_query : bool [rows, queries]
        Which entries of ``queries`` are prompts. Prompts are in the order of ``queries[is_query]``.
    causal_rows : int
        Leading tokens that are plain causal in every row (the shortest shared part).
    """

    token_ids: Int[Tensor, "rows tokens"]
    positions: Int[Tensor, "rows tokens"]
    segments: Int[Tensor, "rows tokens"]
    queries: Int[Tensor, "rows queries"]
    is_query: Bool[Tensor, "rows queries"]
    causal_rows: int

    @property
    def n_prompts(self) -> int:
        return int(self.is_query.sum())

    def to(self, device: torch.device | str) -> PackedBatch:
        """The same batch on another device."""
        return PackedBatch(
            self.token_ids.to(device),
            self.positions.to(device),
            self.segments.to(device),
            self.queries.to(device),
            self.is_query.to(device),
            self.causal_rows,
        )


def shared_length(prompts: Sequence[np.ndarray]) -> int:
    """Length of the longest common beginning that leaves at least one token of each prompt to itself."""
    if len(prompts) == 1:
        return len(prompts[0])
    shortest = min(len(prompt) for prompt in prompts)
    stacked = np.stack([prompt[: shortest - 1] for prompt in prompts])
    differs = (stacked != stacked[0]).any(axis=0)
    return int(differs.argmax()) if differs.any() else shortest - 1


def packed_length(prompts: Sequence[np.ndarray]) -> int:
    """Tokens that the row of these prompts will hold."""
    shared = shared_length(prompts)
    return shared + sum(len(prompt) - shared for prompt in prompts)


def pack(contexts: Sequence[Sequence[np.ndarray]], pad_id: int = 0) -> PackedBatch:
    """Pack contexts, each a list of prompts that begin alike, into one batch.

    Parameters
    ----------
    contexts : per row, the token ids of its prompts (int64 [tokens] each, the last token being the query position)
    pad_id : token id to pad with; its value changes nothing

    Returns
    -------
    PackedBatch with one row a context
    """
    lengths = [packed_length(prompts) for prompts in contexts]
    width, most = max(lengths), max(len(prompts) for prompts in contexts)
    token_ids = np.full((len(contexts), width), pad_id, np.int64)
    positions = np.zeros((len(contexts), width), np.int64)
    segments = np.full((len(contexts), width), PADDING, np.int64)
    queries = np.zeros((len(contexts), most), np.int64)
    is_query = np.zeros((len(contexts), most), bool)
    causal_rows = width
    for row, prompts in enumerate(contexts):
        shared = shared_length(prompts)
        causal_rows = min(causal_rows, shared)
        token_ids[row, :shared], positions[row, :shared] = prompts[0][:shared], np.arange(shared)
        segments[row, :shared] = 0
        start = shared
        for branch, prompt in enumerate(prompts):
            stop = start + len(prompt) - shared
            token_ids[row, start:stop] = prompt[shared:]
            positions[row, start:stop] = np.arange(shared, len(prompt))
            segments[row, start:stop] = branch + 1
            queries[row, branch], is_query[row, branch] = stop - 1, True
            start = stop
    return PackedBatch(
        torch.from_numpy(token_ids),
        torch.from_numpy(positions),
        torch.from_numpy(segments),
        torch.from_numpy(queries),
        torch.from_numpy(is_query),
        causal_rows,
    )
