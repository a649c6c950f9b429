"""What a readout is fitted to: attention, matches, labels, label probabilities; checked where they enter."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from readout.errors import FitError
from readout.fitting.record_checks import check_values, check_variables
from readout.records.schema import head_names
from readout.wording import counted

if TYPE_CHECKING:
    import xarray

Match = str | np.ndarray | Callable[["xarray.Dataset"], np.ndarray] | None

# float32 attention rows may exceed one by rounding, never by more than this.
ROW_TOLERANCE = 1e-3


@dataclass(frozen=True, eq=False)
class Observations:
    """One row per prompt; demonstrations and labels padded to the longest prompt.

    Parameters
    ----------
    attention : [n, h, k]
        Weight from the query position to each demonstration's label position; 0 where there is none.
        A head that is NaN throughout was not measured.
    match : [n, k]
        1 where a demonstration has the query's class, 0 where not, or any similarity between.
    mask : [n, k]
        True where there is a demonstration.
    label : [n, k]
        Index of the demonstration's label among the prompt's labels, -1 where there is none.
    context : [n]
        Context of each prompt, as integers: the cluster of all statistics.
    label_probability : [n, l]
        The model's probabilities, renormalised over the prompt's own labels; 0 where there is no label; NaN
        throughout where they are not known.
    label_mask : [n, l]
        True where the prompt has a label.
    query_label : [n]
        Index of the right answer, -1 where unknown.
    heads
        Name of each head.
    label_effect : [n, h, l], optional
        Direct logit effect of each head's output on each candidate label.
    vocabulary_mass : [n], optional
        The model's probability of all the prompt's labels together, over the whole vocabulary.
    """

    attention: Float[np.ndarray, "n h k"]
    match: Float[np.ndarray, "n k"]
    mask: Bool[np.ndarray, "n k"]
    label: Int[np.ndarray, "n k"]
    context: Int[np.ndarray, " n"]
    label_probability: Float[np.ndarray, "n l"]
    label_mask: Bool[np.ndarray, "n l"]
    query_label: Int[np.ndarray, " n"]
    heads: tuple[str, ...]
    label_effect: Float[np.ndarray, "n h l"] | None = None
    vocabulary_mass: Float[np.ndarray, " n"] | None = None

    def __post_init__(self) -> None:
        n, h, k = _shape(self.attention, 3, "attention", "[prompt, head, demonstration]")
        labels = _shape(self.label_mask, 2, "label_mask", "[prompt, label]")[1]
        wanted: dict[str, tuple[int, ...]] = {
            "match": (n, k),
            "mask": (n, k),
            "label": (n, k),
            "context": (n,),
            "label_probability": (n, labels),
            "label_mask": (n, labels),
            "query_label": (n,),
            "label_effect": (n, h, labels),
            "vocabulary_mass": (n,),
        }
        for name, shape in wanted.items():
            value = getattr(self, name)
            if value is not None and value.shape != shape:
                raise FitError(
                    f"{name}: expected shape {shape} to go with attention {self.attention.shape}, got {value.shape}"
                )
        if n == 0 or k == 0:
            raise FitError(
                f"attention: expected at least one prompt and one demonstration, got {(n, h, k)}; prompts without "
                "demonstrations have nothing to match, so give them shots"
            )
        if len(self.heads) != h or len(set(self.heads)) != h:
            raise FitError(
                f"heads: expected {counted(h, 'different name')}, one per head of attention, got {len(self.heads)} "
                f"({len(set(self.heads))} different)"
            )
        self._check_values()

    def _check_values(self) -> None:
        if not self.mask.any(axis=1).all():
            bad = int(np.flatnonzero(~self.mask.any(axis=1))[0])
            raise FitError(f"mask: prompt {bad} has no demonstration; leave such prompts out")
        measured = self.measured
        seen = self.attention if measured.all() else self.attention[:, measured]
        if np.isnan(seen).any():
            n, h, i = (int(v[0]) for v in np.nonzero(np.isnan(seen)))
            name = [head for head, use in zip(self.heads, measured, strict=True) if use][h]
            raise FitError(
                f"attention: NaN at prompt {n}, head {name}, demonstration {i}; give a number wherever "
                "there is a demonstration, or NaN throughout a head that was not measured"
            )
        if (seen < 0).any():
            raise FitError(f"attention: expected weights of at least 0, got {seen.min():.3g}; give softmax weights")
        total = seen.sum(axis=2)
        if (total > 1 + ROW_TOLERANCE).any():
            raise FitError(
                f"attention: expected rows that sum to at most 1 over a prompt's demonstrations, got "
                f"{total.max():.4g}; give softmax weights of one query position"
            )
        match = self.match[self.mask]
        if not (np.isfinite(match).all() and (match >= 0).all() and (match <= 1).all()):
            raise FitError("match: expected numbers in [0, 1] for every demonstration, got others or NaN")
        labels = self.label_mask.shape[1]
        used = self.label[self.mask]
        if used.min() < 0 or used.max() >= labels:
            raise FitError(
                f"label: expected an index in 0..{labels - 1} for every demonstration, got {used.min()}..{used.max()}"
            )
        named = np.take_along_axis(self.label_mask, np.maximum(self.label, 0), axis=1)
        if not named[self.mask].all():
            raise FitError("label: a demonstration's label is not among its prompt's labels (label_mask)")
        answer = self.query_label
        if (answer < -1).any() or (answer >= labels).any():
            bad = int(answer[(answer < -1) | (answer >= labels)][0])
            raise FitError(f"query_label: expected an index in 0..{labels - 1}, or -1 where unknown, got {bad}")
        own = np.take_along_axis(self.label_mask, np.maximum(answer, 0)[:, None], axis=1)[:, 0]
        if not own[answer >= 0].all():
            raise FitError("query_label: a right answer is not among its prompt's labels (label_mask); give -1 for it")
        if self.label_effect is not None:
            unknown = self.label_mask[:, None] & ~np.isfinite(self.label_effect)
            if unknown[:, measured].any():
                raise FitError(
                    "label_effect: NaN at a prompt's label; give a number for every label, or no label_effect"
                )

    @property
    def n_prompts(self) -> int:
        """Number of prompts."""
        return len(self.attention)

    @property
    def n_contexts(self) -> int:
        """Number of different contexts."""
        return len(np.unique(self.context))

    @cached_property
    def measured(self) -> Bool[np.ndarray, " h"]:
        """Heads that are not NaN throughout."""
        measured: np.ndarray = ~np.isnan(self.attention).all(axis=(0, 2))
        return measured

    @property
    def has_probabilities(self) -> bool:
        """Whether the model's label probabilities are known."""
        return bool(np.isfinite(self.label_probability).all())

    @property
    def is_graded(self) -> bool:
        """Whether the match is anything but 0 and 1."""
        return not np.isin(self.match[self.mask], (0.0, 1.0)).all()

    @property
    def class_match(self) -> Float[np.ndarray, "n k"]:
        """1 where a demonstration shows the right answer's label, 0 elsewhere: the binary match [n, k].

        Where the right answers are not known it is the match itself, which must then be binary.

        Raises
        ------
        FitError
            When the match is graded and a right answer is not known.
        """
        if (self.query_label >= 0).all():
            same = (self.label == self.query_label[:, None]) & self.mask
            return np.asarray(same, dtype=np.float64)
        if self.is_graded:
            raise FitError("class match: the match is graded and query_label is not known everywhere; give query_label")
        return self.match

    def select_heads(self, heads: Sequence[str]) -> Observations:
        """The same prompts with these heads only, in this order."""
        place = {name: j for j, name in enumerate(self.heads)}
        missing = [name for name in heads if name not in place]
        if missing:
            raise FitError(
                f"heads: {', '.join(missing)} not among the {counted(len(self.heads), 'head')} here "
                f"({', '.join(self.heads[:4])}{', ...' if len(self.heads) > 4 else ''})"
            )
        index = [place[name] for name in heads]
        effect = None if self.label_effect is None else self.label_effect[:, index]
        return replace(self, attention=self.attention[:, index], heads=tuple(heads), label_effect=effect)

    def select_prompts(self, keep: Shaped[np.ndarray, " n"]) -> Observations:
        """The same heads with these prompts only (a mask or indices)."""
        rows = np.flatnonzero(keep) if np.asarray(keep).dtype == bool else np.asarray(keep)
        changed: dict[str, Any] = {
            f.name: getattr(self, f.name)[rows]
            for f in fields(self)
            if f.name != "heads" and getattr(self, f.name) is not None
        }
        return replace(self, **changed)

    def with_match(self, match: Float[np.ndarray, "n k"]) -> Observations:
        """The same observations with another match."""
        return replace(self, match=np.where(self.mask, np.asarray(match, dtype=np.float64), 0.0))

    def summary(self) -> str:
        """Size and kind on one screen."""
        return "\n".join(
            [
                f"{counted(self.n_prompts, 'prompt')} in {counted(self.n_contexts, 'context')}, "
                f"{counted(len(self.heads), 'head')}",
                f"{_range(self.mask.sum(axis=1), 'demonstration')}, "
                f"{_range(self.label_mask.sum(axis=1), 'label')} a prompt",
                f"{'graded' if self.is_graded else 'binary'} match, mean {self.match[self.mask].mean():.3f}; label "
                f"probabilities {'known' if self.has_probabilities else 'not known'}",
            ]
        )

    @classmethod
    def from_arrays(
        cls,
        attention: Float[np.ndarray, "n h k"] | None,
        match: Float[np.ndarray, "n k"],
        label: Int[np.ndarray, "n k"],
        context: Shaped[np.ndarray, " n"],
        *,
        label_probability: Float[np.ndarray, "n l"] | None = None,
        mask: Bool[np.ndarray, "n k"] | None = None,
        label_mask: Bool[np.ndarray, "n l"] | None = None,
        query_label: Int[np.ndarray, " n"] | None = None,
        heads: Iterable[str] | None = None,
        label_effect: Float[np.ndarray, "n h l"] | None = None,
        vocabulary_mass: Float[np.ndarray, " n"] | None = None,
    ) -> Observations:
        """Observations from plain arrays, for attention that comes from another tool.

        Parameters
        ----------
        attention
            [n, h, k] weights after the softmax, at the label positions only; None for prompts that are only
            to be predicted.
        match, label, context
            As in the class.
        label_probability
            [n, l] probabilities of the labels, over the vocabulary or over the labels: renormalised here.
        mask, label_mask
            Default: a demonstration wherever label >= 0, a label wherever label_probability is a number (or,
            without probabilities, wherever a demonstration has it).
        query_label, heads, label_effect, vocabulary_mass
            As in the class; heads default to "H0", "H1", ...

        Raises
        ------
        FitError
            Naming the array, what was expected and what came.
        """
        match_, label_ = np.asarray(match, dtype=np.float64), _whole(label, "label", "-1 where there is none")
        n, k = _shape(match_, 2, "match", "[prompt, demonstration]")
        weights = np.zeros((n, 0, k)) if attention is None else np.asarray(attention)
        _shape(weights, 3, "attention", "[prompt, head, demonstration]")
        used: np.ndarray = label_ >= 0 if mask is None else np.asarray(mask, dtype=bool)
        if weights.shape[::2] != (n, k) or label_.shape != (n, k) or used.shape != (n, k):
            raise FitError(
                f"attention {weights.shape}, match {match_.shape}, label {label_.shape} and mask "
                f"{used.shape}: expected [n, h, k] and three times [n, k] of the same n and k"
            )
        probability, labels = _probabilities(label_probability, label_mask, label_, used)
        names = tuple(f"H{j}" for j in range(weights.shape[1])) if heads is None else tuple(heads)
        answer = np.full(n, -1) if query_label is None else _whole(query_label, "query_label", "-1 if unknown")
        seen = np.where(used[:, None], weights, np.nan)
        measured = np.asarray(~np.isnan(seen).all(axis=(0, 2)))
        clean = np.where(used[:, None] | ~measured[None, :, None], weights, 0)
        clean[:, ~measured] = np.nan
        return cls(
            attention=clean,
            match=np.where(used, match_, 0.0),
            mask=used,
            label=np.where(used, label_, -1),
            context=_numbered(context),
            label_probability=probability,
            label_mask=labels,
            query_label=answer,
            heads=names,
            label_effect=None if label_effect is None else np.asarray(label_effect),
            vocabulary_mass=None if vocabulary_mass is None else np.asarray(vocabulary_mass, dtype=np.float64),
        )

    @classmethod
    def from_record(cls, record: xarray.Dataset, match: Match = None) -> Observations:
        """Observations from a record.

        Parameters
        ----------
        record
            As the extraction writes it.
        match
            None: 1 where the demonstration's class is the query's. Otherwise [prompt, demonstration] numbers
            in [0, 1], the name of such a variable of the record, or a function of the record that gives them, such
            as a fitted `readout.matching.Similarity`.

        Raises
        ------
        FitError
            When the record lacks a variable or a value is not as it must be.
        RecordError
            When the record is damaged: no value where there must be one.
        """
        check_variables(record)
        labels = check_values(record)
        classes = record["demonstration_class"].values
        if match is None:
            similarity = (classes == record["query_class"].values[:, None]).astype(np.float64)
        elif isinstance(match, str):
            if match not in record:
                raise FitError(f"match: the record has no variable {match!r}; give None, an array or a function")
            similarity = record[match].values
        else:
            similarity = match(record) if callable(match) else np.asarray(match)
        logprob = record["label_logprob"].values.astype(np.float64)
        return cls.from_arrays(
            record["attention"].values,
            similarity,
            record["demonstration_label"].values,
            record["context"].values,
            label_probability=np.where(labels, np.exp(np.where(labels, logprob, 0.0)), 0.0),
            label_mask=labels,
            query_label=record["query_label"].values if "query_label" in record else None,
            heads=tuple(head_names(record)),
            label_effect=record["label_effect"].values if "label_effect" in record else None,
            vocabulary_mass=np.exp(np.where(labels, logprob, -np.inf)).sum(axis=1),
        )


def _shape(array: np.ndarray, dims: int, name: str, axes: str) -> tuple[int, ...]:
    if array.ndim != dims:
        raise FitError(f"{name}: expected {dims} axes {axes}, got shape {array.shape}")
    return array.shape


def _range(numbers: np.ndarray, noun: str) -> str:
    low, high = int(numbers.min()), int(numbers.max())
    return counted(low, noun) if low == high else f"{low} to {counted(high, noun)}"


def _whole(array: Any, name: str, none: str) -> Int[np.ndarray, " ..."]:
    """Whole numbers; anything that would have to be rounded is refused."""
    given = np.asarray(array)
    if given.dtype.kind not in "iub" and not (given.dtype.kind == "f" and (given % 1 == 0).all()):
        came = next((v for v in given.ravel().tolist() if not isinstance(v, float) or v % 1 != 0), None)
        raise FitError(f"{name}: expected whole numbers ({none}), got {came!r}")
    return given.astype(np.int64)


def _numbered(context: Any) -> Int[np.ndarray, " n"]:
    """Contexts as consecutive integers, in the order of their sorted names."""
    names = np.asarray(context)
    nothing = names.dtype.kind == "O" and any(name is None for name in names.ravel())
    if nothing or (names != names).any():
        raise FitError("context: expected a name for every prompt, got NaN or None; say which prompts share a context")
    try:
        return np.unique(names, return_inverse=True)[1].astype(np.int64)
    except TypeError as error:
        raise FitError("context: expected names of one kind, numbers or texts, got both") from error


def _probabilities(
    given: np.ndarray | None, label_mask: np.ndarray | None, label: np.ndarray, mask: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities renormalised over each prompt's labels, and the mask of labels."""
    if given is None:
        count = int(label[mask].max(initial=-1)) + 1
        named = (label[:, :, None] == np.arange(count)) & mask[:, :, None]
        labels = named.any(axis=1) if label_mask is None else np.asarray(label_mask, dtype=bool)
        return np.full(labels.shape, np.nan), labels
    raw = np.asarray(given, dtype=np.float64)
    _shape(raw, 2, "label_probability", "[prompt, label]")
    labels = np.isfinite(raw) if label_mask is None else np.asarray(label_mask, dtype=bool)
    if labels.shape != raw.shape or len(raw) != len(label):
        raise FitError(f"label_probability {raw.shape} and label_mask {labels.shape}: expected [{len(label)}, l]")
    filled = np.where(labels, raw, 0.0)
    total = filled.sum(axis=1, keepdims=True)
    if not np.isfinite(filled).all() or (filled < 0).any() or (total <= 0).any():
        raise FitError("label_probability: expected numbers of at least 0, not all 0, for every label of a prompt")
    return filled / total, labels
