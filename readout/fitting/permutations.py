"""Shuffling which demonstrations match, context by context: the null of readers and of a control."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from readout.fitting.observations import Observations
from readout.statistics import generator


def split_contexts(context: Shaped[np.ndarray, " n"], seed: int = 0) -> Bool[np.ndarray, " n"]:
    """Prompts whose context falls into the first of two random halves.

    Parameters
    ----------
    context
        [n] context of each prompt.
    seed
        Seed of the split.

    Returns
    -------
    [n] True in the first half (the smaller one when the number of contexts is odd).
    """
    names = np.unique(np.asarray(context))
    rng = generator(seed)
    first: np.ndarray = np.isin(context, rng.permutation(names)[: len(names) // 2])
    return first


def shared_groups(observations: Observations) -> Int[np.ndarray, " n"]:
    """Prompts that share context and demonstrations, as integers: they are shuffled together."""
    rows = np.column_stack([observations.context, observations.mask])
    return np.unique(rows, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)


def permutation_draws(
    mask: Bool[np.ndarray, "n k"], groups: Int[np.ndarray, " n"], draws: int, rng: np.random.Generator
) -> Int[np.ndarray, "b g k"]:
    """Random orders of each group's demonstrations; positions without one stay in place.

    Parameters
    ----------
    mask, groups
        Demonstrations that exist, and the group of each prompt (0..G-1).
    draws, rng
        Number of permutations and their generator.

    Returns
    -------
    [draws, G, k]: new[j] = old[order[j]].
    """
    first = np.unique(groups, return_index=True)[1]
    here = mask[first]
    keys = np.where(here, rng.random((draws, *here.shape)), 2.0)
    shuffled = np.argsort(keys, axis=2, kind="stable")
    places = np.broadcast_to(np.argsort(~here, axis=1, kind="stable"), shuffled.shape)
    order = np.empty_like(shuffled)
    np.put_along_axis(order, places, shuffled, axis=2)
    return order


def permuted_match(observations: Observations, seed: int = 0) -> Float[np.ndarray, "n k"]:
    """The match with each context's class assignment shuffled once, the same for all its queries.

    Counts of matching demonstrations stay as they are.

    Parameters
    ----------
    observations
        Prompts.
    seed
        Seed of the shuffle.

    Returns
    -------
    [n, k]
    """
    rng = generator(seed)
    groups = shared_groups(observations)
    order = permutation_draws(observations.mask, groups, 1, rng)[0]
    return np.take_along_axis(observations.match, order[groups], axis=1)
