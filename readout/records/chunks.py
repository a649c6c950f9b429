"""Chunks of a record: fixed runs of whole contexts, and what the model did on each as arrays."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from typing import Any

import numpy as np
import torch

from readout.errors import PromptError, RecordError
from readout.models.attention import Session
from readout.models.language_model import Edits, LanguageModel, Reading
from readout.models.packing import pack, packed_length
from readout.prompts import PromptDistribution, TokenizedPrompt, tokenize
from readout.records.batching import Batches, Row, first_tokens
from readout.records.options import ExtractionOptions
from readout.records.places import Place
from readout.records.schema import DIMS
from readout.records.store import RecordStore

CHUNK_PROMPTS = 32
"""Prompts a chunk, rounded up to whole contexts; a stopped run computes again what was batched with a missing one."""
LIBRARIES = ("torch", "transformers", "tokenizers", "numpy", "xarray", "zarr")


class Chunks:
    """One extraction: its prompts in chunks of whole contexts, and how a chunk becomes arrays.

    Parameters
    ----------
    model, distribution, options
        As for `readout.records.extract`, which says what is refused.
    """

    def __init__(self, model: LanguageModel, distribution: PromptDistribution, options: ExtractionOptions) -> None:
        prompts = tokenize(distribution.prompts(), model.tokenizer, distribution.label_pieces)
        self.model, self.distribution, self.prompts, self.options = model, distribution, prompts, options
        known = [part.layer for part in model.wiring.attentions]
        absent = [layer for layer in options.residual_layers if layer not in known]
        if absent:
            raise RecordError(
                f"residual_layers: {model.name} has the layers {known[0]} to {known[-1]}, asked for {absent}"
            )
        if (options.blind or options.label_residuals) and not options.residual_layers:
            raise RecordError("blind and label_residuals keep residual streams: name residual_layers too")
        longest = max(len(one.token_ids) for one in prompts)
        limit = model.context_length
        if limit is not None and longest > limit:
            raise PromptError(
                f"the longest prompt has {longest} tokens and {model.name} reads at most {limit}: ask for fewer "
                "shots or shorter texts (max_words)"
            )
        self.share = options.share_contexts and model.can_share
        self.effects = options.effects and model.wiring.final_norm is not None
        self.n_demonstrations = max(len(one.label_positions) for one in prompts)
        self.width = int(model.model.get_input_embeddings().embedding_dim)
        self.n_labels = max(len(one.label_ids) for one in prompts)
        self.class_names = sorted({name for one in prompts for name in _classes(one)})
        self.label_words = sorted({label for one in prompts for label in one.prompt.labels})
        self.residuals = list(_RESIDUALS) if options.residual_layers else []
        self.residuals += ([LABEL] if options.label_residuals else []) + (list(_BLIND) if options.blind else [])
        self.chunk_contexts = -(-CHUNK_PROMPTS // distribution.queries)
        self.chunk_prompts = self.chunk_contexts * distribution.queries
        self.batches = Batches(options.batch_tokens or first_tokens(model.device))

    def groups(self) -> list[range]:
        """Chunks that are computed together, as many as fill a batch.

        They do not depend on what is written already, so that a stopped extraction ends with the same bytes.
        """
        n_chunks = -(-len(self.prompts) // self.chunk_prompts)
        tokens = sum(_length(self.prompts, row) for row in self._rows(self.prompts))
        together = max(1, self.batches.tokens * n_chunks // tokens)
        return [range(first, min(first + together, n_chunks)) for first in range(0, n_chunks, together)]

    def size_of(self, chunk: int) -> int:
        """Prompts of a chunk; the last one may have fewer."""
        return min(self.chunk_prompts, len(self.prompts) - chunk * self.chunk_prompts)

    def store(self, place: Place | None) -> RecordStore:
        heads = np.array(self.model.heads, np.int32)
        layers = np.array(self.options.residual_layers, np.int32)
        variables = list(_ALWAYS)
        variables += ["label_effect"] if self.effects else []
        variables += self.residuals
        coordinates = {"layer": ("head", heads[:, 0]), "head_in_layer": ("head", heads[:, 1])}
        if len(layers):
            coordinates["residual_layer"] = ("residual_layer", layers)
        identity = {key: self.model.provenance.get(key) for key in ("architecture", "dtype", "fingerprint")}
        specification = {
            "distribution": json.loads(self.distribution.to_json()),
            "digest": self.distribution.digest(),
            "model": {"name": self.model.name, "device": self.model.device.type, **identity},
            "options": self.options.specified(),
        }
        provenance = {
            "model": {"name": self.model.name, **self.model.provenance},
            "options": self.options.specified() | {"batch_tokens": self.batches.tokens},
            "versions": {"python": platform.python_version(), "readout": version("readout")}
            | {name: version(name) for name in LIBRARIES},
        }
        attributes = {
            "class_names": self.class_names,
            "label_words": self.label_words,
            "distribution": self.distribution.to_json(),
            "provenance": json.dumps(provenance, sort_keys=True),
        }
        sizes = {
            "prompt": len(self.prompts),
            "head": len(heads),
            "demonstration": self.n_demonstrations,
            "label": self.n_labels,
            "context_row": len(self.prompts) // self.distribution.queries,
            "residual_layer": len(layers),
            "width": self.width,
        }
        chunk = {"prompt": self.chunk_prompts, "context_row": self.chunk_contexts}
        return RecordStore(place, sizes, chunk, specification, attributes, coordinates, tuple(variables))

    def read(self, chunks: range) -> Iterator[tuple[int, dict[str, np.ndarray]]]:
        """Each chunk with its arrays: what the prompts are, and what the model did."""
        first, size = chunks.start * self.chunk_prompts, self.chunk_prompts
        values = self._read(self.prompts[first : chunks.stop * size])
        for number, chunk in enumerate(chunks):
            own = {}
            for name, value in values.items():
                length = self.chunk_contexts if DIMS[name][0] == "context_row" else size
                own[name] = value[number * length : (number + 1) * length]
            yield chunk, own

    def _read(self, prompts: Sequence[TokenizedPrompt]) -> dict[str, np.ndarray]:
        values = self._described(prompts)
        n, n_heads = len(prompts), len(self.model.heads)
        attention = np.full((n, n_heads, self.n_demonstrations), np.nan, np.float32)
        sink = np.full((n, n_heads), np.nan, np.float32)
        logprob = np.full((n, self.n_labels), np.nan, np.float32)
        effect = np.full((n, n_heads, self.n_labels), np.nan, np.float32)
        shown, is_label = values["label_position"] >= 0, values["label_id"] >= 0
        kept = self._empty_residuals(n)

        def read(rows: Sequence[Row]) -> tuple[Reading, Reading | None]:
            return self._run(prompts, rows), self._run(prompts, rows, blind=True) if self.options.blind else None

        for rows, (reading, blind) in self.batches.run(self._rows(prompts), partial(_length, prompts), read):
            index = [number for row in rows for number in row]
            columns = _numpy(reading.attention)
            sink[index] = columns[:, :, 0]
            attention[index] = np.where(shown[index][:, None], columns[:, :, 1:], np.nan)
            logprob[index] = np.where(is_label[index], _numpy(reading.log_probabilities), np.nan)
            if reading.effects is not None:
                effect[index] = np.where(is_label[index][:, None], _numpy(reading.effects), np.nan)
            self._keep(kept, reading.residuals, rows, shown, blind=False)
            if blind is not None:
                self._keep(kept, blind.residuals, rows, shown, blind=True)
        values |= {"attention": attention, "sink": sink, "label_logprob": logprob} | kept
        if self.effects:
            values["label_effect"] = effect
        return values

    def _empty_residuals(self, n: int) -> dict[str, np.ndarray]:
        sizes = {
            "prompt": n,
            "context_row": n // self.distribution.queries,
            "residual_layer": len(self.options.residual_layers),
            "demonstration": self.n_demonstrations,
            "width": self.width,
        }
        return {name: np.full([sizes[dim] for dim in DIMS[name]], np.nan, np.float32) for name in self.residuals}

    def _keep(
        self,
        kept: dict[str, np.ndarray],
        residuals: Mapping[int, torch.Tensor],
        rows: Sequence[Sequence[int]],
        shown: np.ndarray,
        blind: bool,
    ) -> None:
        """Put one batch's residual streams (query, before each label, at each label) in their places."""
        index = [number for row in rows for number in row]
        context, k = np.array(index) // self.distribution.queries, self.n_demonstrations
        at_query, before_label = _BLIND if blind else _RESIDUALS
        here = shown[index][:, :, None]
        for place, layer in enumerate(self.options.residual_layers):
            found = _numpy(residuals[layer])
            kept[at_query][index, place] = found[:, 0]
            kept[before_label][context, place] = np.where(here, found[:, 1 : 1 + k], np.nan)
            if LABEL in kept and not blind:
                kept[LABEL][context, place] = np.where(here, found[:, 1 + k :], np.nan)

    def _rows(self, prompts: Sequence[TokenizedPrompt]) -> list[Row]:
        """Prompts that are packed together, by their numbers."""
        step = self.distribution.queries if self.share else 1
        return [list(range(start, start + step)) for start in range(0, len(prompts), step)]

    def _run(self, prompts: Sequence[TokenizedPrompt], rows: Sequence[Sequence[int]], blind: bool = False) -> Reading:
        batch = pack([[prompts[number].token_ids for number in row] for row in rows])
        firsts = [prompts[row[0]] for row in rows]
        columns = np.stack([np.r_[0, _padded(one.label_positions, self.n_demonstrations, 0)] for one in firsts])
        labels = columns[:, 1:]
        cues = np.stack([np.r_[-1, _padded(one.cue_positions, self.n_demonstrations, 0)] for one in firsts])
        candidates = np.stack([_padded(prompts[number].label_ids, self.n_labels, 0) for row in rows for number in row])
        watched = np.hstack([cues, labels]) if self.options.label_residuals and not blind else cues
        residuals = {layer: torch.from_numpy(watched) for layer in self.options.residual_layers}
        ids = torch.from_numpy(candidates)
        if blind:
            edit = BlindToLabels(torch.from_numpy(labels))
            edits = Edits(scores={part.layer: (edit,) for part in self.model.wiring.attentions})
            return self.model.run(batch, ids, residuals=residuals, edits=edits)
        return self.model.run(batch, ids, torch.from_numpy(columns), self.effects, residuals)

    def _described(self, prompts: Sequence[TokenizedPrompt]) -> dict[str, np.ndarray]:
        class_index = {name: number for number, name in enumerate(self.class_names)}
        word_index = {word: number for number, word in enumerate(self.label_words)}
        k, n_labels = self.n_demonstrations, self.n_labels

        def stacked(rows: list[Any], width: int, dtype: type = np.int32) -> np.ndarray:
            return np.stack([_padded(np.array(row, dtype), width, -1) for row in rows])

        asked = [one.prompt for one in prompts]
        return {
            "demonstration_class": stacked([[class_index[d.class_name] for d in p.demonstrations] for p in asked], k),
            "demonstration_label": stacked([one.demonstration_labels for one in prompts], k),
            "query_class": np.array([class_index[p.query_class] for p in asked], np.int32),
            "query_label": np.array([_right_label(p) for p in asked], np.int32),
            "label_class": stacked([[class_index[name] for name in p.label_classes] for p in asked], n_labels),
            "label_id": stacked([one.label_ids for one in prompts], n_labels, np.int64),
            "label_word": stacked([[word_index[label] for label in p.labels] for p in asked], n_labels),
            "context": np.array([p.context for p in asked], np.int32),
            "n_tokens": np.array([len(one.token_ids) for one in prompts], np.int32),
            "label_position": stacked([one.label_positions for one in prompts], k),
        }


class BlindToLabels:
    """A score edit: no token attends to a label before it, so that nothing after a label is made of the label.

    Parameters
    ----------
    labels : int64 [rows, demonstrations]
        Positions of the labels; padding is 0, the first token, which is never blocked.
    """

    def __init__(self, labels: torch.Tensor) -> None:
        self.labels = labels

    def __call__(self, scores: torch.Tensor, at: torch.Tensor, session: Session) -> torch.Tensor:
        """Scores with the edges to labels cut, but for a label's own."""
        tokens = torch.arange(scores.shape[-1], device=scores.device)
        is_label = torch.zeros(len(scores), len(tokens), dtype=torch.bool, device=scores.device)
        is_label.scatter_(1, self.labels.to(scores.device), True)
        is_label[:, 0] = False
        cut = is_label[:, None, :] & (tokens != at[:, :, None])
        return scores.masked_fill(cut[:, None], -torch.inf)


LABEL = "label_residual"
_RESIDUALS = ("query_residual", "demonstration_residual")
_BLIND = ("blind_query_residual", "blind_demonstration_residual")
_ALWAYS = (
    "attention",
    "sink",
    "label_logprob",
    "demonstration_class",
    "demonstration_label",
    "query_class",
    "query_label",
    "label_class",
    "label_id",
    "label_word",
    "context",
    "n_tokens",
    "label_position",
)


def _length(prompts: Sequence[TokenizedPrompt], row: Row) -> int:
    return packed_length([prompts[number].token_ids for number in row])


def _classes(one: TokenizedPrompt) -> list[str]:
    prompt = one.prompt
    return [prompt.query_class, *prompt.label_classes, *(shown.class_name for shown in prompt.demonstrations)]


def _right_label(prompt: Any) -> int:
    return prompt.label_classes.index(prompt.query_class) if prompt.query_class in prompt.label_classes else -1


def _padded(values: np.ndarray, width: int, fill: int) -> np.ndarray:
    return np.pad(values, (0, width - len(values)), constant_values=fill)


def _numpy(tensor: torch.Tensor | None) -> np.ndarray:
    assert tensor is not None
    return tensor.float().cpu().numpy()
