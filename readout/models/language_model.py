"""A causal language model that can be read and edited: the model, its tokenizer and one method that runs a batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from readout.models.attention import NAME, OutputEdit, ScoreEdit, Session, Taps, attending
from readout.models.packing import PackedBatch
from readout.models.wiring import FrozenNorm, Wiring, find_wiring, hooked, projection_matrix


@dataclass(frozen=True)
class Reading:
    """What one pass read at the query positions; prompts in the batch's order, heads in the wiring's.

    Attributes
    ----------
    log_probabilities : float32 [prompts, candidates]
        Log-probability over the whole vocabulary of each candidate token.
    attention : float32 [prompts, heads, columns] or None
    effects : float32 [prompts, heads, candidates] or None
        Direct effect of each head's output on each candidate's logit, final norm held at its scale, before any final
        soft cap.
    residuals : float32 [prompts, positions, width] by layer
        Residual stream that enters the layer, at the positions asked for.
    """

    log_probabilities: Float[Tensor, "prompts candidates"]
    attention: Float[Tensor, "prompts heads columns"] | None = None
    effects: Float[Tensor, "prompts heads candidates"] | None = None
    residuals: Mapping[int, Float[Tensor, "prompts positions width"]] = field(default_factory=dict)


@dataclass(frozen=True)
class Edits:
    """Changes to a pass, by layer: to attention scores before the mask, to heads' outputs before the projection, to the
    residual stream [rows, tokens, width] that enters the layer."""

    scores: Mapping[int, Sequence[ScoreEdit]] = field(default_factory=dict)
    outputs: Mapping[int, Sequence[OutputEdit]] = field(default_factory=dict)
    residuals: Mapping[int, Sequence[ResidualEdit]] = field(default_factory=dict)


ResidualEdit = Callable[[Tensor], Tensor]


class LanguageModel:
    """A model whose attention runs through the package's one attention function.

    Parameters
    ----------
    model : a transformers causal language model
    tokenizer : its fast tokenizer, or None where token ids are given
    name : how the user called it
    provenance : where it came from (revision, file, quantisation), for the record

    Raises
    ------
    UnsupportedModelError
        If the model does not use transformers' attention interface in every layer.
    """

    def __init__(
        self, model: Any, tokenizer: Any = None, name: str = "", provenance: Mapping[str, Any] | None = None
    ) -> None:
        self.model = model.eval().requires_grad_(False)
        self.tokenizer = tokenizer
        self.name = name or type(model).__name__
        self.provenance = dict(provenance or {})
        self.model.set_attn_implementation(NAME)
        self.wiring: Wiring = find_wiring(self.model)
        self.can_share = True

    @property
    def device(self) -> torch.device:
        """Where token ids go (a sharded model's first device)."""
        return next(self.model.get_input_embeddings().parameters()).device  # type: ignore[no-any-return]

    @property
    def dtype(self) -> torch.dtype:
        """Precision of the weights, as the model itself declares it (never the first parameter's)."""
        return self.model.dtype  # type: ignore[no-any-return]

    @property
    def context_length(self) -> int | None:
        """Most tokens that the model reads; None where its configuration does not tell."""
        return getattr(self.model.config.get_text_config(), "max_position_embeddings", None)

    @property
    def heads(self) -> tuple[tuple[int, int], ...]:
        """(layer, head) of every query head, counted on the query side."""
        return self.wiring.heads

    @torch.inference_mode()
    def run(
        self,
        batch: PackedBatch,
        candidates: Int[Tensor, "prompts candidates"],
        columns: Int[Tensor, "rows columns"] | None = None,
        effects: bool = False,
        residuals: Mapping[int, Int[Tensor, "rows positions"]] | None = None,
        edits: Edits | None = None,
    ) -> Reading:
        """Run a packed batch and read it at the query positions.

        Parameters
        ----------
        batch : packed rows (`readout.models.packing.pack`)
        candidates : token ids whose log-probabilities (and effects) are read; pad with any valid id
        columns : tokens of each row whose attention weight is read
        effects : read the heads' direct effects on the candidates' logits too
        residuals : by layer, tokens of each row at which the residual stream that enters the layer is read;
            -1 stands for each prompt's own query position
        edits : changes to this pass

        Returns
        -------
        Reading
        """
        edits = edits or Edits()
        batch = batch.to(self.device)
        taps = None
        if columns is not None or effects:
            empty = torch.zeros(batch.token_ids.shape[0], 0, dtype=torch.long)
            taps = Taps((empty if columns is None else columns).to(self.device), head_outputs=effects)
        session = Session(batch, self.wiring.layer_of, taps, edits.scores, edits.outputs)
        watch = _Watch(batch)
        with ExitStack() as stack:
            watch.unembed_queries_only(stack, self.wiring.unembedding)
            edit_residuals(stack, self.wiring, edits.residuals)
            watch.residuals(stack, self.wiring, residuals or {})
            if effects and self.wiring.final_norm is not None:
                watch.norms(stack, self.wiring)
            stack.enter_context(attending(session))
            logits = self.model(
                input_ids=batch.token_ids,
                attention_mask=torch.ones_like(batch.token_ids),
                position_ids=batch.positions,
                use_cache=False,
            ).logits[0]
        candidates = candidates.to(logits.device)
        logits = logits.float()
        log_probabilities = logits.gather(1, candidates) - logits.logsumexp(-1, keepdim=True)
        read = None
        if columns is not None:
            layers = [session.tapped[part.layer].attention.to(logits.device) for part in self.wiring.attentions]
            read = torch.cat(layers, 1)
        found = self._effects(session, watch, candidates) if watch.watches_norms else None
        return Reading(log_probabilities, read, found, watch.found)

    @cached_property
    def _projections(self) -> list[Tensor]:
        return [projection_matrix(part.projection) for part in self.wiring.attentions]

    @cached_property
    def _post_norms(self) -> list[FrozenNorm | None]:
        return [self._frozen(part.post_norm) for part in self.wiring.attentions]

    @cached_property
    def _final_norm(self) -> FrozenNorm:
        frozen = self._frozen(self.wiring.final_norm)
        assert frozen is not None
        return frozen

    def _frozen(self, norm: nn.Module | None) -> FrozenNorm | None:
        if norm is None:
            return None
        probe = next(iter(norm.parameters()), None)
        width = self._projections[0].shape[0]
        if probe is None:
            return FrozenNorm.of(norm, width, self.device, torch.float32)
        return FrozenNorm.of(norm, width, probe.device, probe.dtype)

    def _effects(
        self, session: Session, watch: _Watch, candidates: Int[Tensor, "prompts candidates"]
    ) -> Float[Tensor, "prompts heads candidates"]:
        """Heads' direct effects: output projection, post norm, residual scale, frozen final norm, unembedding."""
        wiring = self.wiring
        unembedding = torch.as_tensor(wiring.unembedding.weight)
        rows = unembedding[candidates.to(unembedding.device)].float() * wiring.logit_scale
        given, result = watch.norm_io[wiring.final_norm]
        direction = self._final_norm.pull_back(rows, given[:, None], result[:, None]) * wiring.residual_scale
        parts = []
        for part, matrix, post in zip(wiring.attentions, self._projections, self._post_norms, strict=True):
            outputs = session.tapped[part.layer].head_outputs
            assert outputs is not None
            towards = direction.to(matrix.device)
            if post is not None:
                before, after = watch.norm_io[part.post_norm]
                towards = post.pull_back(towards, before[:, None], after[:, None])
            by_head = (towards @ matrix).reshape(*towards.shape[:-1], part.n_heads, part.value_dim)
            parts.append(torch.einsum("nhd,nchd->nhc", outputs.float(), by_head).to(rows.device))
        return torch.cat(parts, 1)


def edit_residuals(stack: ExitStack, wiring: Wiring, edits: Mapping[int, Sequence[ResidualEdit]]) -> None:
    """Change what enters the layers, for the duration of the stack."""
    of_layer = {part.layer: part.decoder_layer for part in wiring.attentions}
    for layer, changes in edits.items():

        def change(args: tuple[Any, ...], kwargs: dict[str, Any], changes: Any = changes) -> Any:
            hidden = args[0] if args else kwargs["hidden_states"]
            for edit in changes:
                hidden = edit(hidden)
            return ((hidden, *args[1:]), kwargs) if args else (args, kwargs | {"hidden_states": hidden})

        stack.enter_context(hooked(of_layer[layer], change))


class _Watch:
    """Hooks of one pass: which tokens are unembedded, what enters the layers, what norms see at the query positions."""

    def __init__(self, batch: PackedBatch) -> None:
        self.batch = batch
        self.found: dict[int, Tensor] = {}
        self.norm_io: dict[nn.Module | None, tuple[Tensor, Tensor]] = {}
        self.watches_norms = False

    def at_queries(self, hidden: Tensor) -> Tensor:
        """[prompts, width] out of [rows, tokens, width]."""
        index = self.batch.queries.to(hidden.device)[:, :, None].expand(-1, -1, hidden.shape[-1])
        return hidden.gather(1, index)[self.batch.is_query.to(hidden.device)]

    def unembed_queries_only(self, stack: ExitStack, unembedding: nn.Module) -> None:
        def narrow(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            return ((self.at_queries(args[0])[None], *args[1:]), kwargs)

        stack.enter_context(hooked(unembedding, narrow))

    def norms(self, stack: ExitStack, wiring: Wiring) -> None:
        self.watches_norms = True
        for norm in {part.post_norm for part in wiring.attentions} | {wiring.final_norm}:
            if norm is not None:
                self._norm(stack, norm)

    def _norm(self, stack: ExitStack, norm: nn.Module) -> None:
        def keep(module: nn.Module, args: tuple[Any, ...], result: Tensor) -> None:
            self.norm_io[norm] = (self.at_queries(args[0]).float(), self.at_queries(result).float())

        handle = norm.register_forward_hook(keep)
        stack.callback(handle.remove)

    def residuals(self, stack: ExitStack, wiring: Wiring, wanted: Mapping[int, Tensor]) -> None:
        of_layer = {part.layer: part.decoder_layer for part in wiring.attentions}
        for layer, positions in wanted.items():
            stack.enter_context(hooked(of_layer[layer], self._residual_hook(layer, positions)))

    def _residual_hook(self, layer: int, positions: Tensor) -> Callable[[tuple[Any, ...], dict[str, Any]], None]:
        def keep(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            hidden = args[0] if args else kwargs["hidden_states"]
            is_query = self.batch.is_query.to(hidden.device)
            row, _ = is_query.nonzero(as_tuple=True)
            at = positions.to(hidden.device)[row]
            own = self.batch.queries.to(hidden.device)[is_query]
            at = torch.where(at < 0, own[:, None], at)
            self.found[layer] = hidden[row[:, None], at].float()

        return keep
