"""Task vectors: the last token's stream of few-shot prompts put in the place of the query's own, at one layer.

Source: Hendel et al. (2023), In-context learning creates task vectors; icr.md, section 6.
"""

from __future__ import annotations

import numpy as np
import torch

from readout.errors import ReadoutError
from readout.icr.methods.base import Ground, Logits, accuracy
from readout.icr.methods.sources import answer_by_source, at_last, edited_answers, few_of_each, rows_by_source
from readout.icr.passes import Batch
from readout.icr.queries import Queries


class TaskVectors:
    """One vector a training set, overwriting the last token's stream; the layer is chosen on development queries.

    The vector is the mean over few-shot prompts whose queries are other training examples.

    Parameters
    ----------
    layers : int
        Layers that are tried, spread evenly over the model.
    items : int
        Development queries of each set that they are tried on.
    """

    name = "task vectors"

    def __init__(self, layers: int = 10, items: int = 20) -> None:
        self.layers, self.items = layers, items
        self.layer = -1
        self.vectors: dict[str, dict[int, np.ndarray]] = {}
        self._ground: Ground | None = None

    def fit(self, ground: Ground) -> None:
        """Average and choose the layer."""
        self._ground = ground
        streams = ground.vectors.residual
        if not streams:
            raise ReadoutError("task vectors: the directions were read without the residual stream; read them anew")
        self.vectors = {
            name: {layer: streams[layer][rows].mean(0) for layer in streams}
            for name, rows in rows_by_source(ground.vectors.domains).items()
        }
        few = few_of_each(ground.development, self.items)
        # what enters the first layer is the last token's embedding, the same in every prompt of a set
        above = [layer for layer in sorted(streams) if layer > 0]
        tried = [above[i] for i in np.unique(np.linspace(0, len(above) - 1, self.layers).round().astype(int))]
        found = {layer: accuracy(self._answered(few, layer), few) for layer in tried}
        self.layer = max(tried, key=lambda layer: found[layer])

    def answer(self, queries: Queries) -> Logits:
        """With the last token's stream overwritten at the chosen layer."""
        return self._answered(queries, self.layer)

    def _answered(self, queries: Queries, layer: int) -> Logits:
        if self._ground is None:
            raise ReadoutError(f"{self.name}: fit it first")
        model = self._ground.model

        def answer(own: Queries, source: str) -> Logits:
            vector = torch.from_numpy(self.vectors[source][layer]).to(model.device)

            def edits(batch: Batch) -> dict[int, list]:  # type: ignore[type-arg]
                return {layer: [at_last(batch, lambda stream: vector.expand_as(stream))]}

            return edited_answers(model, own, edits)

        return answer_by_source(queries, self.vectors, answer)
