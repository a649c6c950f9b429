"""Queries that a model has read once: their tokens, answers, zero-shot result, and what enters the first routed layer.

Layers below the routed ones never change, so they are computed once a query and kept in a file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from safetensors.numpy import load_file, save_file
from tqdm import tqdm

from readout.errors import PromptError
from readout.files import writable_file
from readout.icr.examples import Example, digest
from readout.icr.passes import Batch, by_length, last_logits, make_batch
from readout.models import LanguageModel

BATCH_TOKENS = 1024


def answer_ids(tokenizer: Any, example: Example) -> list[int]:
    """The token of each answer, as it follows the prompt after a space.

    Raises
    ------
    PromptError
        If an answer is several tokens, merges with the prompt, or two share a token.
    """
    alone = tokenizer(example.prompt).input_ids
    found = []
    for option in example.options:
        both = tokenizer(f"{example.prompt} {option}").input_ids
        if both[: len(alone)] != alone or len(both) != len(alone) + 1:
            raise PromptError(
                f"{example.dataset}: the answer {option!r} is {len(both) - len(alone)} tokens after the prompt for "
                "this tokenizer, expected one: choose another model or data set"
            )
        found.append(both[-1])
    if len(set(found)) != len(found):
        raise PromptError(f"{example.dataset}: two of the answers {', '.join(example.options)} share a token")
    return found


@dataclass(frozen=True, eq=False)
class Queries:
    """Examples and what the model makes of them at zero shot.

    Attributes
    ----------
    examples : tuple of Example
    token_ids : tuple of int64 [tokens]
    options : int64 [queries, answers]
        Tokens of the answers, padded with -1.
    answers : int64 [queries]
    zero_shot : float32 [queries, answers]
        Logits of the answers at zero shot, NaN where padded.
    entropy : float32 [queries]
        Entropy of the zero-shot distribution over the whole vocabulary, nats.
    hidden : tuple of float32 [tokens, width]
        What enters ``layer``; () for passes from the tokens on.
    layer : int
    """

    examples: tuple[Example, ...]
    token_ids: tuple[Int[np.ndarray, " tokens"], ...]
    options: Int[np.ndarray, "queries answers"]
    answers: Int[np.ndarray, " queries"]
    zero_shot: Float[np.ndarray, "queries answers"]
    entropy: Float[np.ndarray, " queries"]
    hidden: tuple[Float[np.ndarray, "tokens width"], ...]
    layer: int

    def __len__(self) -> int:
        return len(self.examples)

    @property
    def texts(self) -> list[str]:
        """What an encoder reads."""
        return [one.text for one in self.examples]

    @property
    def domains(self) -> list[str]:
        """The data set of each."""
        return [one.dataset for one in self.examples]

    def batch(self, rows: Sequence[int] | np.ndarray, model: LanguageModel) -> Batch:
        """Some of them, ready for a pass from ``layer``."""
        chosen = [int(row) for row in rows]
        hidden = [self.hidden[row] for row in chosen] if self.hidden else None
        return make_batch([self.token_ids[row] for row in chosen], hidden, self.layer, model.device)

    def batches(self, batch_tokens: int = BATCH_TOKENS) -> list[np.ndarray]:
        """Numbers of queries, batch by batch, alike in length."""
        return by_length([len(one) for one in self.token_ids], batch_tokens)

    def of(self, rows: Sequence[int] | np.ndarray) -> Queries:
        """Some of them."""
        chosen = [int(row) for row in rows]
        return Queries(
            tuple(self.examples[row] for row in chosen),
            tuple(self.token_ids[row] for row in chosen),
            self.options[chosen],
            self.answers[chosen],
            self.zero_shot[chosen],
            self.entropy[chosen],
            tuple(self.hidden[row] for row in chosen) if self.hidden else (),
            self.layer,
        )

    def from_the_start(self) -> Queries:
        """The same, whose passes start at the tokens: for changes below the layer that they were read up to."""
        return replace(self, hidden=(), layer=0)


def read_queries(
    model: LanguageModel,
    examples: Sequence[Example],
    layer: int,
    cache: Path | None = None,
    *,
    batch_tokens: int = BATCH_TOKENS,
    progress: bool = False,
) -> Queries:
    """Let the model read examples at zero shot, or take what it read from the cache.

    Parameters
    ----------
    model : LanguageModel
    examples : sequence of Example
    layer : int
        The first routed layer.
    cache : Path, optional
        Folder for what is read; a file there is used only if model, layer and examples are the same.
    batch_tokens : int
        Most tokens of a batch, padding included.
    progress : bool
        Whether to show a bar.
    """
    if not examples:
        raise PromptError("there are no examples to read: give at least one")
    token_ids = [np.array(model.tokenizer(one.prompt).input_ids, np.int64) for one in examples]
    width = max(len(one.options) for one in examples)
    options = np.full((len(examples), width), -1, np.int64)
    known: dict[tuple[str, int], list[int]] = {}
    for row, one in enumerate(examples):
        key = (one.dataset, len(one.options))
        if key not in known:
            known[key] = answer_ids(model.tokenizer, one)
        options[row, : len(one.options)] = known[key]
    path = None if cache is None else cache / f"queries-{_key(model, examples, layer)}.safetensors"
    if path is not None and path.exists():
        kept = load_file(path)
    else:
        kept = _read(model, token_ids, options, layer, batch_tokens, progress)
        if path is not None:
            scratch = writable_file(path).with_suffix(".partial")
            save_file(kept, scratch)
            scratch.replace(path)
    ends = np.cumsum([len(one) for one in token_ids])[:-1]
    return Queries(
        tuple(examples),
        tuple(token_ids),
        options,
        np.array([one.answer for one in examples]),
        np.where(options < 0, np.nan, kept["zero_shot"]).astype(np.float32),
        kept["entropy"],
        tuple(np.split(kept["hidden"], ends)),
        layer,
    )


def _key(model: LanguageModel, examples: Sequence[Example], layer: int) -> str:
    own = [model.name, model.provenance.get("fingerprint"), str(model.dtype), layer, digest(examples)]
    return hashlib.sha256(json.dumps(own).encode()).hexdigest()[:16]


@torch.inference_mode()
def _read(
    model: LanguageModel,
    token_ids: Sequence[np.ndarray],
    options: np.ndarray,
    layer: int,
    batch_tokens: int,
    progress: bool,
) -> dict[str, np.ndarray]:
    zero_shot = np.zeros(options.shape, np.float32)
    entropy = np.zeros(len(token_ids), np.float32)
    hidden: list[np.ndarray] = [np.zeros(0)] * len(token_ids)
    batches = by_length([len(one) for one in token_ids], batch_tokens)
    for rows in tqdm(batches, desc="read queries", unit="batch", disable=not progress):
        stream: dict[int, torch.Tensor] = {layer: torch.empty(0)}
        logits = last_logits(model, make_batch([token_ids[row] for row in rows], device=model.device), keep=stream)
        log_p = logits.log_softmax(-1)
        entropy[rows] = -(log_p.exp() * log_p).sum(-1).cpu().numpy()
        index = torch.from_numpy(np.maximum(options[rows], 0)).to(logits.device)
        zero_shot[rows] = logits.gather(1, index).cpu().numpy()
        for place, row in enumerate(rows.tolist()):
            hidden[row] = stream[layer][place, : len(token_ids[row])].float().cpu().numpy()
    return {"zero_shot": zero_shot, "entropy": entropy, "hidden": np.concatenate(hidden)}


def join(parts: Sequence[Queries]) -> Queries:
    """Several lists of queries as one; answers are padded to the widest.

    Raises
    ------
    PromptError
        If they start at different layers.
    """
    if len({one.layer for one in parts}) != 1:
        raise PromptError("queries can be joined only where they were read up to the same layer")
    width = max(one.options.shape[1] for one in parts)

    def wide(values: np.ndarray, fill: float) -> np.ndarray:
        return np.pad(values, [(0, 0), (0, width - values.shape[1])], constant_values=fill)

    return Queries(
        tuple(example for one in parts for example in one.examples),
        tuple(ids for one in parts for ids in one.token_ids),
        np.concatenate([wide(one.options, -1) for one in parts]),
        np.concatenate([one.answers for one in parts]),
        np.concatenate([wide(one.zero_shot, np.nan) for one in parts]),
        np.concatenate([one.entropy for one in parts]),
        tuple(hidden for one in parts for hidden in one.hidden),
        parts[0].layer,
    )
