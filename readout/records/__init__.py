"""Records of what a model did at the query, written and read as zarr; only `extract` needs torch."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from readout.records.schema import check_record, head_name, head_names, provenance

if TYPE_CHECKING:
    from readout.records.extraction import extract
    from readout.records.options import ExtractionOptions, middle_layers
    from readout.records.store import open_record

__all__ = [
    "ExtractionOptions",
    "check_record",
    "extract",
    "head_name",
    "head_names",
    "middle_layers",
    "open_record",
    "provenance",
]

_HOMES = {
    "ExtractionOptions": "options",
    "extract": "extraction",
    "middle_layers": "options",
    "open_record": "store",
}


def __getattr__(name: str) -> Any:
    # zarr is imported where a store is opened, torch where a model is run
    if name in _HOMES:
        return getattr(import_module(f"readout.records.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'readout.records' has no attribute {name!r}")
