"""What needs no routing: the zero-shot answer with a bias on the labels, and a classifier on the encoder alone.

Both learn from the same training queries. A data set with the answers of a training set gets that set's bias or
classifier; for others the encoder has none, and the label bias is contextual calibration's.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax

from readout.errors import ReadoutError
from readout.icr.encoders import unit
from readout.icr.examples import Example
from readout.icr.methods.base import Ground, Logits, by_domain
from readout.icr.passes import last_logits, make_batch
from readout.icr.queries import Queries
from readout.icr.training import answers_of

CONTENT_FREE = ("N/A", "[MASK]", "...")
"""Inputs without content of Zhao et al. (2021)."""


class LabelBias:
    """Zero-shot plus one constant for each answer, fitted to the training queries of each data set.

    Source: Zhao et al. (2021) with the bias fitted instead of read off content-free inputs.
    """

    name = "label bias, fitted"

    def __init__(self) -> None:
        self._bias: dict[tuple[str, ...], np.ndarray] = {}

    def fit(self, ground: Ground) -> None:
        """Maximum likelihood, one data set at a time."""
        for rows in by_domain(ground.queries).values():
            options = ground.queries.examples[rows[0]].options
            own = ground.queries.zero_shot[rows][:, : len(options)].astype(np.float64)
            ones = np.zeros((len(rows), 0))
            _, self._bias[options] = softmax_regression(ones, ground.queries.answers[rows], len(options), 1e-3, own)

    def answer(self, queries: Queries) -> Logits:
        """Zero-shot where no training set has the same answers."""
        found = queries.zero_shot.copy()
        for row, example in enumerate(queries.examples):
            if example.options in self._bias:
                found[row, : len(example.options)] += self._bias[example.options]
        return found


class ContextualCalibration:
    """Zero-shot less the mean log-odds that the template gives to inputs without content; needs no labels.

    Source: Zhao et al. (2021).
    """

    name = "contextual calibration"

    def __init__(self) -> None:
        self._ground: Ground | None = None

    def fit(self, ground: Ground) -> None:
        """Nothing to learn."""
        self._ground = ground

    def answer(self, queries: Queries) -> Logits:
        """Content-free inputs are read once for each data set; sets of several fields are left as they are."""
        if self._ground is None:
            raise ReadoutError(f"{self.name}: fit it first")
        found = queries.zero_shot.copy()
        for rows in by_domain(queries).values():
            example = queries.examples[rows[0]]
            if example.text not in example.prompt or example.prompt.count(example.text) != 1:
                continue
            found[rows] -= self._content_free(example, queries.options[rows[:1]])
        return found

    def _content_free(self, example: Example, options: np.ndarray) -> np.ndarray:
        import torch

        assert self._ground is not None
        model = self._ground.model
        prompts = [example.prompt.replace(example.text, empty) for empty in CONTENT_FREE]
        ids = [np.array(model.tokenizer(one).input_ids, np.int64) for one in prompts]
        with torch.inference_mode():
            logits = answers_of(last_logits(model, make_batch(ids, device=model.device)), options.repeat(len(ids), 0))
        return np.asarray(np.log(np.nanmean(softmax_known(logits), 0)))


def softmax_known(logits: Logits) -> Logits:
    """Probabilities of the answers that there are; NaN stays NaN."""
    return np.where(np.isnan(logits), np.nan, softmax(np.where(np.isnan(logits), -np.inf, logits), axis=1))


class EncoderOnly:
    """No language model: softmax regression on the encoder's embeddings, one classifier a training set."""

    name = "encoder only"

    def __init__(self, penalty: float = 1e-3) -> None:
        self.penalty = penalty
        self._ground: Ground | None = None
        self._fitted: dict[tuple[str, ...], tuple[np.ndarray, np.ndarray]] = {}

    def fit(self, ground: Ground) -> None:
        """Penalised maximum likelihood on embeddings of length 1 (times the root of their width)."""
        self._ground = ground
        for rows in by_domain(ground.queries).values():
            options = ground.queries.examples[rows[0]].options
            features = self._features([ground.queries.texts[row] for row in rows])
            answers = ground.queries.answers[rows]
            self._fitted[options] = softmax_regression(features, answers, len(options), self.penalty)

    def _features(self, texts: list[str]) -> np.ndarray:
        assert self._ground is not None
        vectors = unit(self._ground.encode(texts))
        return np.asarray(vectors * vectors.shape[1] ** 0.5)

    def answer(self, queries: Queries) -> Logits:
        """NaN throughout for a data set whose answers no training set has."""
        if self._ground is None:
            raise ReadoutError(f"{self.name}: fit it first")
        found = np.full(queries.options.shape, np.nan)
        for rows in by_domain(queries).values():
            options = queries.examples[rows[0]].options
            if options in self._fitted:
                matrix, bias = self._fitted[options]
                found[np.ix_(rows, np.arange(len(options)))] = (
                    self._features([queries.texts[row] for row in rows]) @ matrix + bias
                )
        return found


def softmax_regression(
    features: Float[np.ndarray, "n width"],
    answers: Int[np.ndarray, " n"],
    classes: int,
    penalty: float,
    offset: Float[np.ndarray, "n classes"] | None = None,
) -> tuple[Float[np.ndarray, "width classes"], Float[np.ndarray, " classes"]]:
    """Multinomial logistic regression with a ridge on the matrix, by L-BFGS.

    Parameters
    ----------
    features : float [n, width]
    answers : int [n]
    classes : int
    penalty : float
        Of half the squared norm of the matrix, against the mean log-likelihood; the bias has a thousandth of it.
    offset : float [n, classes], optional
        Logits to start from.

    Returns
    -------
    float [width, classes] and float [classes]
        Matrix and bias.
    """
    n, width = features.shape
    start = np.zeros((n, classes)) if offset is None else offset
    target = np.eye(classes)[answers]
    ridge = penalty * np.concatenate([np.ones(width), [1e-3]])[:, None]
    with_one = np.hstack([features, np.ones((n, 1))])

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        matrix = flat.reshape(width + 1, classes)
        log_p = log_softmax(start + with_one @ matrix, axis=1)
        value = -(target * log_p).sum() / n + 0.5 * (ridge * matrix**2).sum()
        slope = with_one.T @ (np.exp(log_p) - target) / n + ridge * matrix
        return float(value), slope.ravel()

    found = minimize(loss, np.zeros((width + 1) * classes), jac=True, method="L-BFGS-B", options={"maxiter": 2000})
    matrix = found.x.reshape(width + 1, classes)
    return matrix[:width], matrix[width]
