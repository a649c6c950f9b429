"""Bases to route with: the paper's components, and the controls whose bias has the same size.

The size of a bias is the spread over keys of one row's entries at alpha = gamma = 1, over the few-shot prompts' own
last-token queries and keys: the paper's random basis differs from its components in this size by an order of magnitude,
so that size and content cannot be told apart (icr.md, section 10).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from readout.errors import ReadoutError
from readout.icr.basis import Basis
from readout.icr.directions import SIDES, Centring, Vectors, pca_basis
from readout.statistics import generator

SCALES = ("raw", "dimension", "std")
NO_SPREAD = 1e-5
KINDS = ("pca", "pca-uncentred", "pca-within", "random", "random-unmatched")


def make_basis(
    vectors: Vectors,
    rank: int,
    kind: str = "pca",
    scale: str = "std",
    layers: Sequence[int] | None = None,
    seed: int = 0,
) -> Basis:
    """A basis by name.

    Parameters
    ----------
    vectors : Vectors
        Of few-shot prompts.
    rank : int
        Pairs of directions.
    kind : str
        "pca"; "pca-uncentred"; "pca-within" (within-domain centred); "random" (orthonormal, its bias rescaled to the
        size of pca's); "random-unmatched" (the paper's control).
    scale : str
        "raw" (the paper: bias unscaled), "dimension" (over sqrt(head_dim), as the native logits), or "std" (each
        projection divided by its standard deviation over the prompts).
    layers : sequence of int, optional
        Of these layers only.
    seed : int
        Seed of the random directions.

    Raises
    ------
    ReadoutError
        If a name is unknown.
    """
    if kind not in KINDS:
        raise ReadoutError(f"basis {kind!r}: expected one of {', '.join(KINDS)}")
    if scale not in SCALES:
        raise ReadoutError(f"scale {scale!r}: expected one of {', '.join(SCALES)}")
    layers = tuple(layers or vectors.layers)
    centrings: dict[str, Centring] = {"pca-uncentred": "none", "pca-within": "domain"}
    if kind.startswith("random"):
        basis = random_basis(vectors, rank, layers, seed)
    else:
        basis = pca_basis(vectors, rank, centrings.get(kind, "mean"), layers)
    basis = _scaled(basis, vectors, scale)
    if kind in ("random", "pca-within"):
        wanted = bias_size(_scaled(pca_basis(vectors, rank, "mean", layers), vectors, scale), vectors)
        own = bias_size(basis, vectors)
        factors = {layer: wanted[layer] / own[layer] if own[layer] > 0 else 1.0 for layer in layers}
        basis = basis.scaled(factors, f"{kind}, matched in size")
    return basis


def random_basis(vectors: Vectors, rank: int, layers: Sequence[int], seed: int) -> Basis:
    """Orthonormal directions out of Gaussian draws."""
    draw = generator(seed)
    sides: dict[str, dict[int, torch.Tensor]] = {"query": {}, "key": {}}
    for layer in layers:
        for name in SIDES:
            width = getattr(vectors, name)[layer].shape[1]
            sides[name][layer] = torch.from_numpy(np.linalg.qr(draw.standard_normal((width, rank)))[0]).float()
    return Basis(sides["query"], sides["key"], "random")


def bias_size(basis: Basis, vectors: Vectors) -> dict[int, float]:
    """Root mean square over queries of the bias' standard deviation over keys, at alpha = gamma = 1, by layer."""
    found = {}
    for layer in basis.layers:
        queries = vectors.query[layer] @ basis.query[layer].numpy()
        keys = vectors.key[layer] @ basis.key[layer].numpy()
        # mean_i Var_j(q_i . k_j) = mean_i q_i' Cov(k) q_i, so no table of queries by keys is needed
        spread = np.einsum("ij,jk,ik->i", queries, np.atleast_2d(np.cov(keys.T, bias=True)), queries)
        found[layer] = float(np.sqrt(spread.mean()))
    return found


def _scaled(basis: Basis, vectors: Vectors, scale: str) -> Basis:
    if scale == "raw":
        return basis
    query, key = dict(basis.query), dict(basis.key)
    for layer in basis.layers:
        if scale == "dimension":
            query[layer] = query[layer] / vectors.head_dim**0.5
            continue
        for side, name in ((query, "query"), (key, "key")):
            raw = getattr(vectors, name)[layer]
            spread = (raw @ side[layer].numpy()).std(0)
            # Where prompts do not differ (the first layer reads the same last token), there is no spread to divide by.
            spread = np.where(spread > NO_SPREAD * np.linalg.norm(raw, axis=1).mean(), spread, 1.0)
            side[layer] = side[layer] / torch.from_numpy(spread).float()
    return Basis(query, key, basis.name)
