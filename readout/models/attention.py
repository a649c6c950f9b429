"""The one attention function: what every supported architecture calls, with taps that read it and edits that change it.

transformers hands an attention function the queries, keys and values after projections, norms and rotary embedding, and
takes back the heads' outputs before the output projection. Registered here under the name ``readout``, together with
a mask function (without one, a model would look ahead). While a `Session` is active the function computes packed rows
(`readout.models.packing`), records what the session taps and applies what it edits; otherwise the model works as usual.

The scores of a block of rows are built in one place: scaled products, then the soft cap, then score edits,
then the mask (which always wins). Nothing of size tokens x tokens is kept: rows are taken in blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import sdpa_mask

from readout.errors import UnsupportedModelError
from readout.models.packing import PADDING, PackedBatch

NAME = "readout"
BLOCK = 256
"""Rows of scores that exist at a time where a mask, a soft cap, learned sinks or an edit needs them explicitly."""
KEPT_MASK = 2**24
"""Largest mask, in entries, that is kept for the next layers instead of being built again."""

_UNDERSTOOD = {
    "position_ids", "use_cache", "cache", "past_key_values", "past_key_value", "layer_past", "cache_position",
    "output_attentions", "output_hidden_states", "return_dict", "head_mask", "position_embeddings", "cos", "sin",
    "num_items_in_batch", "layer_idx", "logits_to_keep", "sliding_window", "is_causal", "output_router_logits",
    "target_dtype", "query_length", "training", "deterministic", "token_type_ids", "inputs_embeds", "input_ids",
}  # fmt: skip
"""Keyword arguments that models pass to their attention function and that do not change its result here."""


class ScoreEdit(Protocol):
    """Changes scores before the mask: ``scores`` [rows, heads, block, tokens] of the tokens ``at`` [rows, block]."""

    def __call__(self, scores: Tensor, at: Tensor, session: Session) -> Tensor: ...


class OutputEdit(Protocol):
    """Changes the heads' outputs before the output projection: ``outputs`` [rows, tokens, heads, head_dim]."""

    def __call__(self, outputs: Tensor, session: Session) -> Tensor: ...


@dataclass(frozen=True)
class Taps:
    """What to record at each prompt's query position.

    Attributes
    ----------
    columns : int64 [rows, columns]
        Tokens of the row whose attention weight is read, the same for all prompts of the row.
    head_outputs : bool
        Record the heads' outputs at the query positions too.
    """

    columns: Int[Tensor, "rows columns"]
    head_outputs: bool = False


@dataclass(frozen=True)
class Tapped:
    """One layer's record: attention weights (float32), and the heads' outputs where they were asked for."""

    attention: Float[Tensor, "prompts heads columns"]
    head_outputs: Float[Tensor, "prompts heads head_dim"] | None


@dataclass(frozen=True)
class Kept:
    """One layer's keys and values [rows, kv_heads, tokens, dim] and heads' outputs [rows, tokens, heads, value_dim]."""

    key: Tensor
    value: Tensor
    outputs: Tensor


class Serving(Protocol):
    """What answers the model's attention calls during a pass."""

    def attend(self, module: nn.Module, core: Core, value: Tensor, mask: PackedMask) -> Tensor: ...


@dataclass
class Session:
    """One forward pass over a packed batch: its layout, its taps and edits, and what was recorded, by layer.

    With ``keep``, keys, values and heads' outputs of every token are kept too.
    """

    batch: PackedBatch
    layer_of: Mapping[nn.Module, int]
    taps: Taps | None = None
    score_edits: Mapping[int, Sequence[ScoreEdit]] = field(default_factory=dict)
    output_edits: Mapping[int, Sequence[OutputEdit]] = field(default_factory=dict)
    tapped: dict[int, Tapped] = field(default_factory=dict)
    keep: bool = False
    kept: dict[int, Kept] = field(default_factory=dict)
    _on_device: dict[torch.device, PackedBatch] = field(default_factory=dict)

    def on(self, device: torch.device) -> PackedBatch:
        """The batch on a layer's own device (a sharded model has several)."""
        if device not in self._on_device:
            self._on_device[device] = self.batch.to(device)
        return self._on_device[device]

    def attend(self, module: nn.Module, core: Core, value: Tensor, mask: PackedMask) -> Tensor:
        """Compute one layer's heads' outputs [rows, tokens, heads, value_dim], edited, and record what is tapped."""
        layer = self.layer_of[module]
        batch = self.on(value.device)
        score_edits = self.score_edits.get(layer, ())
        outputs = _attend(core, value, mask, batch, score_edits, self)
        for edit in self.output_edits.get(layer, ()):
            outputs = edit(outputs, self)
        if self.keep:
            self.kept[layer] = Kept(core.key, value, outputs)
        if self.taps is not None:
            self.tapped[layer] = _tap(core, outputs, mask, batch, score_edits, self, self.taps)
        return outputs


_ACTIVE: ContextVar[Serving | None] = ContextVar("readout_session", default=None)


class CoreChange(Protocol):
    """Rewrites what defines a layer's scores (longer queries and keys, say) before anything is computed from it."""

    def __call__(self, module: nn.Module, core: Core) -> Core: ...


_CHANGE: ContextVar[CoreChange | None] = ContextVar("readout_core_change", default=None)


@contextmanager
def changing(change: CoreChange) -> Iterator[None]:
    """Let ``change`` rewrite every layer's core, inside a session and outside; taps and edits see the result."""
    token = _CHANGE.set(change)
    try:
        yield
    finally:
        _CHANGE.reset(token)


@contextmanager
def attending(serving: Serving) -> Iterator[None]:
    """Make ``serving`` answer the attention function's calls."""
    token = _ACTIVE.set(serving)
    try:
        yield
    finally:
        _ACTIVE.reset(token)


class PackedMask:
    """Which tokens a token sees, as a rule on logical positions, evaluated for a block of rows at a time.

    transformers composes the rule (causal, sliding window, chunked) of a kind of layer; the packing adds that a branch
    sees itself and the shared part only.
    """

    def __init__(self, rule: Callable[..., Tensor] | None) -> None:
        self.rule = rule
        self._kept: dict[torch.device, Tensor] = {}

    def sees(self, batch: PackedBatch, at: Int[Tensor, "rows block"]) -> Bool[Tensor, "rows 1 block tokens"]:
        """Whether each token of ``at`` (indices within its row) sees each token of the row."""
        device = at.device
        rows = torch.arange(at.shape[0], device=device).view(-1, 1, 1)
        query, key = batch.positions.gather(1, at)[:, :, None], batch.positions[:, None, :]
        allowed = (key <= query) if self.rule is None else self.rule(rows, torch.zeros_like(rows), query, key)
        own, other = batch.segments.gather(1, at)[:, :, None], batch.segments[:, None, :]
        allowed = allowed & ((other == own) | ((other == 0) & (own != PADDING)))
        # Padding sees padding, so that no row of scores is empty and softmax stays finite.
        return allowed[:, None]

    def block(self, batch: PackedBatch, start: int, stop: int) -> Bool[Tensor, "rows 1 block tokens"]:
        """`sees` for the tokens from ``start`` to ``stop``, kept for the next layers while it is small."""
        rows, tokens = batch.token_ids.shape
        device = batch.token_ids.device
        if rows * tokens * tokens > KEPT_MASK:
            return self.sees(batch, torch.arange(start, stop, device=device).expand(rows, -1))
        if device not in self._kept:
            self._kept[device] = self.sees(batch, torch.arange(tokens, device=device).expand(rows, -1))
        return self._kept[device][:, :, start:stop]

    def is_plain_causal(self, length: int) -> bool:
        """Whether the first ``length`` tokens see all that is not later (no window or chunk cuts them)."""
        if self.rule is None or length == 0:
            return True
        zero, last = torch.zeros((1, 1, 1), dtype=torch.long), torch.full((1, 1, 1), length - 1)
        return bool(self.rule(zero, zero, last, zero).all())


def packed_mask(*args: Any, mask_function: Callable[..., Tensor] | None = None, **kwargs: Any) -> Any:
    """The mask function that is registered: transformers' own, or a rule for packed rows while a session is active."""
    if _ACTIVE.get() is None:
        if mask_function is not None:
            kwargs["mask_function"] = mask_function
        return sdpa_mask(*args, **kwargs)
    return PackedMask(mask_function)


def attention(
    module: nn.Module,
    query: Float[Tensor, "rows heads tokens head_dim"],
    key: Float[Tensor, "rows kv_heads keys head_dim"],
    value: Float[Tensor, "rows kv_heads keys value_dim"],
    attention_mask: PackedMask | Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    softcap: float | None = None,
    s_aux: Float[Tensor, " heads"] | None = None,
    **kwargs: Any,
) -> tuple[Float[Tensor, "rows tokens heads value_dim"], None]:
    """Softmax attention, read and edited as the active session says; the signature is transformers'.

    Raises
    ------
    UnsupportedModelError
        If the model passes an argument that this function does not know, since it could change the result.
    """
    unknown = [name for name, given in kwargs.items() if given is not None and name not in _UNDERSTOOD]
    if unknown:
        raise UnsupportedModelError(
            f"{type(module).__name__} passes {', '.join(unknown)} to its attention function, which Readout does not "
            "know: its attention would be read wrongly. Use a model family from the table in the documentation."
        )
    core = Core(query, key, scaling or query.shape[-1] ** -0.5, softcap, s_aux)
    change = _CHANGE.get()
    if change is not None:
        core = change(module, core)
    serving = _ACTIVE.get()
    if serving is None:
        return _unpacked(core, value, attention_mask), None
    mask = attention_mask if isinstance(attention_mask, PackedMask) else PackedMask(None)
    return serving.attend(module, core, value, mask), None


@dataclass(frozen=True)
class Core:
    """What defines a layer's scores."""

    query: Tensor
    key: Tensor
    scaling: float
    softcap: float | None
    sinks: Tensor | None

    @property
    def groups(self) -> int:
        return self.query.shape[1] // self.key.shape[1]

    @property
    def needs_scores(self) -> bool:
        """Whether torch's fused attention cannot compute this layer."""
        return self.softcap is not None or self.sinks is not None

    def products(self, query: Float[Tensor, "rows heads block head_dim"]) -> Float[Tensor, "rows heads block keys"]:
        """Scaled, capped query-key products in float32, each query head with its own key head (head // group)."""
        rows, heads, block, _ = query.shape
        grouped = query.float().reshape(rows, heads // self.groups, self.groups * block, -1)
        scores = (grouped @ self.key.float().transpose(-1, -2)).reshape(rows, heads, block, -1) * self.scaling
        return scores if self.softcap is None else self.softcap * torch.tanh(scores / self.softcap)

    def weights(self, scores: Tensor, sees: Tensor) -> Tensor:
        """Softmax in float32 over what is seen; a learned sink takes its share and is dropped."""
        scores = scores.masked_fill(~sees, -torch.inf)
        if self.sinks is None:
            return scores.softmax(-1)
        sinks = self.sinks.float().view(1, -1, 1, 1).expand(*scores.shape[:-1], 1)
        return torch.cat([scores, sinks], -1).softmax(-1)[..., :-1]

    def mix(self, weights: Tensor, value: Tensor) -> Tensor:
        """Weighted values [rows, heads, block, value_dim], in the values' precision."""
        rows, heads, block, keys = weights.shape
        grouped = weights.to(value.dtype).reshape(rows, heads // self.groups, self.groups * block, keys)
        return (grouped @ value).reshape(rows, heads, block, -1)


def _attend(
    core: Core,
    value: Tensor,
    mask: PackedMask,
    batch: PackedBatch,
    edits: Sequence[ScoreEdit],
    session: Session,
) -> Tensor:
    """Heads' outputs [rows, tokens, heads, value_dim] of all tokens, a block of rows at a time."""
    rows, _, tokens, _ = core.query.shape
    explicit = core.needs_scores or bool(edits)
    causal = 0 if explicit or not mask.is_plain_causal(batch.causal_rows) else batch.causal_rows
    parts = []
    if causal:
        query, key = core.query[:, :, :causal], core.key[:, :, :causal]
        parts.append(_fused(query, key, value[:, :, :causal], core, is_causal=True))
    for start in range(causal, tokens, BLOCK):
        stop = min(start + BLOCK, tokens)
        query, sees = core.query[:, :, start:stop], mask.block(batch, start, stop)
        if not explicit:
            parts.append(_fused(query, core.key, value, core, sees=sees))
            continue
        scores = core.products(query)
        at = torch.arange(start, stop, device=query.device).expand(rows, -1)
        for edit in edits:
            scores = edit(scores, at, session)
        parts.append(core.mix(core.weights(scores, sees), value))
    return (parts[0] if len(parts) == 1 else torch.cat(parts, 2)).transpose(1, 2)


def _fused(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    core: Core,
    sees: Tensor | None = None,
    is_causal: bool = False,
) -> Tensor:
    width = value.shape[-1]
    if width < query.shape[-1]:
        # With unequal sizes torch would build the whole table of scores; zeros change no number.
        value = F.pad(value, (0, query.shape[-1] - width))
    return F.scaled_dot_product_attention(
        query, key, value, attn_mask=sees, is_causal=is_causal, scale=core.scaling, enable_gqa=core.groups > 1
    )[..., :width]


def _unpacked(core: Core, value: Tensor, mask: Any) -> Tensor:
    """Ordinary attention, for a model used outside a session (training, generation)."""
    if not core.needs_scores:
        causal = mask is None and core.query.shape[2] > 1
        return _fused(core.query, core.key, value, core, sees=mask, is_causal=causal).transpose(1, 2)
    tokens, keys = core.query.shape[2], core.key.shape[2]
    sees = torch.ones(tokens, keys, dtype=torch.bool, device=value.device).tril(keys - tokens) if mask is None else mask
    return core.mix(core.weights(core.products(core.query), sees), value).transpose(1, 2)


def _tap(
    core: Core,
    outputs: Tensor,
    mask: PackedMask,
    batch: PackedBatch,
    edits: Sequence[ScoreEdit],
    session: Session,
    taps: Taps,
) -> Tapped:
    """Attention from the query positions to the tapped columns, and the heads' outputs there."""
    at = batch.queries
    query = core.query.gather(2, at[:, None, :, None].expand(-1, core.query.shape[1], -1, core.query.shape[3]))
    scores = core.products(query)
    for edit in edits:
        scores = edit(scores, at, session)
    weights = core.weights(scores, mask.sees(batch, at))
    columns = taps.columns.to(weights.device)[:, None, None, :].expand(*weights.shape[:3], -1)
    read = weights.gather(3, columns).transpose(1, 2)[batch.is_query]
    if not taps.head_outputs:
        return Tapped(read, None)
    index = at[:, :, None, None].expand(-1, -1, *outputs.shape[2:])
    return Tapped(read, outputs.gather(1, index)[batch.is_query])


AttentionInterface.register(NAME, attention)
AttentionMaskInterface.register(NAME, packed_mask)
