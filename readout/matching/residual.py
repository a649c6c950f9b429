"""Similarity of demonstration and query in the model's own residual stream, before any reader has read."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from jaxtyping import Float

from readout.errors import FitError
from readout.matching.logistic import fit_logistic, logistic
from readout.matching.similarity import Similarity, class_match, shown
from readout.statistics.checks import fields_of, reading

if TYPE_CHECKING:
    import xarray

MAPS = ("logistic", "linear")
PLACES = ("demonstration", "label")
"""The token before a demonstration's label, where the model is about to name its class, or the label itself."""


@dataclass(frozen=True, eq=False)
class ResidualCosine(Similarity):
    """s = map(cos(r_i - mean over demonstrations, r_q - mean over queries)), r the residual stream entering a layer.

    r_i is taken at the token before demonstration i's label (or at the label), r_q at the query's last token. Both
    means are those of the fitting record; a part `own` of the demonstrations' mean is replaced by the prompt's own,
    since texts of another task lie elsewhere, and the queries' mean is shifted with it.

    Parameters
    ----------
    layer
        The layer that the residual stream enters. At a layer above a reader, the stream holds what that reader has
        read, unless `blind`.
    map
        "logistic": sigmoid(u + v cos), u and v fitted to class match; "linear": (1 + cos) / 2.
    own
        Share of the prompt's own mean, in [0, 1].
    blind
        Take the residual streams of a pass in which no token attends to a label before it.
    place
        "demonstration": r_i at the token before the label; "label": at the label.
    demonstration_mean, query_mean : [width]
        Means of the fitting record; None before `fit`.
    constants
        u and v; () before `fit` and for the linear map.
    """

    name: ClassVar[str] = "residual_cosine"
    layer: int
    map: str = "logistic"
    own: float = 0.5
    blind: bool = False
    place: str = PLACES[0]
    demonstration_mean: Float[np.ndarray, " width"] | None = None
    query_mean: Float[np.ndarray, " width"] | None = None
    constants: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.map not in MAPS:
            raise FitError(f"map: expected one of {', '.join(MAPS)}, got {self.map!r}")
        if not 0 <= self.own <= 1:
            raise FitError(f"own: expected a share in [0, 1], got {self.own!r}")
        if self.place not in PLACES:
            raise FitError(f"place: expected one of {', '.join(PLACES)}, got {self.place!r}")
        if self.blind and self.place == "label":
            raise FitError("place: a pass blind to labels keeps no residual stream at labels; take the one before them")

    def fit(self, record: xarray.Dataset) -> ResidualCosine:
        """Means, and for the logistic map u and v, of this record.

        Raises
        ------
        FitError
            When the record does not keep these residual streams, or all its demonstrations match, or none.
        """
        before_label, query, _ = self._residuals(record)
        rows = np.isfinite(before_label[..., 0])
        centred = replace(self, demonstration_mean=before_label[rows].mean(axis=0), query_mean=query.mean(axis=0))
        if self.map == "linear":
            return centred
        here = shown(record)
        constants = fit_logistic(centred.cosine(record)[here][:, None], class_match(record)[here])
        return replace(centred, constants=tuple(float(value) for value in constants))

    def cosine(self, record: xarray.Dataset) -> Float[np.ndarray, "n k"]:
        """The cosine [n, k] itself, 0 where there is no demonstration."""
        if self.demonstration_mean is None or self.query_mean is None:
            raise FitError("match: the residual cosine has no means yet; fit it to the fitting record first")
        before_label, query, row = self._residuals(record)
        if query.shape[1] != len(self.query_mean):
            raise FitError(
                f"match: fitted to residual streams of width {len(self.query_mean)}, the record's have "
                f"{query.shape[1]}; extract both records from the same model"
            )
        own = np.nanmean(before_label, axis=1)
        centre = self.own * own + (1 - self.own) * self.demonstration_mean
        keys = _unit(np.nan_to_num(before_label - centre[:, None]))
        queries = _unit(query - self.query_mean - (centre - self.demonstration_mean)[row])
        return np.where(shown(record), np.einsum("nkw,nw->nk", keys[row], queries), 0.0)

    def __call__(self, record: xarray.Dataset) -> Float[np.ndarray, "n k"]:
        """The similarity [n, k]."""
        cosine = self.cosine(record)
        if self.map == "linear":
            similarity = np.clip((1 + cosine) / 2, 0.0, 1.0)
        else:
            similarity = logistic(cosine.reshape(-1, 1), np.array(self.constants)).reshape(cosine.shape)
        return np.where(shown(record), similarity, 0.0)

    def _residuals(
        self, record: xarray.Dataset
    ) -> tuple[Float[np.ndarray, "c k width"], Float[np.ndarray, "n width"], np.ndarray]:
        """Residual streams before the labels (NaN: none) and at the queries, and the context row of each prompt."""
        names = [f"{'blind_' if self.blind else ''}{place}_residual" for place in (self.place, "query")]
        missing = [name for name in names if name not in record]
        layers = [] if missing else record["residual_layer"].values.tolist()
        if missing or self.layer not in layers:
            told = f"keeps layers {', '.join(map(str, layers))}" if layers else f"lacks {', '.join(missing)}"
            option = " and --blind" if self.blind else " and --label-residuals" if self.place == "label" else ""
            raise FitError(
                f"match: the residual stream entering layer {self.layer} is needed and the record {told}; extract it "
                f"with --residual-layers {self.layer}{option}"
            )
        before_label, query = (record[name].sel(residual_layer=self.layer).values for name in names)
        row = np.arange(len(query)) // (len(query) // len(before_label))
        return before_label.astype(np.float64), query.astype(np.float64), row

    def describe(self) -> str:
        """In a few words."""
        told = f"residual cosine entering layer {self.layer}, {self.map} map"
        told += ", at the label" if self.place == "label" else ""
        return told + (", of a pass blind to labels" if self.blind else "")

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""

        def plain(mean: np.ndarray | None) -> list[float] | None:
            # float32 is what the means were made of: its shortest form keeps files small and reads back the same
            return None if mean is None else [float(str(value)) for value in mean.astype(np.float32)]

        return {
            "similarity": self.name,
            "layer": self.layer,
            "map": self.map,
            "own": self.own,
            "blind": self.blind,
            "place": self.place,
            "demonstration_mean": plain(self.demonstration_mean),
            "query_mean": plain(self.query_mean),
            "constants": list(self.constants),
        }

    @classmethod
    def _read(cls, data: dict[str, Any]) -> ResidualCosine:
        data = {"place": PLACES[0]} | data  # which files of before there was a choice do not name
        fields_of(data, [f.name for f in fields(cls)], "match")
        with reading("match"):
            means = [data[key] for key in ("demonstration_mean", "query_mean")]
            one, two = (None if mean is None else np.array(mean, dtype=np.float64) for mean in means)
            constants = tuple(float(value) for value in data["constants"])
            if data["map"] == "logistic" and one is not None and len(constants) != 2:
                raise FitError(f"match: a logistic map has two constants, got {len(constants)}")
            own, blind, place = float(data["own"]), bool(data["blind"]), str(data["place"])
            return cls(int(data["layer"]), data["map"], own, blind, place, one, two, constants)


def _unit(vectors: Float[np.ndarray, "*rows width"]) -> Float[np.ndarray, "*rows width"]:
    length = np.linalg.norm(vectors, axis=-1, keepdims=True)
    scaled: np.ndarray = vectors / np.where(length > 0, length, 1.0)
    return scaled
