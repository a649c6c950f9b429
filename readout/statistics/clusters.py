"""Clusters (contexts) as consecutive integers, and sums within them."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int, Shaped
from scipy import sparse

from readout.errors import ReadoutError


def cluster_index(clusters: Shaped[np.ndarray, " n"]) -> tuple[Int[np.ndarray, " n"], int]:
    """Map any cluster names to 0..C-1, in the order of the sorted names.

    Parameters
    ----------
    clusters
        One name (number or text) per observation.

    Returns
    -------
    index : int array [n]
    count : number of clusters C

    Raises
    ------
    ReadoutError
        When there is no observation or the array is not one-dimensional.
    """
    names = np.asarray(clusters)
    if names.ndim != 1 or names.size == 0:
        raise ReadoutError(
            f"clusters: expected one name per observation, a non-empty array [n], got shape {names.shape}"
        )
    unique, index = np.unique(names, return_inverse=True)
    return index.astype(np.int64), len(unique)


def cluster_sums(
    values: Float[np.ndarray, " n ..."], index: Int[np.ndarray, " n"], count: int
) -> Float[np.ndarray, " c ..."]:
    """Sum the rows of each cluster.

    Parameters
    ----------
    values
        [n, ...], summed along the first axis.
    index, count
        From `cluster_index`.

    Returns
    -------
    [C, ...] float64
    """
    array = np.asarray(values, dtype=np.float64)
    n = len(array)
    indicator = sparse.csr_array((np.ones(n), (index, np.arange(n))), shape=(count, n))
    flat = array.reshape(n, -1)
    return np.asarray(indicator @ flat).reshape((count, *array.shape[1:]))
