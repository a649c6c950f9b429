"""Run interventions: many at once, each equal to a full forward pass with the same edit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from readout.circuit.checks import (
    Prompts,
    as_interventions,
    as_sources,
    as_tokenized,
    check_edits,
    check_finite,
    check_options,
)
from readout.circuit.edits import Head, Intervention, Resample, as_heads
from readout.circuit.full import intervene_fully
from readout.circuit.outcome import Answers, Outcome
from readout.circuit.program import means_needed
from readout.circuit.resumed import intervene_resumed
from readout.circuit.self_test import can_resume
from readout.circuit.states import States, keep_states
from readout.circuit.values import MeanKey, Means, Values, resampled_prompts, resampled_source
from readout.models import LanguageModel
from readout.prompts import TokenizedPrompt

KEPT_BYTES = 2**30
"""Most memory that the kept passes of a chunk of prompts may take."""
Method = Literal["auto", "resumed", "full"]


def intervene(
    model: LanguageModel,
    prompts: Prompts,
    interventions: Sequence[Intervention],
    *,
    reference: Prompts | None = None,
    sources: Mapping[str, Prompts] | None = None,
    watch: Sequence[Head | str] = (),
    normalise: bool = False,
    method: Method = "auto",
    batch_tokens: int = 8192,
    progress: bool = False,
) -> Outcome:
    """Make interventions on prompts and read the labels' logits at the query.

    The unedited pass runs once; an edited pass recomputes only the tokens that the edit can reach, from the first
    edited layer on, many interventions in one batch, the rest read from the kept keys and values.

    Parameters
    ----------
    model : LanguageModel
        The model.
    prompts : sequence of Prompt or TokenizedPrompt
        The prompts to intervene on.
    interventions : sequence of Intervention
        What to do, each on its own.
    reference : sequence of prompts, optional
        Prompts over which `Mean` is taken; the same prompts by default.
    sources : mapping of str to sequence of prompts, optional
        Lists that `Patch` reads, each as long as `prompts`.
    watch : sequence of (int, int) or str
        Heads, as (layer, head) or by name, whose attention at the query is read too.
    normalise : bool
        Whether to compute the sum over the vocabulary, for probabilities over all tokens.
    method : str
        "resumed" from the kept pass, "full" for one forward pass an intervention, "auto" for resumed where a test
        shows that it is exact.
    batch_tokens : int
        Most tokens recomputed in a batch.
    progress : bool
        Whether to show a bar.

    Returns
    -------
    Outcome
        Equal for all methods, to float tolerance.

    Raises
    ------
    InterventionError
        If an intervention names a layer, head, source or position that does not exist, lists do not fit, or an edit
        leaves logits that are not finite.
    """
    check_options(model, method, get_args(Method), batch_tokens)
    interventions = as_interventions(interventions)
    watched = as_heads(watch, "watch")
    own = as_tokenized(model, prompts, "prompts")
    lists = as_sources(model, {} if sources is None else sources, own)
    over = None if reference is None else as_tokenized(model, reference, "reference")
    check_edits(model, own, interventions, lists, over is not None, watched)
    for seed in {edit.action.seed for one in interventions for edit in one.edits if isinstance(edit.action, Resample)}:
        lists[resampled_source(seed)] = resampled_prompts(own, seed)
    if method == "auto":
        method = "resumed" if can_resume(model) else "full"
    needed = means_needed([edit for one in interventions for edit in one.edits])
    chunks = list(_chunks(model, own, 1 + len(lists)))
    means: dict[MeanKey, Tensor] = {}
    if needed and (over is not None or len(chunks) > 1):
        means = _means(model, own if over is None else over, needed)
    parts: list[tuple[Answers, Answers]] = []
    with tqdm(total=len(own), unit="prompt", desc="intervene", disable=not progress) as bar:
        for start, stop in chunks:
            states = keep_states(model, own[start:stop], normalise or method == "full")
            if needed and not means:
                means = _mean_of(states, needed)
            passes = {name: keep_states(model, given[start:stop]) for name, given in lists.items()}
            values = Values(model.wiring, states, means, passes, start)
            parts.append(_run(model, values, interventions, watched, normalise, method, batch_tokens))
            bar.update(stop - start)
    return _joined(own, interventions, watched, parts)


def _run(
    model: LanguageModel,
    values: Values,
    interventions: Sequence[Intervention],
    watch: Sequence[Head],
    normalise: bool,
    method: Method,
    batch_tokens: int,
) -> tuple[Answers, Answers]:
    """Unedited and edited answers of a chunk."""
    made = [Intervention("", ()), *interventions]
    if method == "full":
        both = intervene_fully(model, values, made, watch, normalise)
    else:
        both = intervene_resumed(model, values, made, watch, normalise, batch_tokens)
    check_finite(model, made, both)
    return _part(both, 0), _part(both, slice(1, None))


def _part(answers: Answers, which: int | slice) -> Answers:
    fields = (answers.logits, answers.log_normaliser, answers.attention, answers.sink)
    return Answers(*(None if one is None else one[which] for one in fields))  # type: ignore[arg-type]


def _chunks(model: LanguageModel, prompts: Sequence[TokenizedPrompt], lists: int) -> Iterator[tuple[int, int]]:
    """Runs of prompts whose kept passes fit in memory."""
    width = int(model.model.get_input_embeddings().embedding_dim)
    numbers = sum(part.n_heads * part.value_dim + 2 * part.n_kv_heads * part.value_dim + width
                  for part in model.wiring.attentions)  # fmt: skip
    most = KEPT_BYTES // (numbers * torch.empty(0, dtype=model.dtype).element_size() * lists)
    start, tokens = 0, 0
    for number, one in enumerate(prompts):
        if number > start and tokens + len(one.token_ids) > most:
            yield start, number
            start, tokens = number, 0
        tokens += len(one.token_ids)
    yield start, len(prompts)


def _mean_of(states: States, needed: Iterable[MeanKey]) -> dict[MeanKey, Tensor]:
    means = Means(needed)
    means.take(states)
    return means.result()


def _means(
    model: LanguageModel, prompts: Sequence[TokenizedPrompt], needed: Iterable[MeanKey]
) -> dict[MeanKey, Tensor]:
    means = Means(needed)
    for start, stop in _chunks(model, prompts, 1):
        means.take(keep_states(model, prompts[start:stop]), start)
    return means.result()


def _joined(
    prompts: Sequence[TokenizedPrompt],
    interventions: Sequence[Intervention],
    watch: Sequence[Head],
    parts: Sequence[tuple[Answers, Answers]],
) -> Outcome:
    n_labels = max(len(one.label_ids) for one in prompts)
    k = max(len(one.label_positions) for one in prompts)
    asked = [one.prompt for one in prompts]
    is_label = np.stack([np.arange(n_labels) < len(one.label_ids) for one in prompts])
    is_shown = np.stack([np.arange(k) < len(one.label_positions) for one in prompts])

    def joined(answers: Sequence[Answers]) -> Answers:
        logits = np.concatenate([_padded(one.logits, n_labels) for one in answers], -2)
        normaliser = [one.log_normaliser for one in answers if one.log_normaliser is not None]
        attention = [_padded(one.attention, k) for one in answers if one.attention is not None]
        sink = [one.sink for one in answers if one.sink is not None]
        return Answers(
            np.where(is_label, logits, np.nan),
            np.concatenate(normaliser, -1) if normaliser else None,
            np.where(is_shown[:, None], np.concatenate(attention, -3), np.nan) if attention else None,
            np.concatenate(sink, -2) if sink else None,
        )

    shown = [np.pad(one.demonstration_labels, (0, k - len(one.label_positions)), constant_values=-1) for one in prompts]
    match = [[shown.class_name == one.query_class for shown in one.demonstrations] for one in asked]
    return Outcome(
        tuple(one.name for one in interventions),
        tuple(watch),
        joined([one[0] for one in parts]),
        joined([one[1] for one in parts]),
        np.array([one.context for one in asked]),
        np.array([one.label_classes.index(one.query_class) for one in asked]),
        np.stack(shown),
        np.stack([np.pad(np.array(one, bool), (0, k - len(one))) for one in match]),
    )


def _padded(values: np.ndarray, width: int) -> np.ndarray:
    return np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, width - values.shape[-1])])
