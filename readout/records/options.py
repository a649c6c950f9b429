"""What an extraction reads, and how it batches."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class ExtractionOptions:
    """What an extraction reads, which is part of the record's specification, and how it batches, which is not.

    Attributes
    ----------
    effects : read the direct effect of every head on every candidate label
    residual_layers : layers whose incoming residual stream is kept, at the query and before each label
    share_contexts : compute a context once for all of its queries
    batch_tokens : tokens a batch, padding included (at least one context); None: 2,048 on a CPU, elsewhere as many as
        fit. Batches that do not fit are halved. What is read depends on it by rounding only.
    label_residuals : keep the residual stream at each label too
    blind : run a second pass in which no token attends to a label before it, and keep its residual stream at the query
        and before each label
    """

    effects: bool = True
    residual_layers: tuple[int, ...] = ()
    share_contexts: bool = True
    batch_tokens: int | None = None
    label_residuals: bool = False
    blind: bool = False

    def specified(self) -> dict[str, Any]:
        """What is read, as plain data; what came later is named only where it is used, so that records made without
        it stay valid."""
        later = {"label_residuals": self.label_residuals, "blind": self.blind}
        plain = {name: value for name, value in asdict(self).items() if name not in {*later, "batch_tokens"}}
        named = {name: value for name, value in later.items() if value}
        return plain | {"residual_layers": list(self.residual_layers)} | named


def middle_layers(n_layers: int, count: int = 6) -> tuple[int, ...]:
    """Layers whose residual stream a graded match may be made of: from half to two thirds of the depth.

    Parameters
    ----------
    n_layers
        Layers of the model; all of them where there are at most ``count``.
    count
        Most layers to name.

    Returns
    -------
    Layers, ascending.
    """
    if n_layers <= count:
        return tuple(range(n_layers))
    return tuple(sorted({round(place) for place in np.linspace(n_layers / 2, 2 * n_layers / 3, count)}))
