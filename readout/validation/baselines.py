"""Baselines that know nothing of attention; their constants are fitted to the fit distribution only."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from scipy import optimize

from readout.errors import FitError
from readout.fitting import Observations, label_mass
from readout.fitting.links import FLOOR, label_share, masked_softmax

BASELINES = ("uniform", "label_frequency", "match", "match_log_count", "similarity_log_count")


def uniform(observations: Observations) -> Float[np.ndarray, "n l"]:
    """Equal probability for each of the prompt's labels."""
    mask = observations.label_mask
    probability: np.ndarray = mask / mask.sum(axis=1, keepdims=True)
    return probability


def label_frequency(observations: Observations) -> Float[np.ndarray, "n l"]:
    """Each label's share of the prompt's demonstrations."""
    return label_share(label_counts(observations)[:, None], observations.label_mask)


def label_counts(observations: Observations) -> Float[np.ndarray, "n l"]:
    """Number of demonstrations of each label."""
    ones = observations.mask[:, None, :].astype(np.float64)
    return label_mass(ones, observations.label, observations.label_mask.shape[1])[:, 0]


def match_logits(
    observations: Observations, constant: float, count: bool
) -> tuple[Float[np.ndarray, "n l"], Float[np.ndarray, "n l"]]:
    """Logits log sum_{i: l_i = l} exp(c s_i) (with `count`) or log of their mean, and derivatives by c.

    With a binary match these are c m_l + log n_l and c m_l. A label without demonstrations gets the logit of the
    smallest share (with `count`) or 0.
    """
    labels = observations.label_mask.shape[1]
    s = np.where(observations.mask, observations.match, 0.0)
    # exp(c s) with c s shifted by its largest value in the prompt: no overflow at any constant.
    shift = np.maximum(constant, 0.0)
    weight = np.where(observations.mask, np.exp(constant * s - shift), 0.0)
    stacked = np.stack([weight, weight * s, observations.mask.astype(np.float64)], axis=1)
    total, slope, number = label_mass(stacked, observations.label, labels).transpose(1, 0, 2)
    shown = number > 0
    safe = np.where(shown, total, 1.0)
    logits = np.log(np.maximum(safe, 1e-300)) + shift
    absent = np.log(FLOOR) if count else 0.0
    logits = logits if count else logits - np.log(np.where(shown, number, 1.0))
    return np.where(shown, logits, absent), np.where(shown, slope / safe, 0.0)


def fit_match_constant(observations: Observations, count: bool) -> float:
    """The one constant c that minimises KL(model || prediction).

    Raises
    ------
    FitError
        When label probabilities are not known.
    """
    if not observations.has_probabilities:
        raise FitError("baseline 'match': label_probability is needed on the fit distribution; give it")
    mask, p = observations.label_mask, observations.label_probability
    n = len(p)

    def loss(c: np.ndarray) -> tuple[float, np.ndarray]:
        logits, slope = match_logits(observations, float(c[0]), count)
        prediction = masked_softmax(logits, mask)
        kept = np.where(mask & (prediction > 0), prediction, 1.0)
        gradient = ((prediction - p) * np.where(mask, slope, 0.0)).sum() / n
        return float(-(p * np.log(kept)).sum() / n), np.array([gradient])

    found = optimize.minimize(
        loss, np.ones(1), jac=True, method="L-BFGS-B", bounds=[(-50, 50)], options={"ftol": 1e-15, "gtol": 1e-10}
    )
    return float(found.x[0])


def match(observations: Observations, constant: float) -> Float[np.ndarray, "n l"]:
    """softmax_l(c m_l): one match constant, no counts, no attention."""
    return masked_softmax(match_logits(observations, constant, False)[0], observations.label_mask)


def match_log_count(observations: Observations, constant: float) -> Float[np.ndarray, "n l"]:
    """softmax_l(log sum_{i: l_i = l} exp(c s_i)): one match constant and the counts, no attention."""
    return masked_softmax(match_logits(observations, constant, True)[0], observations.label_mask)


def baseline_predictions(
    fit: Observations, target: Observations
) -> tuple[dict[str, Float[np.ndarray, "n l"]], dict[str, float]]:
    """Every baseline's prediction of the target, and the constants fitted to the fit distribution.

    "match" and "match_log_count" use the binary match; where the observations' match is graded, "similarity_log_count"
    is the same with the graded one: what the similarity is worth without any attention.

    Returns
    -------
    name -> [n, l]; name -> constant
    """
    predictions = {"uniform": uniform(target), "label_frequency": label_frequency(target)}
    seen, held_out = (one.with_match(one.class_match) for one in (fit, target))
    asked = [("match", seen, held_out, False), ("match_log_count", seen, held_out, True)]
    if fit.is_graded or target.is_graded:
        asked.append(("similarity_log_count", fit, target, True))
    constants = {}
    for name, shown, hidden, count in asked:
        constants[name] = fit_match_constant(shown, count)
        predictions[name] = (match_log_count if count else match)(hidden, constants[name])
    return predictions, constants
