"""Records of what a model did at the query, written and read as zarr; `extract` needs torch, the rest does not."""

from typing import TYPE_CHECKING, Any

from readout.records.schema import check_record, head_name, head_names, provenance
from readout.records.store import open_record

if TYPE_CHECKING:
    from readout.records.extraction import ExtractionOptions, extract

__all__ = ["ExtractionOptions", "check_record", "extract", "head_name", "head_names", "open_record", "provenance"]


def __getattr__(name: str) -> Any:
    if name in ("extract", "ExtractionOptions"):
        # torch is imported only where a model is run
        from readout.records import extraction

        return getattr(extraction, name)
    raise AttributeError(f"module 'readout.records' has no attribute {name!r}")
