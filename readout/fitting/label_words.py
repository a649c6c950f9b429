"""Effects of label words: some words are likelier answers than others, whatever the demonstrations say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Float, Int

from readout.errors import FitError
from readout.fitting.links import FLOOR, masked_softmax
from readout.fitting.observations import Observations
from readout.statistics import generator
from readout.statistics.checks import fields_of, reading
from readout.wording import counted

SPREADS = (0.0, 0.01, 0.03, 0.1, 0.3, 1.0)
STEPS, TOLERANCE = 100, 1e-9
Vectors = Mapping[int, Float[np.ndarray, " width"]]


@dataclass(frozen=True, eq=False)
class LabelWords:
    """P_hat(l) proportional to Q(l) exp(u_l): Q the readout's prediction, u_l the effect of label l's word.

    Parameters
    ----------
    ids : [w]
        Token ids of the words it was fitted to, ascending.
    effects : [w]
        Their effects, in units of logits.
    centre, direction : [width]
        Any other word v has the effect direction . (v - centre); of width 0 when it was fitted without vectors, so
        that other words have none.
    spread
        Prior variance of the effects, chosen by cross-validation; 0: no effects.
    errors : {spread: KL}
        The cross-validated error of each spread, nats.
    """

    ids: Int[np.ndarray, " w"]
    effects: Float[np.ndarray, " w"]
    centre: Float[np.ndarray, " width"]
    direction: Float[np.ndarray, " width"]
    spread: float
    errors: Mapping[float, float]

    def of(self, ids: Int[np.ndarray, " v"], vectors: Vectors | None = None) -> Float[np.ndarray, " v"]:
        """Effects of words, fitted ones and others.

        Raises
        ------
        FitError
            When a word that was not fitted has no vector, though the others had.
        """
        known = dict(zip(self.ids.tolist(), self.effects.tolist(), strict=True))
        return np.array([known[i] if i in known else self._other(i, vectors) for i in ids.tolist()])

    def _other(self, word: int, vectors: Vectors | None) -> float:
        if len(self.direction) == 0:
            return 0.0
        if vectors is None or word not in vectors:
            raise FitError(f"label words: token {word} is new and has no vector; give the vectors of all label words")
        return float((np.asarray(vectors[word], dtype=np.float64) - self.centre) @ self.direction)

    def predict(
        self,
        prediction: Float[np.ndarray, "n l"],
        label_mask: Bool[np.ndarray, "n l"],
        label_id: Int[np.ndarray, "n l"],
        vectors: Vectors | None = None,
    ) -> Float[np.ndarray, "n l"]:
        """A prediction [n, l] with the effects of its label words; rows sum to 1."""
        words, place = _words(label_id, label_mask)
        return masked_softmax(_logits(prediction) + self.of(words, vectors)[place], label_mask)

    def summary(self) -> str:
        """The chosen spread and what it was chosen from."""
        tried = ", ".join(f"{spread:g}: {error:.4f}" for spread, error in self.errors.items())
        return f"effects of {counted(len(self.ids), 'label word')}, prior variance {self.spread:g} (KL {tried})"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        arrays = {name: getattr(self, name).tolist() for name in ("ids", "effects", "centre", "direction")}
        return arrays | {"spread": self.spread, "errors": [[spread, error] for spread, error in self.errors.items()]}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> LabelWords:
        """Read what `to_dict` wrote.

        Raises
        ------
        FitError
            When it is not such a dictionary.
        """
        fields_of(data, [f.name for f in fields(cls)], "label words")
        with reading("label words"):
            effects, centre, direction = (
                np.array(data[name], dtype=np.float64) for name in ("effects", "centre", "direction")
            )
            errors = {float(spread): float(error) for spread, error in data["errors"]}
            ids = np.array(data["ids"], dtype=np.int64)
            return cls(ids, effects, centre, direction, float(data["spread"]), errors)


def fit_label_words(
    observations: Observations,
    prediction: Float[np.ndarray, "n l"],
    label_id: Int[np.ndarray, "n l"],
    vectors: Vectors | None = None,
    *,
    own: float = 0.5,
    spreads: Sequence[float] = SPREADS,
    leave: Literal["words", "contexts"] = "words",
    folds: int = 5,
    seed: int = 0,
) -> LabelWords:
    """Fit effects of label words to what a prediction misses.

    The effects are those of the highest posterior under u ~ N(0, spread K): the sum of KL(model || prediction) over
    prompts plus u' (spread K)^-1 u / 2 is smallest. K is `own` on the diagonal plus (1 - `own`) times the inner
    products of the words' centred vectors (mean diagonal 1), so that words with like vectors have like effects and a
    word never seen has one too.

    Parameters
    ----------
    observations
        With label probabilities; nothing of the target.
    prediction
        [n, l] of the same prompts, by a readout or a baseline.
    label_id
        [n, l] token id of each label, as the record has it.
    vectors
        Token id -> vector, such as the row of the unembedding; None: every word by itself.
    own
        Share of the variance that words do not share, in (0, 1].
    spreads
        Prior variances to choose from; with 0 the effects may be found worthless.
    leave
        What each fold of the cross-validation leaves out: "words" (all prompts with these label words) when the target
        has other words, "contexts" when its words are known.
    folds, seed
        Of the cross-validation.

    Returns
    -------
    LabelWords

    Raises
    ------
    FitError
        When shapes do not go together, label probabilities are not known, or a word has no vector.
    """
    mask = observations.label_mask
    if prediction.shape != mask.shape or label_id.shape != mask.shape:
        raise FitError(
            f"label words: expected prediction and label_id of shape {mask.shape}, got {prediction.shape} and "
            f"{label_id.shape}"
        )
    if not observations.has_probabilities:
        raise FitError("label words: label probabilities are needed to fit effects to; give them")
    if not 0 < own <= 1 or not spreads or min(spreads) < 0:
        raise FitError(f"label words: expected own in (0, 1] and spreads of at least 0, got {own!r} and {spreads!r}")
    words, place = _words(label_id, mask)
    centred, centre, scale = _vectors(words, vectors)
    kernel = own * np.eye(len(words)) + (1 - own) / scale * centred @ centred.T
    kernel = kernel if vectors is not None else np.eye(len(words))
    member = (place[:, :, None] == np.arange(len(words))) & mask[:, :, None]
    data = (observations.label_probability, _logits(prediction), mask, member.astype(np.float64))
    parts = _parts(data, observations, leave, folds, seed)
    errors = {spread: _held_out(data, kernel, spread, parts) for spread in spreads}
    best = min(errors, key=lambda spread: errors[spread])
    effects = _effects(data, kernel, best)
    direction = (1 - own) / scale * np.linalg.solve(kernel, effects) @ centred
    return LabelWords(words, effects, centre, direction, best, errors)


Data = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def _effects(data: Data, kernel: Float[np.ndarray, "w w"], spread: float) -> Float[np.ndarray, " w"]:
    """The effects of the highest posterior, by Newton's method with halved steps; convex."""
    probability, logits, mask, member = data
    effects = np.zeros(len(kernel))
    if spread == 0:
        return effects
    precision = np.linalg.inv(spread * kernel)

    def loss(u: np.ndarray) -> tuple[float, np.ndarray]:
        score = logits + member @ u
        predicted = masked_softmax(score, mask)
        kept = np.where(mask & (predicted > 0), predicted, 1.0)
        return float(-(probability * np.log(kept)).sum() + u @ precision @ u / 2), predicted

    value, predicted = loss(effects)
    for _ in range(STEPS):
        gradient = np.einsum("nl,nlw->w", np.where(mask, predicted - probability, 0.0), member) + precision @ effects
        share = np.einsum("nl,nlw->nw", predicted, member)
        step = np.linalg.solve(np.diag(share.sum(axis=0)) - share.T @ share + precision, gradient)
        size = 1.0
        while (found := loss(effects - size * step))[0] > value and size > TOLERANCE:
            size /= 2
        effects, (value, predicted) = effects - size * step, found
        if np.abs(size * step).max() < TOLERANCE:
            break
    return effects


def _held_out(
    data: Data, kernel: Float[np.ndarray, "w w"], spread: float, parts: list[tuple[np.ndarray, np.ndarray]]
) -> float:
    """KL(model || prediction) over the prompts that each part leaves out; effects are fitted to those that it keeps."""
    total, count = 0.0, 0
    for kept, left in parts:
        probability, logits, mask, member = (array[left] for array in data)
        effects = _effects((data[0][kept], data[1][kept], data[2][kept], data[3][kept]), kernel, spread)
        predicted = np.where(mask, masked_softmax(logits + member @ effects, mask), 1.0)
        true = np.where(probability > 0, probability, 1.0)
        total += float((probability * (np.log(true) - np.log(np.maximum(predicted, FLOOR**2)))).sum())
        count += int(left.sum())
    return total / count


def _parts(
    data: Data, observations: Observations, leave: str, folds: int, seed: int
) -> list[tuple[Bool[np.ndarray, " n"], Bool[np.ndarray, " n"]]]:
    """What to fit to and what to score, for every fold."""
    rng = generator(seed)
    if leave == "words":
        fold = rng.permutation(data[3].shape[2]) % folds
        has = [data[3][:, :, fold == part].any(axis=(1, 2)) for part in range(folds)]
    elif leave == "contexts":
        names, index = np.unique(observations.context, return_inverse=True)
        fold = rng.permutation(len(names)) % folds
        has = [fold[index] == part for part in range(folds)]
    else:
        raise FitError(f"leave: expected words or contexts, got {leave!r}")
    parts = [(np.logical_not(left), np.asarray(left)) for left in has if left.any() and not left.all()]
    if not parts:
        raise FitError(f"label words: no fold leaves {leave} out and keeps prompts to fit to; give more of them")
    return parts


def _words(
    label_id: Int[np.ndarray, "n l"], mask: Bool[np.ndarray, "n l"]
) -> tuple[Int[np.ndarray, " w"], Int[np.ndarray, "n l"]]:
    """The label words that occur, ascending, and the place of each label among them (0 where there is none)."""
    words = np.unique(label_id[mask]).astype(np.int64)
    return words, np.searchsorted(words, np.where(mask, label_id, words[0]))


def _vectors(
    words: Int[np.ndarray, " w"], vectors: Vectors | None
) -> tuple[Float[np.ndarray, "w width"], Float[np.ndarray, " width"], float]:
    """Centred vectors of the words, their mean, and the mean square of their length."""
    if vectors is None:
        return np.zeros((len(words), 0)), np.zeros(0), 1.0
    missing = [word for word in words.tolist() if word not in vectors]
    if missing:
        raise FitError(f"label words: no vector for token {missing[0]}; give the vectors of all label words")
    rows = np.array([vectors[word] for word in words.tolist()], dtype=np.float64)
    centre = rows.mean(axis=0)
    scale = float(((rows - centre) ** 2).sum(axis=1).mean())
    if scale == 0:
        raise FitError("label words: all words have the same vector, so that it cannot tell them apart")
    return rows - centre, centre, scale


def _logits(prediction: Float[np.ndarray, "n l"]) -> Float[np.ndarray, "n l"]:
    logits: np.ndarray = np.log(np.maximum(prediction, FLOOR**2))
    return logits
