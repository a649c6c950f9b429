"""A reader's own query-key form, of class means: how well the mean query of a class fits the mean key of another."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from jaxtyping import Float, Int

from readout.errors import FitError
from readout.matching.logistic import fit_logistic, logistic
from readout.matching.similarity import Similarity, class_match, shown
from readout.statistics.checks import fields_of, reading

if TYPE_CHECKING:
    import torch
    import xarray

    from readout.models import LanguageModel

Vectors = tuple[Float[np.ndarray, "n d"], Float[np.ndarray, "c k d"]]


@dataclass(frozen=True, eq=False)
class KeyQueryMeans(Similarity):
    """s = sigmoid(u + v q . k / sqrt(d)), q the mean query of the query's class, k the mean key of the demonstration's.

    Queries and keys are one head's, made from the residual streams that enter its layer at the query and at the labels;
    both are turned by the rotary embedding at their true positions. Means are over the record's other contexts, so that
    the very edge whose attention is predicted has no part in them, and the classes need not be those of the fitting
    record. The classes of all demonstrations and queries are used, as the binary match uses them.

    Parameters
    ----------
    model
        Name or folder of the model whose weights are used.
    layer, head
        The reader.
    constants
        u and v, fitted to class match; () before `fit`.
    loaded
        The model, where it is loaded already.
    """

    name: ClassVar[str] = "key_query_means"
    model: str
    layer: int
    head: int
    constants: tuple[float, ...] = ()
    loaded: LanguageModel | None = field(default=None, repr=False)

    def fit(self, record: xarray.Dataset) -> KeyQueryMeans:
        """u and v of this record.

        Raises
        ------
        FitError
            When the record lacks the residual streams at the labels, or all demonstrations match, or none.
        """
        here = shown(record)
        constants = fit_logistic(self.scores(record)[here][:, None], class_match(record)[here])
        return replace(self, constants=tuple(float(value) for value in constants))

    def scores(self, record: xarray.Dataset) -> Float[np.ndarray, "n k"]:
        """Scores [n, k] of the class means, 0 where there is no demonstration."""
        queries, keys = self.vectors(record)
        n, row = len(queries), _row(record)
        classes = record["demonstration_class"].values
        there = shown(record)
        mean_query = _means_of_others(queries, record["query_class"].values, row)
        first = np.searchsorted(row, np.arange(len(keys)))
        by_context = np.repeat(np.arange(len(keys)), classes.shape[1])
        kept = there[first].ravel()
        mean_key = np.zeros((len(keys) * classes.shape[1], keys.shape[2]))
        mean_key[kept] = _means_of_others(
            keys.reshape(len(mean_key), -1)[kept], classes[first].ravel()[kept], by_context[kept]
        )
        score = self.turned_scores(record, mean_query, mean_key.reshape(keys.shape)[row])
        return np.where(there, score, 0.0).reshape(n, -1)

    def vectors(self, record: xarray.Dataset) -> Vectors:
        """The head's queries [n, d] and its keys at the labels [c, k, d], before the rotary embedding."""
        lacking = [name for name in ("label_residual", "query_residual") if name not in record]
        if lacking or self.layer not in record["residual_layer"].values:
            raise FitError(
                f"match: the residual streams entering layer {self.layer} at query and labels are needed; extract the "
                f"record with --residual-layers {self.layer} --label-residuals"
            )
        query, label = (
            record[name].sel(residual_layer=self.layer).values for name in ("query_residual", "label_residual")
        )
        return _project(self._model(), self.layer, self.head, query, np.nan_to_num(label))

    def turned_scores(
        self, record: xarray.Dataset, query: Float[np.ndarray, "n d"], key: Float[np.ndarray, "n k d"]
    ) -> Float[np.ndarray, "n k"]:
        """Scores of queries and keys that are turned at the record's positions [n, k]."""
        model = self._model()
        at_query = record["n_tokens"].values - 1
        cos, sin = _turns(model, int(at_query.max()) + 1)
        at_label = np.maximum(record["label_position"].values, 0)
        one = _turned(query, cos[at_query], sin[at_query])
        two = _turned(key, cos[at_label], sin[at_label])
        scaling = float(_attention(model, self.layer).scaling)
        scores: np.ndarray = np.einsum("nd,nkd->nk", one, two) * scaling
        return scores

    def _model(self) -> LanguageModel:
        return self.loaded or _load(self.model)

    def __call__(self, record: xarray.Dataset) -> Float[np.ndarray, "n k"]:
        """The similarity [n, k]."""
        if len(self.constants) != 2:
            raise FitError("match: the class means' scores have no constants yet; fit them to the fitting record first")
        scores = self.scores(record)
        similarity = logistic(scores.reshape(-1, 1), np.array(self.constants)).reshape(scores.shape)
        return np.where(shown(record), similarity, 0.0)

    def describe(self) -> str:
        """In a few words."""
        return f"query-key scores of class means, L{self.layer}H{self.head}"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON; the weights stay with the model."""
        kept = {"model": self.model, "layer": self.layer, "head": self.head, "constants": list(self.constants)}
        return {"similarity": self.name, **kept}

    @classmethod
    def _read(cls, data: dict[str, Any]) -> KeyQueryMeans:
        fields_of(data, [f.name for f in fields(cls) if f.name != "loaded"], "match")
        with reading("match"):
            constants = tuple(float(value) for value in data["constants"])
            return cls(str(data["model"]), int(data["layer"]), int(data["head"]), constants)


def _row(record: xarray.Dataset) -> Int[np.ndarray, " n"]:
    """The context row of each prompt."""
    n, contexts = record.sizes["prompt"], record.sizes["context_row"]
    return np.arange(n) // (n // contexts)


def _means_of_others(
    vectors: Float[np.ndarray, "m d"], classes: Int[np.ndarray, " m"], contexts: Int[np.ndarray, " m"]
) -> Float[np.ndarray, "m d"]:
    """For each row, the mean vector of its class over the rows of other contexts; of all classes where it has none."""
    found = np.empty_like(vectors)
    total, count = vectors.sum(axis=0), len(vectors)
    for one in np.unique(classes):
        own = np.flatnonzero(classes == one)
        of_class = vectors[own].sum(axis=0)
        for context in np.unique(contexts[own]):
            here = own[contexts[own] == context]
            others = len(own) - len(here)
            if others:
                found[here] = (of_class - vectors[here].sum(axis=0)) / others
            else:
                all_here = contexts == context
                found[here] = (total - vectors[all_here].sum(axis=0)) / max(count - all_here.sum(), 1)
    return found


@lru_cache(maxsize=2)
def _load(name: str) -> LanguageModel:
    from readout.models import load_model

    return load_model(name, device="cpu")


def _attention(model: LanguageModel, layer: int) -> Any:
    return next(part.module for part in model.wiring.attentions if part.layer == layer)


def _project(model: LanguageModel, layer: int, head: int, query: np.ndarray, label: np.ndarray) -> Vectors:
    """Norm, projection and a norm of queries and keys where the model has one."""
    import torch

    part = next(one for one in model.wiring.attentions if one.layer == layer)
    norm = getattr(part.decoder_layer, "input_layernorm", None)
    if norm is None or not hasattr(part.module, "q_proj"):
        raise FitError(
            f"match: {model.name} is not known to make its queries and keys as Llama does (input_layernorm, q_proj, "
            "k_proj); take another similarity"
        )

    def made(residual: np.ndarray, letter: str, heads: int, which: int) -> np.ndarray:
        with torch.inference_mode():
            given: torch.Tensor = torch.from_numpy(np.asarray(residual, dtype=np.float32)).to(model.dtype)
            out = getattr(part.module, f"{letter}_proj")(norm(given)).unflatten(-1, (heads, -1))
            after = getattr(part.module, f"{letter}_norm", None)
            out = out if after is None else after(out)
        vectors: np.ndarray = out[..., which, :].double().numpy()
        return vectors

    shared = head // (part.n_heads // part.n_kv_heads)
    return made(query, "q", part.n_heads, head), made(label, "k", part.n_kv_heads, shared)


def _turns(model: LanguageModel, length: int) -> tuple[np.ndarray, np.ndarray]:
    """cos and sin [length, d] of the rotary embedding."""
    import torch

    rotary = getattr(getattr(model.model, "model", None), "rotary_emb", None)
    if rotary is None:
        raise FitError(f"match: {model.name} has no rotary embedding at its base; take another similarity")
    with torch.inference_mode():
        cos, sin = rotary(torch.zeros(1, 1, 1), torch.arange(length)[None])
    return cos[0].double().numpy(), sin[0].double().numpy()


def _turned(vectors: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> np.ndarray:
    half = vectors.shape[-1] // 2
    swapped = np.concatenate([-vectors[..., half:], vectors[..., :half]], axis=-1)
    if vectors.ndim > cos.ndim:
        cos, sin = cos[:, None], sin[:, None]
    turned: np.ndarray = vectors * cos + swapped * sin
    return turned
