"""Low-rank adaptation of the output head, the paper's trained baseline: logits + B A h, B zero at the start.

Source: Hu et al. (2022), LoRA; icr.md, section 5 (table 8: rank 32 on the output head). Only the head changes, so the
vector that it reads is computed once a query.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from readout.errors import ReadoutError
from readout.icr.methods.base import Ground, Logits
from readout.icr.passes import last_logits
from readout.icr.queries import Queries
from readout.models import LanguageModel
from readout.models.wiring import hooked
from readout.statistics import generator

BATCH = 16


class LoraHead:
    """One adapter for all training sets.

    Parameters
    ----------
    rank : int
    shots : int
        Demonstrations of each answer that it is trained on (the paper: one prompt's worth), 0 for all training queries.
    epochs, learning_rate
        Of AdamW.
    """

    name = "lora on the head"

    def __init__(self, rank: int = 32, shots: int = 0, epochs: int = 4, learning_rate: float = 1e-3) -> None:
        self.rank, self.shots, self.epochs, self.learning_rate = rank, shots, epochs, learning_rate
        self.losses: list[float] = []
        self._ground: Ground | None = None
        self._down = self._up = torch.zeros(0)

    def fit(self, ground: Ground) -> None:
        """Train on the answer's token over the whole vocabulary."""
        self._ground = ground
        queries = ground.queries if not self.shots else _first_of_each_answer(ground.queries, self.shots)
        inputs = head_inputs(ground.model, queries)
        targets = torch.from_numpy(queries.options[np.arange(len(queries)), queries.answers]).to(inputs.device)
        head: Any = ground.model.wiring.unembedding
        draw = generator(ground.seed * 401)
        start = draw.standard_normal((self.rank, inputs.shape[1])) / inputs.shape[1] ** 0.5
        down = nn.Parameter(torch.from_numpy(start).to(inputs))
        up = nn.Parameter(torch.zeros(head.weight.shape[0], self.rank, device=inputs.device))
        optimizer = torch.optim.AdamW([down, up], lr=self.learning_rate)
        for _ in range(self.epochs):
            total = 0.0
            for rows in np.array_split(draw.permutation(len(queries)), -(-len(queries) // BATCH)):
                chosen = torch.from_numpy(rows).to(inputs.device)
                own = inputs[chosen]
                with torch.no_grad():
                    plain = ground.model.wiring.logit_scale * head(own.to(head.weight.dtype)).float()
                loss = F.cross_entropy(plain + (own @ down.T) @ up.T, targets[chosen])
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                total += float(loss.detach()) * len(rows)
            self.losses.append(total / len(queries))
        self._down, self._up = down.detach(), up.detach()

    @property
    def parameters(self) -> int:
        """Numbers that were trained."""
        return self._down.numel() + self._up.numel()

    @torch.inference_mode()
    def answer(self, queries: Queries) -> Logits:
        """Zero-shot logits plus the adapter's."""
        if self._ground is None:
            raise ReadoutError(f"{self.name}: fit it first")
        inputs = head_inputs(self._ground.model, queries)
        options = torch.from_numpy(np.maximum(queries.options, 0)).to(inputs.device)
        added = torch.einsum("nr,nor->no", inputs @ self._down.T, self._up[options])
        return queries.zero_shot + np.where(queries.options < 0, np.nan, added.cpu().numpy())


@torch.inference_mode()
def head_inputs(model: LanguageModel, queries: Queries) -> Float[Tensor, "queries width"]:
    """What the output head reads at each query's last token, float32."""
    found: list[Tensor] = [torch.empty(0)] * len(queries)
    for rows in queries.batches(2048):
        seen: list[Tensor] = []

        def keep(args: tuple[Any, ...], kwargs: dict[str, Any], seen: list[Tensor] = seen) -> None:
            seen.append(args[0])

        with hooked(model.wiring.unembedding, keep):
            batch = queries.batch(rows, model)
            last_logits(model, batch)
        # seen before or after the pass narrows it to the last tokens, by the order of the hooks
        hidden = seen[0] if seen[0].shape[1] == 1 else seen[0][torch.arange(len(rows)), batch.last][:, None]
        for place, row in enumerate(rows.tolist()):
            found[row] = hidden[place, 0].float().clone()
    return torch.stack(found)


def _first_of_each_answer(queries: Queries, each: int) -> Queries:
    seen: dict[tuple[str, int], int] = {}
    rows: Sequence[int] = []
    for row, (name, answer) in enumerate(zip(queries.domains, queries.answers.tolist(), strict=True)):
        seen[name, answer] = seen.get((name, answer), 0) + 1
        rows = [*rows, row] if seen[name, answer] <= each else rows
    return queries.of(rows)
