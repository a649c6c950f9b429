"""Observations of all heads on prompts at hand: attention to labels, direct effects, label probabilities."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from readout.circuit.states import label_candidates
from readout.errors import InterventionError
from readout.fitting import Observations
from readout.models import LanguageModel, pack
from readout.prompts import TokenizedPrompt
from readout.records.schema import head_name

BATCH_TOKENS = 2048


def observe(model: LanguageModel, prompts: Sequence[TokenizedPrompt]) -> Observations:
    """Run prompts once and read what readers are named by.

    Parameters
    ----------
    model : LanguageModel
        The model.
    prompts : sequence of TokenizedPrompt
        With demonstrations.

    Returns
    -------
    Observations
        All heads, with direct effects on labels (none where the model's unembedding does not follow a norm).

    Raises
    ------
    InterventionError
        If there are no prompts, or one has no demonstrations.
    """
    if not prompts or any(not len(one.label_positions) for one in prompts):
        raise InterventionError("readers are named on prompts with demonstrations: give at least one, each with shots")
    k = max(len(one.label_positions) for one in prompts)
    longest = max(len(one.token_ids) for one in prompts)
    step = max(1, BATCH_TOKENS // longest)
    found = [_run(model, prompts[start : start + step], k) for start in range(0, len(prompts), step)]
    attention, effects, logs = (None if part[0] is None else np.concatenate(part) for part in zip(*found, strict=True))
    asked = [one.prompt for one in prompts]
    most = max(len(one.label_ids) for one in prompts)
    shown = np.stack([_padded(one.demonstration_labels, k) for one in prompts])
    match = np.stack(
        [_padded([float(d.class_name == one.query_class) for d in one.demonstrations], k, 0.0) for one in asked]
    )
    is_label = np.stack([np.arange(most) < len(one.label_ids) for one in prompts])
    assert attention is not None
    assert logs is not None
    return Observations.from_arrays(
        np.where(shown[:, None] >= 0, attention, 0.0),
        match,
        shown,
        np.array([one.context for one in asked]),
        label_probability=np.where(is_label, np.exp(_wide(logs, most)), np.nan),
        query_label=np.array([_right(one) for one in prompts]),
        heads=[head_name(layer, head) for layer, head in model.heads],
        label_effect=None if effects is None else np.where(is_label[:, None], _wide(effects, most), np.nan),
    )


def _run(
    model: LanguageModel, prompts: Sequence[TokenizedPrompt], k: int
) -> tuple[np.ndarray, np.ndarray | None, np.ndarray]:
    columns = torch.from_numpy(np.stack([_padded(one.label_positions, k, 0) for one in prompts]))
    candidates = label_candidates(prompts)
    effects = model.wiring.final_norm is not None
    reading = model.run(pack([[one.token_ids] for one in prompts]), candidates, columns, effects)
    assert reading.attention is not None
    found = None if reading.effects is None else reading.effects.float().cpu().numpy()
    return reading.attention.float().cpu().numpy(), found, reading.log_probabilities.cpu().numpy()


def _padded(values: Sequence[float] | np.ndarray, width: int, fill: float = -1) -> np.ndarray:
    return np.pad(np.asarray(values), (0, width - len(values)), constant_values=fill)


def _wide(values: np.ndarray, width: int) -> np.ndarray:
    return np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, width - values.shape[-1])], constant_values=np.nan)


def _right(prompt: TokenizedPrompt) -> int:
    own = prompt.prompt
    return own.label_classes.index(own.query_class) if own.query_class in own.label_classes else -1
