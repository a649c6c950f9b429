"""In-context routing as a method, and each of its controls as the same method with one thing changed."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from jaxtyping import Float

from readout.errors import ReadoutError
from readout.icr.bases import make_basis
from readout.icr.basis import third
from readout.icr.carriers import Carrier, ResidualStream, RoutedAttention
from readout.icr.encoders import Reader, make_encoder
from readout.icr.methods.base import Ground, Logits
from readout.icr.queries import Queries
from readout.icr.router import RouterSettings
from readout.icr.routing import Rows
from readout.icr.training import RouterTrainer, TrainingReport, routed_answers


@dataclass(frozen=True)
class Variant:
    """One way of routing.

    Attributes
    ----------
    basis : str
        Kind of basis (`readout.icr.bases.KINDS`).
    scale : str
        Scale of a projection (`readout.icr.bases.SCALES`); "std" keeps the start near the native logits' size.
    rank : int
        Pairs of directions.
    layers : str
        "early", "middle", "late" or "all".
    rows : str
        Query positions that are biased, "all" or "last".
    encoder : str
        "ground" for the ground's own, "own" or "random" (`readout.icr.encoders.ENCODERS`).
    router : str
        What the router is given of a query (`readout.icr.encoders.ROUTERS`).
    carrier : str
        "attention", "trained" (the directions are trained too), or "residual".
    settings : RouterSettings
    """

    basis: str = "pca"
    scale: str = "std"
    rank: int = 8
    layers: str = "late"
    rows: Rows = "all"
    encoder: str = "ground"
    router: str = "query"
    carrier: str = "attention"
    settings: RouterSettings = field(default_factory=RouterSettings)


class Routed:
    """In-context routing in one of its variants.

    Parameters
    ----------
    name : str
        In tables.
    variant : Variant
        Its own seed is replaced by the ground's.
    """

    def __init__(self, name: str = "icr", variant: Variant | None = None) -> None:
        self.name, self.variant = name, variant or Variant()
        self.training: TrainingReport | None = None
        self.carrier: Carrier | None = None
        self.reader: Reader | None = None
        self._trainer: RouterTrainer | None = None

    def fit(self, ground: Ground) -> None:
        """Make the basis and train the router, or take it from the ground's folder."""
        variant = self.variant
        self.carrier = make_carrier(variant, ground)
        own = variant.encoder == "ground"
        encode = ground.encode if own else make_encoder(variant.encoder, ground.model, ground.seed)
        queries = ground.queries
        self.reader = Reader.fit(encode, variant.router, queries.texts, queries.domains, ground.seed)
        if queries.layer > min(self.carrier.layers):
            queries = queries.from_the_start()
        settings = replace(variant.settings, seed=ground.seed)
        features = self.reader(queries.texts, queries.domains)
        self._trainer = RouterTrainer(self.carrier, queries, features, settings, ground.place(self.name))
        self.training = self._trainer.run()

    def answer(self, queries: Queries) -> Logits:
        """Routed, at the alpha scale of the last epoch."""
        return self.answer_scaled(queries, 1.0)

    def answer_scaled(self, queries: Queries, factor: float | Float[np.ndarray, " queries"]) -> Logits:
        """Routed with alpha times a further factor, for all queries or for each."""
        if self._trainer is None or self.carrier is None or self.reader is None:
            raise ReadoutError(f"{self.name}: fit it first")
        if queries.layer > min(self.carrier.layers):
            queries = queries.from_the_start()
        features = self.reader(queries.texts, queries.domains)
        scale = np.asarray(factor) * self._trainer.settings.last_scale
        return routed_answers(self.carrier, self._trainer.router, queries, features, scale)

    @property
    def trainer(self) -> RouterTrainer:
        """The finished training run."""
        if self._trainer is None:
            raise ReadoutError(f"{self.name}: fit it first")
        return self._trainer

    @property
    def folder(self) -> Path | None:
        """Where its checkpoints are."""
        return None if self._trainer is None else self._trainer.out


def make_carrier(variant: Variant, ground: Ground) -> Carrier:
    """What a variant's router changes.

    Raises
    ------
    ReadoutError
        If the variant's carrier is unknown.
    """
    layers = third(variant.layers, len(ground.model.wiring.attentions))
    if variant.carrier == "residual":
        return ResidualStream.of(ground.model, ground.vectors, variant.rank, layers)
    if variant.carrier not in ("attention", "trained"):
        raise ReadoutError(f"carrier {variant.carrier!r}: expected attention, trained or residual")
    basis = make_basis(ground.vectors, variant.rank, variant.basis, variant.scale, layers, ground.seed)
    return RoutedAttention(ground.model, basis, variant.rows, variant.carrier == "trained")
