"""Ground truth: observations drawn from known constants."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from readout.errors import FitError
from readout.fitting.likelihood import predicted_attention
from readout.fitting.links import label_mass, make_link
from readout.fitting.observations import Observations
from readout.statistics import generator


def draw_observations(
    base: float | Sequence[float] | Float[np.ndarray, " h"],
    match: float | Sequence[float] | Float[np.ndarray, " h"],
    *,
    contexts: int = 64,
    queries: int = 4,
    counts: Sequence[Sequence[int]] = ((4, 4),),
    graded: bool = False,
    concentration: float = 20.0,
    context_correlation: float = 0.5,
    copy_slope: float | Sequence[float] | Float[np.ndarray, " h"] = 1.0,
    effect_noise: float = 0.1,
    label_noise: float = 0.0,
    heads: Sequence[str] | None = None,
    seed: int = 0,
) -> Observations:
    """Prompts whose attention is the softmax readout with known constants, plus noise of mean zero.

    Attention to the label positions and the rest is Dirichlet with mean exactly A_hat, and prompts that share a
    context share part of their noise, so that they are not independent. Label probabilities follow from A_hat by
    the share link over all heads.

    Parameters
    ----------
    base, match
        The constants b_h and a_h of each head.
    contexts, queries
        Number of contexts, and of prompts that share each.
    counts
        One or more tuples of demonstrations per class; each context draws one and assigns it to its classes.
    graded
        Draw matches between 0 and 1 instead of 0 or 1.
    concentration
        Of the Dirichlet: larger means less noise.
    context_correlation
        Share of the noise that the prompts of a context have in common, in [0, 1].
    copy_slope, effect_noise
        label_effect = copy_slope times the label mass, plus normal noise of this standard deviation.
    label_noise
        Standard deviation of normal noise on the log-probabilities of the labels.
    heads
        Names; default L0H0, L0H1, ...
    seed
        Seed of the draw.

    Returns
    -------
    Observations

    Raises
    ------
    FitError
        When constants differ in number or counts are not positive.
    """
    rng = generator(seed)
    b, a = np.atleast_1d(np.asarray(base, float)), np.atleast_1d(np.asarray(match, float))
    if b.shape != a.shape:
        raise FitError(f"constants: expected as many match as base constants, got {a.shape} and {b.shape}")
    classes = {len(row) for row in counts}
    if len(classes) != 1 or min(min(row) for row in counts) < 0:
        raise FitError("counts: expected tuples of equal length with counts of at least 0")
    n_classes = classes.pop()
    k = max(sum(row) for row in counts)
    label = np.full((contexts, k), -1)
    for c in range(contexts):
        row = rng.permutation(np.asarray(counts[int(rng.integers(len(counts)))]))
        shuffled = rng.permutation(np.repeat(np.arange(n_classes), row))
        label[c, : len(shuffled)] = shuffled
    mask = label >= 0
    query = rng.integers(n_classes, size=(contexts, queries))
    same = (label[:, None, :] == query[:, :, None]) & mask[:, None, :]
    similarity = same.astype(np.float64)
    if graded:
        similarity = np.where(same, rng.beta(5, 2, same.shape), rng.beta(2, 5, same.shape))
    n = contexts * queries
    similarity = similarity.reshape(n, k)
    labels, here = np.repeat(label, queries, axis=0), np.repeat(mask, queries, axis=0)
    columns = np.stack([np.ones((n, k)), similarity], axis=2)
    mean = predicted_attention(columns, here, np.stack([b, a], axis=1))
    attention = _noisy(mean, queries, concentration, context_correlation, rng)
    label_mask = np.ones((n, n_classes), dtype=bool)
    truth = make_link("share").predict(label_mass(mean, labels, n_classes), label_mask)
    probability = truth * np.exp(label_noise * rng.standard_normal(truth.shape))
    observed = label_mass(attention, labels, n_classes)
    slope = np.broadcast_to(np.asarray(copy_slope, float), b.shape)
    effect = slope[None, :, None] * observed + effect_noise * rng.standard_normal(observed.shape)
    return Observations.from_arrays(
        attention,
        similarity,
        labels,
        np.repeat(np.arange(contexts), queries),
        label_probability=probability,
        label_mask=label_mask,
        query_label=query.reshape(n),
        heads=tuple(f"L0H{j}" for j in range(len(b))) if heads is None else tuple(heads),
        label_effect=effect,
        vocabulary_mass=np.full(n, 1.0),
    )


def _noisy(
    mean: Float[np.ndarray, "n h k"],
    queries: int,
    concentration: float,
    correlation: float,
    rng: np.random.Generator,
) -> Float[np.ndarray, "n h k"]:
    """Dirichlet rows with this mean, correlated between the prompts of a context.

    A Dirichlet row is a row of gamma variables of shape (concentration x mean), normalised. Each is the sum of an
    own gamma variable and of a gamma process of the context, read at the prompt's own time: sums of independent
    gamma variables are gamma, so every row is exactly Dirichlet.
    """
    n, h, k = mean.shape
    cells = np.concatenate([mean, 1 - mean.sum(axis=2, keepdims=True)], axis=2)
    shape = concentration * np.maximum(cells, 0.0)
    own = rng.gamma((1 - correlation) * shape)
    time = (correlation * shape).reshape(n // queries, queries, h, k + 1)
    order = np.argsort(time, axis=1)
    steps = np.diff(np.take_along_axis(time, order, axis=1), axis=1, prepend=0.0)
    path = np.cumsum(rng.gamma(np.maximum(steps, 0.0)), axis=1)
    shared = np.take_along_axis(path, np.argsort(order, axis=1), axis=1).reshape(n, h, k + 1)
    total = own + shared
    rows: np.ndarray = total / total.sum(axis=2, keepdims=True)
    return rows[:, :, :k]
