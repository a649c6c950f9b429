"""Whether interventions from a kept pass are exact in a model: tried once on made-up prompts."""

from __future__ import annotations

import weakref

import numpy as np

from readout.circuit.edits import Block, Edges, Heads, Intervention, Residual, Scale, Zero
from readout.circuit.full import intervene_fully
from readout.circuit.positions import LABELS, QUERY
from readout.circuit.resumed import intervene_resumed
from readout.circuit.states import keep_states
from readout.circuit.values import Values
from readout.models import LanguageModel
from readout.models.check import TOLERANCE
from readout.prompts import Prompt, TokenizedPrompt
from readout.prompts.prompt import Demonstration

_EXACT: weakref.WeakKeyDictionary[LanguageModel, bool] = weakref.WeakKeyDictionary()


def can_resume(model: LanguageModel) -> bool:
    """Whether resumed passes of a model equal full ones."""
    if model not in _EXACT:
        try:
            _EXACT[model] = deviation(model) <= TOLERANCE[model.dtype]
        except RuntimeError:
            # A model that insists on the batch size that it was called with (GPT-BigCode) cannot take in more rows.
            _EXACT[model] = False
    return _EXACT[model]


def deviation(model: LanguageModel, seed: int = 0) -> float:
    """Largest difference of log-probabilities between resumed and full passes over some edits of each kind."""
    first, last = model.heads[0][0], model.heads[-1][0]
    middle = (first + last) // 2
    edits = [
        Intervention.of("", (Heads(first, (0,), QUERY), Zero())),
        Intervention.of("", (Heads(middle, (), LABELS), Scale(0.5))),
        Intervention.of("", (Residual(last, LABELS), Scale(2.0)), (Edges(middle, (0,), QUERY, LABELS), Block())),
    ]
    values = Values(model.wiring, keep_states(model, made_up_prompts(model, seed), True), {}, {})
    slow = intervene_fully(model, values, edits, (), True)
    fast = intervene_resumed(model, values, edits, (), True, 1024)
    assert fast.log_normaliser is not None
    return float(np.abs(fast.logits - fast.log_normaliser[..., None] - slow.logits).max())


def made_up_prompts(model: LanguageModel, seed: int = 0) -> list[TokenizedPrompt]:
    """Two prompts of random tokens that share their demonstrations, and one of its own."""
    rng = np.random.default_rng(seed)
    vocabulary = int(model.model.get_input_embeddings().num_embeddings)
    found = []
    for context, length in ((0, 3), (0, 2), (1, 4)):
        tokens = np.random.default_rng(seed + context).integers(0, vocabulary, 14)
        labels = np.array([3, 6, 9])
        tokens = np.concatenate([tokens[:10], rng.integers(0, vocabulary, length)])
        prompt = Prompt(
            context,
            tuple(Demonstration(f"text {i}", "one", "A") for i in range(3)),
            f"query {length}",
            "one",
            ("A", "B"),
            ("one", "other"),
            "{text}: {label}\n",
        )
        spans = np.stack([labels - 2, labels], 1)
        query = np.array([10, len(tokens)])
        shown = np.zeros(3, np.int64)
        label_ids = np.array([1, 2])
        found.append(
            TokenizedPrompt(prompt, tokens, labels, shown, label_ids, labels - 1, spans, query, len(tokens) - 1)
        )
    return found
