"""The zarr store of a record: written chunk by chunk, so that a stopped extraction goes on where it stopped.

A chunk is a fixed run of contexts, so its content does not depend on when it is computed; ``chunk_written`` says which
are there. Another specification is refused, never mixed in.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
import zarr

from readout.errors import RecordError
from readout.records.places import Place, is_empty, is_there, open_store, place_of
from readout.records.schema import DIMS, FLOATS, check_record

WRITTEN = "chunk_written"
FORMAT = 1


class RecordStore:
    """A record on disk, at a URL or in memory that is written a chunk at a time.

    Parameters
    ----------
    place : folder or URL of the zarr store, or None for memory
    sizes : length of every dimension
    chunk : length of a chunk along the dimensions that grow: prompts, and context rows
    specification : what the record is of; resuming needs the very same
    attributes : the record's attributes
    coordinates : arrays by name, each along one dimension

    Raises
    ------
    RecordError
        If the store holds something else, or a record of another specification.
    """

    def __init__(
        self,
        place: Place | None,
        sizes: Mapping[str, int],
        chunk: Mapping[str, int],
        specification: Mapping[str, Any],
        attributes: Mapping[str, Any],
        coordinates: Mapping[str, tuple[str, np.ndarray]],
        variables: tuple[str, ...],
    ) -> None:
        self._store: Any = zarr.storage.MemoryStore() if place is None else open_store(place)
        self._sizes, self._chunk = dict(sizes), dict(chunk)
        self._variables = variables
        text = json.dumps(dict(specification), sort_keys=True)
        group = None if place is None else _begun(place, self._store, text)
        self._group = group or self._create(text, dict(attributes), coordinates)

    def _create(
        self, specification: str, attributes: dict[str, Any], coordinates: Mapping[str, tuple[str, np.ndarray]]
    ) -> zarr.Group:
        group = zarr.create_group(self._store, overwrite=True, attributes={"format": FORMAT})
        for name in self._variables:
            dims = DIMS[name]
            _array(
                group,
                name,
                shape=tuple(self._sizes[dim] for dim in dims),
                chunks=tuple(max(1, min(self._chunk.get(dim, self._sizes[dim]), self._sizes[dim])) for dim in dims),
                dims=dims,
                dtype="float32" if name in FLOATS else "int64" if name == "label_id" else "int32",
                fill=np.nan if name in FLOATS else -1,
            )
        for name, (dim, values) in coordinates.items():
            array = _array(group, name, values.shape, values.shape, (dim,), str(values.dtype), 0)
            array[:] = values
        _array(group, WRITTEN, (self.n_chunks,), (1,), ("chunk",), "int8", 0)
        # The specification is written last: a store without it was stopped before its first chunk and is begun anew.
        group.attrs.update({**attributes, "specification": specification})
        return group

    @property
    def n_chunks(self) -> int:
        return -(-self._sizes["prompt"] // self._chunk["prompt"])

    def missing(self) -> list[int]:
        """Chunks that are still to be written."""
        written = _open_array(self._group, WRITTEN)[:]
        return [int(chunk) for chunk in np.flatnonzero(np.asarray(written) == 0)]

    def write(self, chunk: int, values: Mapping[str, np.ndarray]) -> None:
        """Write one chunk's arrays, then mark it as written."""
        for name, value in values.items():
            growing = DIMS[name][0]
            start = chunk * self._chunk[growing]
            _open_array(self._group, name)[start : start + len(value)] = value
        _open_array(self._group, WRITTEN)[chunk] = 1

    def dataset(self) -> xr.Dataset:
        """The record, all chunks being written."""
        return _dataset(self._store, "record")


def open_record(where: str | Path) -> xr.Dataset:
    """Open a finished record.

    Parameters
    ----------
    where : folder of the record, or a URL that fsspec knows (s3://, gs://, memory://, file://)

    Raises
    ------
    RecordError
        If there is none, it is unfinished, or it is corrupt.
    """
    place = place_of(where)
    if not is_there(place):
        raise RecordError(f"{place} does not exist: give the folder of a record written by readout extract")
    return _dataset(open_store(place, read_only=True), str(place))


def _dataset(store: Any, where: str) -> xr.Dataset:
    try:
        record = xr.open_zarr(store, consolidated=False, chunks=None, mask_and_scale=False).load()
    except Exception as error:  # zarr, its codecs and JSON each raise their own on a damaged store
        raise RecordError(
            f"{where} is not a readable record ({type(error).__name__}: {error}); give the folder "
            "of a record (a run's is fit/record.zarr); if it is damaged, delete it and extract it again"
        ) from error
    if WRITTEN not in record:
        raise RecordError(f"{where} is not a record: it lacks {WRITTEN}; make it with readout extract")
    left = int((record[WRITTEN].values == 0).sum())
    if left:
        raise RecordError(
            f"{where} is unfinished: {left} of {record.sizes['chunk']} chunks are missing; run the extraction again"
        )
    coordinates = [name for name in ("layer", "head_in_layer", "residual_layer") if name in record]
    return check_record(record.drop_vars(WRITTEN).set_coords(coordinates), where)


def _begun(place: Place, store: Any, specification: str) -> zarr.Group | None:
    """The store that is there to be gone on with; None where one is to be begun."""
    if is_empty(place):
        return None
    try:
        group = zarr.open_group(store, mode="r+")
        found, ours = group.attrs.get("specification"), group.attrs.get("format") == FORMAT
    except Exception as error:
        raise RecordError(f"{place} holds something that is not a record ({error}): give another folder") from error
    if found is None and ours:
        return None
    if found is None:
        raise RecordError(f"{place} holds something that is not a record: delete it, or give another folder")
    if _known(str(found)) != json.loads(specification):
        told = _difference(str(found), specification)
        hint = "; readout run sets residual_layers by --match" if "residual_layers" in told else ""
        raise RecordError(
            f"{place} holds a record of another specification ({told}{hint}): give another folder, or delete it"
        )
    return group


def _known(specification: str) -> dict[str, Any]:
    """A stored specification; older ones name the batch size, which is no part of what a record is of."""
    found: dict[str, Any] = json.loads(specification)
    found.get("options", {}).pop("batch_tokens", None)
    return found


def _difference(found: str, wanted: str) -> str:
    old, new = _known(found), json.loads(wanted)
    names = [name for name in sorted(old.keys() | new.keys()) if old.get(name) != new.get(name)]
    # The digest says nothing to a reader where the fields themselves differ.
    names = [name for name in names if name != "digest"] or names
    inner = [
        f"{name}: {_short(old.get(name), new.get(name))} there, {_short(new.get(name), old.get(name))} wanted"
        for name in names
    ]
    return "; ".join(inner)


def _short(value: Any, other: Any) -> str:
    """``value``, or where both are objects only the entries in which they differ."""
    if isinstance(value, dict) and isinstance(other, dict):
        value = {key: entry for key, entry in value.items() if entry != other.get(key)}
    return json.dumps(value)


def _array(
    group: zarr.Group,
    name: str,
    shape: tuple[int, ...],
    chunks: tuple[int, ...],
    dims: tuple[str, ...],
    dtype: str,
    fill: float,
) -> Any:
    return group.create_array(
        name, shape=shape, chunks=chunks, dtype=dtype, dimension_names=dims, fill_value=fill, overwrite=True
    )


def _open_array(group: zarr.Group, name: str) -> Any:
    return group[name]
