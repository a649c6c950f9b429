"""What a router reads of a query: a frozen encoder's embedding, or what stands in for it in a control."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int

from readout.errors import ReadoutError
from readout.matching.encoder import BATCH, encoder_folder
from readout.models import LanguageModel
from readout.statistics import generator

Features = Float[np.ndarray, "texts width"]
Encode = Callable[[Sequence[str]], Features]
ENCODERS = ("minilm", "own", "random")
ROUTERS = ("query", "constant", "centroid", "shuffled")
RANDOM_WIDTH = 384


def make_encoder(name: str, model: LanguageModel, seed: int = 0) -> Encode:
    """A frozen encoder by name.

    Parameters
    ----------
    name : str
        "minilm" (all-MiniLM-L6-v2, mean-pooled), a folder of a sentence encoder, "own" (mean of the model's input
        embeddings), or "random" (a vector that depends on the text and tells nothing of it).
    model : LanguageModel
        For "own".
    seed : int
        For "random".
    """
    if name == "own":
        return lambda texts: own_embedding(model, texts)
    if name == "random":
        return lambda texts: random_vectors(texts, RANDOM_WIDTH, seed)
    return SentenceEncoder(str(encoder_folder("" if name == "minilm" else name)))


class SentenceEncoder:
    """A sentence encoder that stays loaded and keeps what it has encoded: the mean over a text's tokens.

    Parameters
    ----------
    folder : str
        As transformers writes it.
    """

    def __init__(self, folder: str) -> None:
        from transformers import AutoModel, AutoTokenizer

        self.tokenizer: Any = AutoTokenizer.from_pretrained(folder)
        self.model: Any = AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
        self._known: dict[str, np.ndarray] = {}

    def __call__(self, texts: Sequence[str]) -> Features:
        """Embeddings [texts, width]."""
        new = sorted({text for text in texts if text not in self._known}, key=len)
        for start in range(0, len(new), BATCH):
            some = new[start : start + BATCH]
            batch = self.tokenizer(some, padding=True, truncation=True, return_tensors="pt")
            with torch.inference_mode():
                hidden = self.model(**batch).last_hidden_state
            weight = batch["attention_mask"][..., None].float()
            means = ((hidden * weight).sum(1) / weight.sum(1)).double().numpy()
            self._known |= dict(zip(some, means, strict=True))
        return np.stack([self._known[text] for text in texts])


@torch.inference_mode()
def own_embedding(model: LanguageModel, texts: Sequence[str]) -> Features:
    """Mean over a text's tokens of the model's own input embeddings."""
    table = model.model.get_input_embeddings()
    found = []
    for text in texts:
        ids = torch.tensor(model.tokenizer(text).input_ids, device=model.device)
        found.append(table(ids).float().mean(0).cpu().numpy())
    return np.stack(found).astype(np.float64)


def random_vectors(texts: Sequence[str], width: int, seed: int) -> Features:
    """A Gaussian vector for each text, the same for the same text."""
    found = []
    for text in texts:
        number = int.from_bytes(hashlib.sha256(f"{seed}:{text}".encode()).digest()[:6], "big")
        found.append(generator(number).standard_normal(width))
    return np.stack(found)


@dataclass(frozen=True, eq=False)
class Reader:
    """What a router is given for queries: its kind decides how much of the query is left in it.

    Parameters
    ----------
    encode : callable
        Texts to embeddings.
    kind : str
        "query" (its embedding), "constant" (nothing), "centroid" (the mean embedding of the training domain nearest to
        it), "shuffled" (the embedding of another query of the same data set).
    centroids : float [domains, width]
        Of the training queries; for "centroid", and for the distance to the training domains.
    seed : int
        Seed of the shuffle.
    names : tuple of str
        The domains.
    """

    encode: Encode
    kind: str
    centroids: Float[np.ndarray, "domains width"]
    seed: int = 0
    names: tuple[str, ...] = ()

    @classmethod
    def fit(cls, encode: Encode, kind: str, texts: Sequence[str], domains: Sequence[str], seed: int = 0) -> Reader:
        """A reader that knows the training domains.

        Raises
        ------
        ReadoutError
            If the kind is unknown.
        """
        if kind not in ROUTERS:
            raise ReadoutError(f"router {kind!r}: expected one of {', '.join(ROUTERS)}")
        vectors = unit(encode(texts))
        names = sorted(set(domains))
        own = np.array(domains)
        return cls(encode, kind, unit(np.stack([vectors[own == name].mean(0) for name in names])), seed, tuple(names))

    @property
    def width(self) -> int:
        """Numbers that the router gets."""
        return 1 if self.kind == "constant" else self.centroids.shape[1]

    def __call__(self, texts: Sequence[str], domains: Sequence[str]) -> Float[np.ndarray, "texts width"]:
        """The router's inputs [texts, width], of mean square 1, float32."""
        if self.kind == "constant":
            return np.ones((len(texts), 1), np.float32)
        vectors = unit(self.encode(texts))
        if self.kind == "centroid":
            vectors = np.asarray(self.centroids[self.nearest(texts)])
        elif self.kind == "shuffled":
            vectors = vectors[_derangement(domains, self.seed)]
        return np.asarray(vectors * vectors.shape[1] ** 0.5, np.float32)

    def nearness(self, texts: Sequence[str]) -> Float[np.ndarray, " texts"]:
        """Cosine to the nearest training domain's centroid."""
        return np.asarray((unit(self.encode(texts)) @ self.centroids.T).max(1))

    def nearest(self, texts: Sequence[str]) -> Int[np.ndarray, " texts"]:
        """The number of the training domain whose centroid is nearest."""
        return np.asarray((unit(self.encode(texts)) @ self.centroids.T).argmax(1))


def unit(vectors: Float[np.ndarray, "n width"]) -> Float[np.ndarray, "n width"]:
    """Vectors of length 1."""
    return np.asarray(vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12))


def _derangement(domains: Sequence[str], seed: int) -> np.ndarray:
    """Each query's place is taken by another of its data set (a random cycle, so none keeps its own)."""
    index = np.arange(len(domains))
    draw = generator(seed)
    for name in sorted(set(domains)):
        own = draw.permutation(np.flatnonzero(np.array(domains) == name))
        index[own] = np.roll(own, 1)
    return index
