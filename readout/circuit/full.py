"""Interventions by one full forward pass each: slow, and the measure of the fast ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from readout.circuit.edits import Intervention
from readout.circuit.outcome import Answers
from readout.circuit.program import Affine, Bias, Program
from readout.circuit.states import label_candidates
from readout.circuit.values import Values
from readout.models import Edits, LanguageModel, Session, pack


def intervene_fully(
    model: LanguageModel,
    values: Values,
    interventions: Sequence[Intervention],
    watch: Sequence[tuple[int, int]],
    normalise: bool,
) -> Answers:
    """Make each intervention in a full pass over the chunk's prompts, one row a prompt."""
    prompts = values.states.prompts
    batch = pack([[one.token_ids] for one in prompts])
    k = max(len(one.label_positions) for one in prompts)
    columns = np.stack([np.r_[0, np.pad(one.label_positions, (0, k - len(one.label_positions)))] for one in prompts])
    heads = [model.heads.index(head) for head in watch]
    candidates = label_candidates(prompts)
    logits, attention = [], []
    for intervention in interventions:
        program = Program()
        for number, prompt in enumerate(prompts):
            for place, edit in enumerate(intervention.edits):
                program.add(number, place, edit, values.first + number, prompt, values)
        reading = model.run(batch, candidates, torch.from_numpy(columns) if heads else None, edits=as_edits(program))
        # The full pass gives log-probabilities: logits whose normaliser is 1.
        logits.append(reading.log_probabilities.cpu())
        if reading.attention is not None:
            attention.append(reading.attention[:, heads].cpu())
    found = torch.stack(logits).numpy()
    normaliser = np.zeros(found.shape[:2], np.float32) if normalise else None
    if not attention:
        return Answers(found, normaliser)
    weights = torch.stack(attention).numpy()
    return Answers(found, normaliser, weights[..., 1:], weights[..., 0])


def as_edits(program: Program) -> Edits:
    """The program as edits of a pass whose rows and tokens are the program's."""
    scores = {layer: [_bias(bias)] for layer, bias in program.scores.items()}
    outputs = {layer: [_affine(one) for one in changes] for layer, changes in program.heads.items()}
    residuals = {layer: [_affine(one) for one in changes] for layer, changes in program.residuals.items()}
    return Edits(scores, outputs, residuals)


def change(tensor: Tensor, affine: Affine, rows: Tensor) -> None:
    """Apply ``scale * old + shift`` in place at the given rows."""
    where = (rows, affine.tokens, affine.heads)
    at = tuple(one.to(tensor.device) for one in where if one is not None)
    scale, shift = affine.scale.to(tensor), affine.shift.to(tensor)
    # Where the scale is 0 the old value must not matter, not even when it is infinite.
    tensor[at] = torch.where(scale == 0, shift, scale * tensor[at] + shift)


def _affine(affine: Affine) -> Any:
    def edit(tensor: Tensor, session: Session | None = None) -> Tensor:
        tensor = tensor.clone()
        change(tensor, affine, affine.rows)
        return tensor

    return edit


def _bias(bias: Bias) -> Any:
    def edit(scores: Tensor, at: Tensor, session: Session) -> Tensor:
        scores = scores.clone()
        rows = bias.rows.to(at.device)
        entry, place = (at[rows] == bias.tokens.to(at.device)[:, None]).nonzero(as_tuple=True)
        chosen = [one.to(at.device)[entry] for one in (bias.rows, bias.heads, bias.keys)]
        scores[chosen[0], chosen[1], place, chosen[2]] += bias.shift.to(at.device)[entry]
        return scores

    return edit
