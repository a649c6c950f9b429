"""Controls: random heads of the same layers, permuted matches, and observed attention as the ceiling."""

from __future__ import annotations

import re

import numpy as np
from jaxtyping import Float

from readout.fitting import Link, Observations, SoftmaxReadout, fit_constants, label_mass, permuted_match
from readout.fitting.likelihood import predicted_attention
from readout.fitting.terms import features
from readout.statistics import generator


def layer_of(head: str) -> str:
    """Layer in a name such as "L18H6"; names of another kind all count as one layer."""
    found = re.fullmatch(r"L(\d+)H\d+", head)
    return found.group(1) if found else ""


def masses(observations: Observations, theta: Float[np.ndarray, "h d"], terms: tuple[str, ...]) -> np.ndarray:
    """Predicted mass on labels [n, h, l] of heads with these constants."""
    attention = predicted_attention(features(observations, terms), observations.mask, theta)
    return label_mass(attention, observations.label, observations.label_mask.shape[1])


def observed_mass(observations: Observations, heads: tuple[str, ...]) -> Float[np.ndarray, "n h l"]:
    """Observed mass on labels [n, h, l]."""
    attention = observations.select_heads(heads).attention
    return label_mass(attention, observations.label, observations.label_mask.shape[1])


def ceiling_prediction(
    link: Link, fit: Observations, target: Observations, heads: tuple[str, ...]
) -> Float[np.ndarray, "n l"]:
    """The target's observed attention through a link whose constants are fitted to the fit set's attention.

    What could be known if attention were predicted perfectly; no bound, since attention that is nearly 0 on a label
    makes a link err more than a smooth prediction of it does.
    """
    fitted = link.fit(observed_mass(fit, heads), fit.label_probability, fit.label_mask)
    return fitted.predict(observed_mass(target, heads), target.label_mask)


def random_head_sets(
    heads: tuple[str, ...], pool: tuple[str, ...], draws: int, rng: np.random.Generator
) -> list[tuple[str, ...]]:
    """Draws of as many heads as `heads`, each from the same layer, or from anywhere once a layer has none left.

    Parameters
    ----------
    heads
        The heads to stand in for.
    pool
        Heads to draw from, none of `heads`.
    draws, rng
        Number of draws, their generator.

    Returns
    -------
    A tuple of names a draw; none when the pool has fewer heads than are asked for.
    """
    if len(pool) < len(heads):
        return []
    sets = []
    for _ in range(draws):
        left = [str(name) for name in rng.permutation(np.array(pool))]
        chosen = []
        for head in heads:
            same = [name for name in left if layer_of(name) == layer_of(head)]
            name = (same or left)[0]
            left.remove(name)
            chosen.append(name)
        sets.append(tuple(chosen))
    return sets


def random_head_predictions(
    readout: SoftmaxReadout, fit: Observations, target: Observations, draws: int, seed: int
) -> list[Float[np.ndarray, "n l"]]:
    """Predictions of the target by readouts of random heads of the same layers, fitted in the same way.

    Returns
    -------
    One [n, l] a draw; none where the fit observations hold no other heads that can be fitted.
    """
    heads = readout.usable_heads_
    others = tuple(name for name in fit.heads if name not in set(readout.heads_))
    layers = {layer_of(head) for head in heads}
    near = tuple(name for name in others if layer_of(name) in layers)
    wanted = near if len(near) >= len(heads) else others
    if not wanted:
        return []
    constants = fit_constants(fit.select_heads(wanted), readout.terms_, covariance=False)
    place = {name: j for j, name in enumerate(wanted) if constants.usable[j]}
    rng = generator(seed)
    predictions = []
    for chosen in random_head_sets(heads, tuple(place), draws, rng):
        theta = constants.theta[[place[name] for name in chosen]]
        link = readout.link.fit(masses(fit, theta, readout.terms_), fit.label_probability, fit.label_mask)
        predictions.append(link.predict(masses(target, theta, readout.terms_), target.label_mask))
    return predictions


def permuted_predictions(
    readout: SoftmaxReadout, fit: Observations, target: Observations, draws: int, seed: int
) -> list[Float[np.ndarray, "n l"]]:
    """Predictions of the target by the same heads, fitted to shuffled matches.

    Returns
    -------
    One [n, l] a draw.
    """
    chosen = fit.select_heads(readout.usable_heads_)
    predictions = []
    for draw in range(draws):
        shuffled = chosen.with_match(permuted_match(chosen, seed + draw))
        constants = fit_constants(shuffled, readout.terms_, covariance=False)
        if not constants.usable.any():
            continue
        theta = constants.theta[constants.usable]
        mass = masses(shuffled, theta, readout.terms_)
        link = readout.link.fit(mass, fit.label_probability, fit.label_mask)
        predictions.append(link.predict(masses(target, theta, readout.terms_), target.label_mask))
    return predictions
