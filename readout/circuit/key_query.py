"""A reader's two constants from class means of its queries and keys: nothing is fitted to attention.

The attention on a label is exp(s) / sum exp(s'), with s = q . k / sqrt(d) after the rotary embedding. Here the query
is the mean query of its class, the key at a label the mean key of labels after that class, and every other token's key
the mean of its kind (first token, demonstration text, query text, query, template), all turned by the rotary embedding
at their true positions. With R the log of the summed exp(s') of the tokens that are no labels, s - R is what the
readout calls b + a m: its mean over demonstrations of other classes is b, over those of the query's class b + a.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from transformers.models.llama.modeling_llama import rotate_half

from readout.errors import InterventionError
from readout.icr.projections import PreRotary
from readout.models import LanguageModel
from readout.models.attention import Core, changing
from readout.models.wiring import hooked
from readout.prompts import TokenizedPrompt
from readout.statistics import Estimate, cluster_bootstrap
from readout.statistics.checks import check_draws

TOLERANCE = 1e-3
Kind = tuple[str, str]


@dataclass(frozen=True)
class HeadPass:
    """One head on one prompt: pre-rotary vectors, and what turns and scales them.

    Parameters
    ----------
    query, keys
        [d] at the query and [T, d] at every token, before the rotary embedding.
    turn
        cos and sin [T, d] of the positions.
    scaling
        Factor of the scores.
    scores
        [T] the head's true scores at the query.
    """

    query: Float[Tensor, " d"]
    keys: Float[Tensor, "T d"]
    turn: tuple[Tensor, Tensor]
    scaling: float
    scores: Float[Tensor, " T"]


@dataclass(frozen=True)
class KeyQueryConstants:
    """A reader's constants from its weights: base and match as the readout has them, with intervals by context."""

    head: str
    base: Estimate
    match: Estimate

    def summary(self) -> str:
        """One line."""
        return f"{self.head}: base {self.base.summary(2)}, match {self.match.summary(2)} from class means"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {"head": self.head, "base": self.base.to_dict(), "match": self.match.to_dict()}


def key_query_constants(
    model: LanguageModel, prompts: Sequence[TokenizedPrompt], layer: int, head: int, draws: int = 2000, seed: int = 0
) -> KeyQueryConstants:
    """Base and match constants of one head from its class-mean queries and keys.

    Parameters
    ----------
    model
        Of a family whose rotary embedding turns halves of a head (Llama, Qwen, Mistral, SmolLM).
    prompts
        The fitting prompts; classes must occur both as query and as demonstration.
    layer, head
        The reader.
    draws, seed
        Of the bootstrap by context.

    Returns
    -------
    KeyQueryConstants

    Raises
    ------
    InterventionError
        If the model's scores are not those of turned queries and keys, or there are no demonstrations of the query's
        class or of another one.
    """
    check_draws(draws)
    passes = head_passes(model, prompts, layer, head)
    queries, keys = class_means(prompts, passes)
    rows = [_sums(prompt, one, queries, keys) for prompt, one in zip(prompts, passes, strict=True)]
    sums = np.array(rows)
    if (sums[:, [1, 3]].sum(axis=0) == 0).any():
        raise InterventionError("demonstrations both of the query's class and of another one are needed: none found")
    context = np.array([prompt.prompt.context for prompt in prompts])

    def base(s: np.ndarray) -> np.ndarray:
        value: np.ndarray = s[:, 0] / s[:, 1]
        return value

    def match(s: np.ndarray) -> np.ndarray:
        value: np.ndarray = s[:, 2] / s[:, 3] - s[:, 0] / s[:, 1]
        return value

    both = (cluster_bootstrap(sums, context, f, draws=draws, level=0.95, seed=seed) for f in (base, match))
    return KeyQueryConstants(f"L{layer}H{head}", *both)


def head_passes(model: LanguageModel, prompts: Sequence[TokenizedPrompt], layer: int, head: int) -> list[HeadPass]:
    """The head's queries and keys on every prompt, before the rotary embedding, one plain pass each.

    Raises
    ------
    InterventionError
        If turning them does not give the model's own scores.
    """
    part = next(one for one in model.wiring.attentions if one.layer == layer)
    shared = head // (part.n_heads // part.n_kv_heads)
    reader = PreRotary(model, (layer,))
    found = []
    for prompt in prompts:
        cores: list[Core] = []
        turns: list[tuple[Tensor, Tensor]] = []

        def watch(module: Any, core: Core, cores: list[Core] = cores) -> Core:
            if module is part.module:
                cores.append(core)
            return core

        def take(args: Any, kwargs: dict[str, Any], turns: list[tuple[Tensor, Tensor]] = turns) -> None:
            turns.append(kwargs["position_embeddings"])

        ids = torch.as_tensor(prompt.token_ids, device=model.device)[None]
        with reader.reading(), changing(watch), hooked(part.module, take), torch.no_grad():
            model.model(input_ids=ids, use_cache=False)
        tokens = len(prompt.token_ids)
        query = reader.query[layer][0].reshape(tokens, part.n_heads, -1)[prompt.query_position, head].float()
        keys = reader.key[layer][0].reshape(tokens, part.n_kv_heads, -1)[:, shared].float()
        turn = (turns[0][0][0].float(), turns[0][1][0].float())
        core = cores[0]
        true = core.query[0, head, prompt.query_position].float() @ core.key[0, shared].float().T * core.scaling
        one = HeadPass(query, keys, turn, float(core.scaling), true)
        if (scores(one.query, one.keys, one) - true).abs().max() > TOLERANCE * (1 + true.abs().max()):
            raise InterventionError(
                f"{model.name}: the scores are not those of turned queries and keys; constants from weights need a "
                "rotary embedding that turns halves of a head, as Llama's does"
            )
        found.append(one)
    return found


def scores(query: Float[Tensor, " d"], keys: Float[Tensor, "T d"], one: HeadPass) -> Float[Tensor, " T"]:
    """Scores of a query at the prompt's last token with keys at every token, both turned at their positions [T]."""
    cos, sin = one.turn
    at_query = _turned(query, cos[-1], sin[-1])
    found: Tensor = _turned(keys, cos, sin) @ at_query * one.scaling
    return found


def _turned(vectors: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    turned: Tensor = vectors * cos + rotate_half(vectors) * sin  # type: ignore[no-untyped-call]
    return turned


def kinds(prompt: TokenizedPrompt) -> list[Kind]:
    """What each token is: a label after a text of some class, or one of the other kinds."""
    found: list[Kind] = [("template", "")] * len(prompt.token_ids)
    for start, stop in prompt.demonstration_spans.tolist():
        found[start:stop] = [("text", "")] * (stop - start)
    start, stop = prompt.query_span.tolist()
    found[start:stop] = [("query text", "")] * (stop - start)
    found[0] = ("first", "")
    found[prompt.query_position] = ("query", "")
    for position, one in zip(prompt.label_positions.tolist(), prompt.prompt.demonstrations, strict=True):
        found[position] = ("label", one.class_name)
    return found


def class_means(
    prompts: Sequence[TokenizedPrompt], passes: Sequence[HeadPass]
) -> tuple[dict[str, Tensor], dict[Kind, Tensor]]:
    """Mean query of each query class, and mean key of each kind of token."""
    queries: dict[str, list[Tensor]] = defaultdict(list)
    keys: dict[Kind, list[Tensor]] = defaultdict(list)
    for prompt, one in zip(prompts, passes, strict=True):
        queries[prompt.prompt.query_class].append(one.query)
        for kind, key in zip(kinds(prompt), one.keys, strict=True):
            keys[kind].append(key)
    return (
        {name: torch.stack(rows).mean(0) for name, rows in queries.items()},
        {kind: torch.stack(rows).mean(0) for kind, rows in keys.items()},
    )


def _sums(
    prompt: TokenizedPrompt, one: HeadPass, queries: dict[str, Tensor], keys: dict[Kind, Tensor]
) -> tuple[float, int, float, int]:
    """Sum and number of s - R over demonstrations of other classes, then over those of the query's class."""
    found = kinds(prompt)
    score = scores(queries[prompt.prompt.query_class], torch.stack([keys[kind] for kind in found]), one)
    labels = torch.as_tensor(prompt.label_positions, device=score.device)
    rest = torch.ones(len(score), dtype=torch.bool, device=score.device)
    rest[labels] = False
    value = (score[labels] - score[rest].logsumexp(0)).cpu().numpy()
    same = np.array([shown.class_name == prompt.prompt.query_class for shown in prompt.prompt.demonstrations])
    return float(value[~same].sum()), int((~same).sum()), float(value[same].sum()), int(same.sum())
