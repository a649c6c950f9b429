"""In-context vectors: per layer, the direction in which an answer moves a demonstration, added everywhere.

Source: Liu et al. (2024), In-context vectors; icr.md, section 6. The direction is the first principal component of the
differences about zero, so that its sign is theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from readout.errors import ReadoutError
from readout.icr.examples import Example
from readout.icr.methods.base import Ground, Logits, accuracy
from readout.icr.methods.sources import (
    answer_by_source,
    edited_answers,
    few_of_each,
    rows_by_source,
    shown_examples,
    told,
)
from readout.icr.passes import by_length, last_logits, make_batch
from readout.icr.queries import Queries
from readout.models import LanguageModel

STRENGTHS = (0.01, 0.03, 0.1)


class InContextVectors:
    """One direction a layer and training set; how much of it is added is chosen on development queries.

    Parameters
    ----------
    shots : int
        Demonstrations of each answer.
    items : int
        Development queries of each set.
    """

    name = "icv"

    def __init__(self, shots: int = 5, items: int = 20) -> None:
        self.shots, self.items = shots, items
        self.strength = 0.0
        self.directions: dict[str, dict[int, np.ndarray]] = {}
        self._ground: Ground | None = None

    def fit(self, ground: Ground) -> None:
        """Find the directions, then their strength."""
        self._ground = ground
        examples = shown_examples(ground, self.shots)
        found = differences(ground.model, examples)
        self.directions = {
            source: {layer: first_direction(one[rows]) for layer, one in found.items()}
            for source, rows in rows_by_source([one.dataset for one in examples]).items()
        }
        few = few_of_each(ground.development, self.items)
        self.strength = max(STRENGTHS, key=lambda one: accuracy(self._answered(few, one), few))

    def answer(self, queries: Queries) -> Logits:
        """With the directions added to all tokens in all layers, each token's norm kept."""
        return self._answered(queries, self.strength)

    def _answered(self, queries: Queries, strength: float) -> Logits:
        if self._ground is None:
            raise ReadoutError(f"{self.name}: fit it first")
        model = self._ground.model

        def answer(own: Queries, source: str) -> Logits:
            edits = {
                layer: [moving(torch.from_numpy(one).to(model.device), strength)]
                for layer, one in self.directions[source].items()
            }
            return edited_answers(model, own, lambda batch: edits)

        return answer_by_source(queries, self.directions, answer)


def moving(direction: Float[Tensor, " width"], strength: float) -> Callable[[Tensor], Tensor]:
    """Edit that turns a stream towards a direction of length 1 and keeps its norm."""

    def edit(hidden: Tensor) -> Tensor:
        norm = hidden.float().norm(dim=-1, keepdim=True)
        moved = hidden.float() / norm.clamp_min(1e-12) + strength * direction
        turned: Tensor = moved / moved.norm(dim=-1, keepdim=True).clamp_min(1e-12) * norm
        return turned.to(hidden.dtype)

    return edit


@torch.inference_mode()
def differences(model: LanguageModel, examples: Sequence[Example]) -> dict[int, Float[np.ndarray, "examples width"]]:
    """Last-token stream of each demonstration with its answer, less without it, entering every layer but the first."""
    layers = [part.layer for part in model.wiring.attentions][1:]
    sides = []
    for texts in ([told(one) for one in examples], [one.prompt for one in examples]):
        ids = [np.array(model.tokenizer(text).input_ids, np.int64) for text in texts]
        found: dict[int, list[np.ndarray]] = {layer: [np.zeros(0)] * len(ids) for layer in layers}
        for rows in by_length([len(one) for one in ids], 1024):
            batch = make_batch([ids[row] for row in rows], device=model.device)
            stream = {layer: torch.empty(0) for layer in layers}
            last_logits(model, batch, keep=stream)
            for layer, hidden in stream.items():
                own = hidden[torch.arange(len(rows)), batch.last.to(hidden.device)].float().cpu().numpy()
                for place, row in enumerate(rows.tolist()):
                    found[layer][row] = own[place]
        sides.append({layer: np.stack(one) for layer, one in found.items()})
    return {layer: sides[0][layer] - sides[1][layer] for layer in layers}


def first_direction(vectors: Float[np.ndarray, "n width"]) -> Float[np.ndarray, " width"]:
    """Unit vector along which vectors are largest in mean square, turned to their mean's side."""
    direction = np.linalg.svd(vectors, full_matrices=False)[2][0]
    return np.asarray(direction * (1.0 if vectors.mean(0) @ direction >= 0 else -1.0), np.float32)
