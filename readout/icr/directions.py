"""Directions of few-shot prompts: last-token queries and keys over several domains, and their principal components.

Source: icr.md, section 1.2 (equation 7, algorithm 1), with section 9's choices: before the rotary embedding, key heads
unrepeated, centred components, projections without subtracting the mean.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file
from tqdm import tqdm

from readout.errors import ReadoutError
from readout.files import writable_file
from readout.icr.basis import Basis
from readout.icr.examples import Example, balanced, few_shot
from readout.icr.passes import by_length, last_logits, make_batch
from readout.icr.projections import PreRotary
from readout.models import LanguageModel
from readout.statistics import generator

Centring = Literal["mean", "none", "domain"]
SIDES = ("query", "key")


@dataclass(frozen=True, eq=False)
class Vectors:
    """Last-token queries and keys of few-shot prompts, by layer.

    Attributes
    ----------
    query, key : dict of int to float32 [prompts, width]
        Heads side by side, key heads unrepeated.
    domains : tuple of str
        Each prompt's data set.
    residual : dict of int to float32 [prompts, width]
        The residual stream that enters the layer, at the same token.
    head_dim : int
        Size of a head.
    """

    query: Mapping[int, Float[np.ndarray, "prompts query_width"]]
    key: Mapping[int, Float[np.ndarray, "prompts key_width"]]
    domains: tuple[str, ...]
    residual: Mapping[int, Float[np.ndarray, "prompts width"]] = field(default_factory=dict)
    head_dim: int = 1

    @property
    def layers(self) -> tuple[int, ...]:
        """The layers that were read."""
        return tuple(sorted(self.query))

    def of(self, rows: np.ndarray) -> Vectors:
        """Some of the prompts."""
        parts = [{layer: one[rows] for layer, one in side.items()} for side in (self.query, self.key, self.residual)]
        return Vectors(parts[0], parts[1], tuple(self.domains[i] for i in rows), parts[2], self.head_dim)

    def save(self, path: str | Path, provenance: Mapping[str, Any]) -> None:
        """Write as safetensors, whole or not at all; the provenance goes into the header."""
        tensors = {
            f"{name}.{layer}": np.ascontiguousarray(one)
            for name in (*SIDES, "residual")
            for layer, one in getattr(self, name).items()
        }
        path = writable_file(path)
        scratch = path.with_name(f".{path.name}.partial")
        told = {
            "domains": json.dumps(self.domains),
            "head_dim": str(self.head_dim),
            "provenance": json.dumps(dict(provenance)),
        }
        save_file(tensors, scratch, told)
        scratch.replace(path)

    @classmethod
    def load(cls, path: str | Path) -> tuple[Vectors, dict[str, Any]]:
        """Read vectors and their provenance.

        Raises
        ------
        ReadoutError
            If the file is none that `save` wrote.
        """
        sides: dict[str, dict[int, np.ndarray]] = {"query": {}, "key": {}, "residual": {}}
        try:
            with safe_open(path, "np") as file:
                told = file.metadata() or {}
                for name in file.keys():  # noqa: SIM118 - the file is no mapping
                    side, layer = name.split(".")
                    sides[side][int(layer)] = file.get_tensor(name)
            domains, provenance = json.loads(told["domains"]), json.loads(told["provenance"])
            head_dim = int(told["head_dim"])
        except (OSError, SafetensorError, KeyError, ValueError) as error:
            raise ReadoutError(
                f"{path} holds no vectors of few-shot prompts ({type(error).__name__}): make it with "
                "`readout icr directions`"
            ) from error
        return cls(sides["query"], sides["key"], tuple(domains), sides["residual"], head_dim), provenance


def few_shot_prompts(
    train: Mapping[str, Sequence[Example]],
    prompts: int,
    shots: int,
    seed: int,
    max_tokens: int = 0,
    tokenizer: Any = None,
) -> list[tuple[str, str]]:
    """Few-shot prompts of each domain: demonstrations and query from its training examples.

    Parameters
    ----------
    train : mapping of str to examples
        By data set.
    prompts : int
        For each data set.
    shots : int
        Demonstrations of each answer.
    seed : int
        Seed of the draws.
    max_tokens : int
        Leave out demonstrations until a prompt is no longer; the query is never cut. 0 for never.
    tokenizer : any
        Needed with ``max_tokens``.

    Returns
    -------
    list of (str, str)
        Data set and text of each prompt.
    """
    found = []
    for place, (name, examples) in enumerate(train.items()):
        draw = generator(seed * 1009 + place)
        for number in range(prompts):
            query = examples[int(draw.integers(len(examples)))]
            others = [one for one in examples if one.prompt != query.prompt]
            shown = balanced(others, shots, int(draw.integers(2**31)) + number)
            text = few_shot(shown) + query.prompt
            while max_tokens and shown and len(tokenizer(text).input_ids) > max_tokens:
                shown = shown[1:]
                text = few_shot(shown) + query.prompt
            found.append((name, text))
    return found


@torch.inference_mode()
def read_vectors(
    model: LanguageModel,
    prompts: Sequence[tuple[str, str]],
    layers: Sequence[int],
    *,
    pooling: int = 1,
    batch_tokens: int = 2048,
    progress: bool = False,
) -> Vectors:
    """Run prompts and keep the last token's pre-rotary queries and keys.

    Parameters
    ----------
    model : LanguageModel
    prompts : sequence of (str, str)
        Data set and text of each.
    layers : sequence of int
        Layers to read.
    pooling : int
        Mean over this many last tokens (the paper takes 1; 4 and 8 are its ablation).
    batch_tokens : int
        Most tokens of a batch.
    progress : bool
        Whether to show a bar.
    """
    taps = PreRotary(model, layers)
    ids = [np.array(model.tokenizer(text).input_ids, np.int64) for _, text in prompts]
    sides: dict[str, dict[int, list[np.ndarray]]] = {
        name: {layer: [np.zeros(0)] * len(ids) for layer in layers} for name in (*SIDES, "residual")
    }
    batches = by_length([len(one) for one in ids], batch_tokens)
    for rows in tqdm(batches, desc="few-shot prompts", unit="batch", disable=not progress):
        batch = make_batch([ids[row] for row in rows], device=model.device)
        stream = {layer: torch.empty(0) for layer in layers}
        with taps.reading():
            last_logits(model, batch, keep=stream)
        for layer in layers:
            for name, values in (("query", taps.query), ("key", taps.key), ("residual", stream)):
                for place, row in enumerate(rows.tolist()):
                    stop = int(batch.last[place]) + 1
                    taken = values[layer][place, max(0, stop - pooling) : stop]
                    sides[name][layer][row] = taken.float().mean(0).cpu().numpy()
    query, key, residual = ({layer: np.stack(one) for layer, one in sides[name].items()} for name in sides)
    part = model.wiring.attentions[0]
    head_dim = query[layers[0]].shape[1] // part.n_heads
    return Vectors(query, key, tuple(name for name, _ in prompts), residual, head_dim)


def centred(
    vectors: Float[np.ndarray, "n width"], domains: Sequence[str], centring: Centring
) -> Float[np.ndarray, "n width"]:
    """Vectors less their mean, less their domain's mean, or as they are.

    Raises
    ------
    ReadoutError
        If the centring is none of mean, domain, none.
    """
    vectors = vectors.astype(np.float64)
    if centring == "none":
        return vectors
    if centring == "mean":
        return np.asarray(vectors - vectors.mean(0))
    if centring == "domain":
        return np.asarray(vectors - _domain_means(vectors, domains))
    raise ReadoutError(f"centring {centring!r}: expected mean, domain or none")


def _domain_means(vectors: np.ndarray, domains: Sequence[str]) -> np.ndarray:
    means = np.zeros_like(vectors)
    for name in set(domains):
        own = np.array([one == name for one in domains])
        means[own] = vectors[own].mean(0)
    return means


def components(
    vectors: Float[np.ndarray, "n width"], rank: int
) -> tuple[Float[np.ndarray, "width rank"], Float[np.ndarray, " rank"]]:
    """Principal directions of (centred) vectors, orthonormal, and the share of energy of each.

    The sign of a direction is chosen so that its largest entry is positive.

    Raises
    ------
    ReadoutError
        If there are fewer vectors or dimensions than directions.
    """
    if rank > min(vectors.shape):
        raise ReadoutError(f"rank {rank} needs as many prompts and dimensions; there are {vectors.shape}")
    _, sizes, rows = np.linalg.svd(vectors, full_matrices=False)
    directions = rows[:rank].T
    directions = directions * np.sign(directions[np.abs(directions).argmax(0), np.arange(rank)])
    return directions, sizes[:rank] ** 2 / max(float((sizes**2).sum()), 1e-300)


def pca_basis(vectors: Vectors, rank: int, centring: Centring = "mean", layers: Sequence[int] | None = None) -> Basis:
    """The paper's directions: per layer, principal components of queries and of keys, orthonormal."""
    sides: dict[str, dict[int, torch.Tensor]] = {"query": {}, "key": {}}
    for layer in layers or vectors.layers:
        for name in SIDES:
            values = centred(getattr(vectors, name)[layer], vectors.domains, centring)
            sides[name][layer] = torch.from_numpy(components(values, rank)[0]).float()
    return Basis(sides["query"], sides["key"], "pca" if centring == "mean" else f"pca, centring {centring}")


@dataclass(frozen=True)
class DirectionReport:
    """How much the directions hold, of whom, and how stable they are; by layer, of queries and of keys.

    Attributes
    ----------
    layers : tuple of int
    explained : dict of str to tuple of float
        Share of the centred energy that the directions hold.
    between : dict of str to tuple of float
        Of that, the share that lies between the domains' means.
    angles : dict of str to tuple of float
        Largest principal angle, degrees, between the directions of two halves of the prompts (each domain halved);
        median over the layers' draws.
    chance_angles : dict of str to tuple of float
        The same of two random subspaces.
    """

    layers: tuple[int, ...]
    rank: int
    prompts: int
    explained: Mapping[str, tuple[float, ...]]
    between: Mapping[str, tuple[float, ...]]
    angles: Mapping[str, tuple[float, ...]]
    chance_angles: Mapping[str, tuple[float, ...]]

    def summary(self) -> str:
        """One line a layer."""
        lines = [
            f"{self.rank} directions of {self.prompts} few-shot prompts; of queries | of keys",
            "layer   explained   between domains   angle of halves (two random subspaces), degrees",
        ]
        for place, layer in enumerate(self.layers):
            pairs = [
                " | ".join(f"{one[side][place]:{width}}" for side in SIDES)
                for one, width in ((self.explained, ".2f"), (self.between, ".2f"), (self.angles, ".0f"))
            ]
            chance = " | ".join(f"{self.chance_angles[side][place]:.0f}" for side in SIDES)
            lines.append(f"{layer:5}   {pairs[0]}   {pairs[1]}   {pairs[2]}   ({chance})")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        pairs = {
            name: {side: list(one) for side, one in getattr(self, name).items()}
            for name in ("explained", "between", "angles", "chance_angles")
        }
        return {"layers": list(self.layers), "rank": self.rank, "prompts": self.prompts} | pairs


def principal_angles(first: Float[np.ndarray, "width r"], other: Float[np.ndarray, "width r"]) -> np.ndarray:
    """Angles in degrees between the spans of two orthonormal bases, smallest first.

    Source
    ------
    Bjoerck & Golub (1973): the arc cosines of the singular values of their product.
    """
    cosines = np.linalg.svd(first.T @ other, compute_uv=False)
    return np.asarray(np.degrees(np.arccos(np.clip(cosines, -1.0, 1.0))))


def report_directions(vectors: Vectors, rank: int, centring: Centring = "mean", seed: int = 0) -> DirectionReport:
    """Measure directions: energy held, share between domains, agreement of two halves."""
    found: dict[str, dict[str, list[float]]] = {
        name: {side: [] for side in SIDES} for name in ("explained", "between", "angles", "chance")
    }
    halves = _halves(vectors.domains, seed)
    draw = generator(seed)
    for layer in vectors.layers:
        for side in SIDES:
            raw = getattr(vectors, side)[layer]
            values = centred(raw, vectors.domains, centring)
            directions, shares = components(values, rank)
            projected = values @ directions
            means = _domain_means(projected, vectors.domains)
            found["explained"][side].append(float(shares.sum()))
            found["between"][side].append(float((means**2).sum() / max(float((projected**2).sum()), 1e-300)))
            own = [
                components(centred(raw[rows], [vectors.domains[i] for i in rows], centring), rank)[0] for rows in halves
            ]
            found["angles"][side].append(float(principal_angles(*own).max()))
            drawn = [np.linalg.qr(draw.standard_normal(directions.shape))[0] for _ in range(2)]
            found["chance"][side].append(float(principal_angles(*drawn).max()))
    tuples = {name: {side: tuple(one) for side, one in sides.items()} for name, sides in found.items()}
    return DirectionReport(
        vectors.layers, rank, len(vectors.domains),
        tuples["explained"], tuples["between"], tuples["angles"], tuples["chance"],
    )  # fmt: skip


def _halves(domains: Sequence[str], seed: int) -> tuple[np.ndarray, np.ndarray]:
    draw = generator(seed)
    first: list[int] = []
    other: list[int] = []
    for name in sorted(set(domains)):
        own = draw.permutation([i for i, one in enumerate(domains) if one == name])
        first += own[: len(own) // 2].tolist()
        other += own[len(own) // 2 :].tolist()
    return np.array(first), np.array(other)
