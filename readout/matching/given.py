"""A match that the user gives as a function of the record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from jaxtyping import Float

from readout.errors import FitError
from readout.matching.similarity import Similarity, shown

if TYPE_CHECKING:
    import xarray


@dataclass(frozen=True, eq=False)
class Given(Similarity):
    """s = function(record), numbers in [0, 1]; a file keeps its name only.

    Parameters
    ----------
    function
        From a record to [n, k]; None for one that was read from a file.
    label
        What to call it.
    """

    name: ClassVar[str] = "given"
    function: Callable[[xarray.Dataset], np.ndarray] | None
    label: str = "a function"

    def __call__(self, record: xarray.Dataset) -> Float[np.ndarray, "n k"]:
        """What the function gives [n, k], 0 where there is no demonstration."""
        if self.function is None:
            raise FitError(
                f"match: the similarity {self.label!r} was given as a function, which a file lacks; give "
                "Observations with their own match"
            )
        similarity, here = np.asarray(self.function(record), dtype=np.float64), shown(record)
        if similarity.shape != here.shape:
            raise FitError(f"match: expected {here.shape} numbers from {self.label!r}, got shape {similarity.shape}")
        return np.where(here, similarity, 0.0)

    def describe(self) -> str:
        """In a few words."""
        return f"given ({self.label})"

    def to_dict(self) -> dict[str, Any]:
        """Its name."""
        return {"similarity": self.name, "label": self.label}

    @classmethod
    def _read(cls, data: dict[str, Any]) -> Given:
        return cls(None, str(data.get("label", "a function")))
