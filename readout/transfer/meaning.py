"""How far the prior meaning of labels bends a readout: a constant for each label, and one for meaning itself."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import Bool, Float, Int, Shaped
from scipy import linalg, optimize, stats

from readout.errors import FitError
from readout.fitting.covariance import SANDWICH, cluster_robust
from readout.fitting.links import FLOOR, masked_softmax
from readout.statistics import Estimate, cluster_difference, cluster_index, cluster_mean, cluster_sums, generator
from readout.statistics.checks import fields_of, reading
from readout.validation import prompt_errors
from readout.wording import counted

LEVEL, FOLDS = 0.95, 5
METHOD = f"{SANDWICH}, readout held fixed"


@dataclass(frozen=True, eq=False)
class Labelled:
    """Prompts whose labels are class names, and a frozen readout's prediction of them.

    Parameters
    ----------
    probability, prediction : [n, l]
        The model's and the readout's, over each prompt's own labels.
    mask : [n, l]
        True where the prompt has a label.
    word : [n, l]
        Which of `words` each label is; anything where there is none.
    names_query : [n, l]
        True where the label is the name of the query's class, whatever it stands for in the prompt.
    context : [n]
        Clusters.
    words
        The label words.
    """

    probability: Float[np.ndarray, "n l"]
    prediction: Float[np.ndarray, "n l"]
    mask: Bool[np.ndarray, "n l"]
    word: Int[np.ndarray, "n l"]
    names_query: Bool[np.ndarray, "n l"]
    context: Shaped[np.ndarray, " n"]
    words: tuple[str, ...]

    def select(self, keep: Bool[np.ndarray, " n"]) -> Labelled:
        """These prompts only."""
        names = ("probability", "prediction", "mask", "word", "names_query", "context")
        return replace(self, **{name: getattr(self, name)[keep] for name in names})


def labelled(
    record: xr.Dataset, probability: Float[np.ndarray, "n l"], prediction: Float[np.ndarray, "n l"]
) -> Labelled:
    """The labels of a record beside probabilities and a prediction of its prompts."""
    mask = record["label_id"].values >= 0
    word = np.where(mask, record["label_word"].values, 0)
    words, classes = (np.array(record.attrs[name], dtype=object) for name in ("label_words", "class_names"))
    names = mask & (words[word] == classes[record["query_class"].values][:, None])
    return Labelled(probability, prediction, mask, word, names, record["context"].values, tuple(words))


@dataclass(frozen=True, eq=False)
class Bend:
    """P_hat(l) proportional to Q(l) exp(u_l + w [l names the query's class]): Q the frozen readout's prediction.

    Parameters
    ----------
    labels
        u by label word, in logits; they sum to 0.
    meaning
        w, in logits; None where it was not fitted. It can be told from reading only where labels keep their meaning
        in some contexts and not in others.
    kl
        KL(model || prediction), nats, constants fitted to other contexts: "readout", "with label bias" and, where it
        was fitted, "with label bias and meaning".
    gain
        KL of the readout minus that of each other one, paired.
    """

    labels: dict[str, Estimate]
    meaning: Estimate | None
    kl: dict[str, Estimate]
    gain: dict[str, Estimate]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        tables = {
            name: {key: one.to_dict() for key, one in getattr(self, name).items()} for name in ("labels", "kl", "gain")
        }
        return tables | {"meaning": None if self.meaning is None else self.meaning.to_dict()}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Bend:
        """Read what `to_dict` wrote.

        Raises
        ------
        FitError
            When it is not such a dictionary.
        """
        fields_of(data, cls.__dataclass_fields__, "bend")
        with reading("bend"):
            tables = {
                name: {key: Estimate.from_dict(one) for key, one in data[name].items()}
                for name in ("labels", "kl", "gain")
            }
            meaning = data["meaning"]
            return cls(**tables, meaning=None if meaning is None else Estimate.from_dict(meaning))


def fit_bend(data: Labelled, with_meaning: bool, folds: int = FOLDS, seed: int = 0) -> Bend:
    """Fit the constants so that the sum over prompts of KL(model || prediction) is smallest.

    Parameters
    ----------
    data
        Prompts of a task that the readout was not fitted to.
    with_meaning
        Whether to fit w too, in a second model beside the first; labels are then those of the second.
    folds, seed
        Of the cross-validation over contexts that `Bend.kl` comes from; the constants are fitted to all contexts.

    Returns
    -------
    Bend

    Raises
    ------
    FitError
        When there are fewer than two label words, or fewer contexts than folds.
    """
    index, count = cluster_index(data.context)
    if len(data.words) < 2 or count < folds:
        raise FitError(
            f"label bias: expected at least two label words and {counted(folds, 'context')}, got {len(data.words)} and "
            f"{count}; give more prompts"
        )
    models = {"with label bias": False} | ({"with label bias and meaning": True} if with_meaning else {})
    errors = {"readout": _kl(data, data.prediction)}
    fold = (generator(seed).permutation(count) % folds)[index]
    for name, meaning in models.items():
        errors[name] = np.empty(len(data.mask))
        for part in range(folds):
            left = fold == part
            theta = _minimum(data.select(~left), meaning)
            errors[name][left] = _kl(data, _bent(data, theta, meaning))[left]
    estimates = _estimates(data, with_meaning)
    return Bend(
        dict(zip(data.words, estimates, strict=False)),
        estimates[-1] if with_meaning else None,
        {name: cluster_mean(one, data.context) for name, one in errors.items()},
        {name: cluster_difference(errors["readout"], errors[name], data.context) for name in models},
    )


def _features(data: Labelled, meaning: bool) -> tuple[Float[np.ndarray, "n l d"], Float[np.ndarray, "e d"]]:
    """Each label's row in coordinates d, and what turns constants in them into biases (and w)."""
    # Biases that sum to 0, in fewer coordinates: a common shift changes no prediction.
    basis = linalg.helmert(len(data.words)).T
    features = basis[data.word]
    if meaning:
        features = np.concatenate([features, data.names_query[..., None]], axis=2)
        basis = linalg.block_diag(basis, 1.0)
    return np.where(data.mask[..., None], features, 0.0), basis


def _bent(data: Labelled, theta: Float[np.ndarray, " d"], meaning: bool) -> Float[np.ndarray, "n l"]:
    """The prediction with the constants."""
    return masked_softmax(_logits(data.prediction) + _features(data, meaning)[0] @ theta, data.mask)


def _information(features: Float[np.ndarray, "n l d"], made: Float[np.ndarray, "n l"]) -> Float[np.ndarray, "n d d"]:
    mean = np.einsum("nl,nld->nd", made, features)
    square = np.einsum("nl,nld,nle->nde", made, features, features)
    information: np.ndarray = square - mean[:, :, None] * mean[:, None, :]
    return information


def _minimum(data: Labelled, meaning: bool) -> Float[np.ndarray, " d"]:
    features, _ = _features(data, meaning)
    logits = _logits(data.prediction)

    def loss(theta: np.ndarray) -> tuple[float, np.ndarray]:
        made = masked_softmax(logits + features @ theta, data.mask)
        kept = np.where(data.mask & (made > 0), made, 1.0)
        gradient = np.einsum("nl,nld->d", np.where(data.mask, made - data.probability, 0.0), features)
        return float(-(data.probability * np.log(kept)).sum()), gradient

    def hessian(theta: np.ndarray) -> np.ndarray:
        made = masked_softmax(logits + features @ theta, data.mask)
        total: np.ndarray = _information(features, made).sum(axis=0)
        return total

    start = np.zeros(features.shape[2])
    found = optimize.minimize(loss, start, jac=True, hess=hessian, method="trust-exact", options={"gtol": 1e-8})
    theta: np.ndarray = found.x
    return theta


def _estimates(data: Labelled, meaning: bool) -> list[Estimate]:
    """Biases of the words, then w if it is fitted, with errors clustered by context."""
    theta = _minimum(data, meaning)
    features, basis = _features(data, meaning)
    made = _bent(data, theta, meaning)
    index, count = cluster_index(data.context)
    residual = np.where(data.mask, data.probability - made, 0.0)
    score = cluster_sums(np.einsum("nl,nld->nd", residual, features), index, count)
    share = cluster_sums(_information(features, made), index, count)
    covariance = basis @ cluster_robust(score[:, None], share[:, None])[0] @ basis.T
    se = np.sqrt(np.diag(covariance))
    half = stats.t.ppf(0.5 + LEVEL / 2, count - 1) * se
    return [
        Estimate(float(value), float(value - width), float(value + width), float(error), len(index), count, METHOD)
        for value, width, error in zip(basis @ theta, half, se, strict=True)
    ]


def _kl(data: Labelled, prediction: Float[np.ndarray, "n l"]) -> Float[np.ndarray, " n"]:
    kl: np.ndarray = prompt_errors(data.probability, prediction, data.mask)["kl"]
    return kl


def _logits(prediction: Float[np.ndarray, "n l"]) -> Float[np.ndarray, "n l"]:
    logits: np.ndarray = np.log(np.maximum(prediction, FLOOR**2))
    return logits
