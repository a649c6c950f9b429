"""Routed attention: a low-rank bias on the attention logits, made of directions and of a router's weights.

For a layer with pre-rotary queries Q and keys K, directions U_q and U_k, and per input alpha [rank], gamma [heads]:

    logits_h = Q_h K_h' / sqrt(d)  +  gamma_h * (Q U_q) diag(alpha) (K U_k)'  +  causal mask

In the exact form nothing of size tokens x tokens is made: the queries are lengthened by sqrt(d) gamma_h alpha (Q U_q)
and the keys by K U_k, so the usual scaled product gives native logits plus bias, in any attention kernel. The keys'
part of past tokens is kept from call to call, so that decoding with a cache works.

Source: icr.md, sections 1.3 (equations 3 and 10, algorithm 2) and 8 (the equivalent form).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from readout.errors import ReadoutError, UnsupportedModelError
from readout.icr.basis import Basis
from readout.icr.projections import PreRotary
from readout.models import Edits, LanguageModel, ScoreEdit, Session
from readout.models.attention import Core, changing

Rows = Literal["all", "last"]


@dataclass(frozen=True, eq=False)
class Weights:
    """A router's answer for some inputs.

    Attributes
    ----------
    alpha : float [inputs, layers, rank]
        Signed weight of each pair of directions.
    gamma : float [inputs, layers, heads]
        Gate of each head.
    """

    alpha: Float[Tensor, "inputs layers rank"]
    gamma: Float[Tensor, "inputs layers heads"]

    def of(self, rows: Tensor | slice) -> Weights:
        """Some inputs of them."""
        return Weights(self.alpha[rows], self.gamma[rows])

    def times(self, factor: float | Tensor) -> Weights:
        """Alpha times a factor."""
        return replace(self, alpha=self.alpha * factor)

    def detach(self) -> Weights:
        """Without gradient."""
        return Weights(self.alpha.detach(), self.gamma.detach())


class Routing:
    """Adds the bias to a model's attention, inside ``with routing.on(weights)``.

    Outside it the model is untouched, so its outputs are equal to the bit.

    Parameters
    ----------
    model : LanguageModel
    basis : Basis
        The directions; its layers are the routed ones.
    rows : str
        "all" query positions (the paper's algorithm), or only each row's "last" token (its appendix G.4).

    Raises
    ------
    UnsupportedModelError
        If the model's projections cannot be read, or its logits are soft-capped (the bias comes after the cap, which
        longer queries cannot express).
    """

    def __init__(self, model: LanguageModel, basis: Basis, rows: Rows = "all") -> None:
        if rows not in ("all", "last"):
            raise ReadoutError(f"rows: expected all or last, got {rows!r}")
        self.model, self.basis, self.rows = model, basis.to(model.device), rows
        self.taps = PreRotary(model, basis.layers)
        self.heads = {part.module: part.n_heads for part in model.wiring.attentions}
        self._check_widths()
        self._empty = {layer: not bool(basis.query[layer].any() and basis.key[layer].any()) for layer in basis.layers}
        self._place = {layer: number for number, layer in enumerate(basis.layers)}
        self._weights: Weights | None = None
        self._last: Tensor | None = None
        self._past: dict[int, Tensor] = {}

    def _check_widths(self) -> None:
        dims = {part.layer: part for part in self.model.wiring.attentions}
        for layer in self.basis.layers:
            got = (self.basis.query[layer].shape[0], self.basis.key[layer].shape[0])
            part = dims[layer]
            query = got[0] / part.n_heads
            if query != got[1] / part.n_kv_heads or query != int(query):
                raise ReadoutError(
                    f"layer {layer} of {self.model.name} has {part.n_heads} query and {part.n_kv_heads} key-value "
                    f"heads of one size; the directions have widths {got[0]} and {got[1]} (key heads unrepeated)"
                )

    @contextmanager
    def on(self, weights: Weights, last: Int[Tensor, " rows"] | None = None) -> Iterator[None]:
        """Route the passes made inside.

        Parameters
        ----------
        weights : Weights
            Of one input for all rows, or of one input a row.
        last : int64 [rows], optional
            Each row's last token, for ``rows="last"`` with padding; the last column by default.
        """
        self._check(weights)
        with ExitStack() as stack:
            stack.enter_context(self.taps.reading())
            stack.enter_context(changing(self._change))
            self._weights, self._last, self._past = weights, last, {}
            try:
                yield
            finally:
                self._weights, self._last, self._past = None, None, {}
                self.taps.query.clear()
                self.taps.key.clear()

    def explicit(self, weights: Weights) -> Edits:
        """The same bias as edits of a pass' scores, each block of them written out: slow, and the measure of `on`.

        To be used inside ``with routing.taps.reading()``.
        """
        self._check(weights)

        def edit_of(layer: int) -> ScoreEdit:
            def edit(scores: Tensor, at: Tensor, session: Session) -> Tensor:
                queries, keys = self._projected(layer)
                bias = _bias(queries, keys, *self._of_layer(weights, layer))
                index = at[:, None, :, None].expand(-1, bias.shape[1], -1, bias.shape[3])
                return scores + bias.gather(2, index)

            return edit

        return Edits(scores={layer: [edit_of(layer)] for layer in self.basis.layers})

    def _check(self, weights: Weights) -> None:
        layers, rank = len(self.basis.layers), self.basis.rank
        heads = {self.heads[module] for module in self.taps.layer_of}
        shapes = (tuple(weights.alpha.shape[1:]), tuple(weights.gamma.shape[1:]))
        if shapes != ((layers, rank), (layers, max(heads))) or len(weights.alpha) != len(weights.gamma):
            raise ReadoutError(
                f"weights: expected alpha [inputs, {layers}, {rank}] and gamma [inputs, {layers}, {max(heads)}], got "
                f"{list(weights.alpha.shape)} and {list(weights.gamma.shape)}"
            )

    def _projected(self, layer: int) -> tuple[Tensor, Tensor]:
        """Z_q and Z_k [rows, tokens, rank] of this pass, float32."""
        queries = self.taps.query[layer].float() @ self.basis.query[layer]
        keys = self.taps.key[layer].float() @ self.basis.key[layer]
        return queries, keys

    def _of_layer(self, weights: Weights, layer: int) -> tuple[Tensor, Tensor]:
        place = self._place[layer]
        return weights.alpha[:, place], weights.gamma[:, place]

    def _change(self, module: nn.Module, core: Core) -> Core:
        layer = self.taps.layer_of.get(module)
        if layer is None:
            return core
        if core.softcap is not None:
            raise UnsupportedModelError(
                f"{self.model.name} caps its attention logits: the routed bias comes after the cap and cannot be added"
            )
        assert self._weights is not None
        alpha, gamma = self._of_layer(self._weights, layer)
        if not alpha.requires_grad and (self._empty[layer] or not alpha.any()):
            # Sums with added zeros may differ in the last bit; no bias must be no change at all.
            self._with_past(layer, self._projected(layer)[1], core.key.shape[2])
            return core
        rows, _, tokens, _ = core.query.shape
        if len(alpha) not in (1, rows):
            raise ReadoutError(f"the pass has {rows} rows and the router answered for {len(alpha)} inputs")
        queries, keys = self._projected(layer)
        keys = self._with_past(layer, keys, core.key.shape[2])
        if self.rows == "last":
            queries = queries * self._is_last(rows, tokens, queries.device)
        # [rows, heads, tokens, rank]: the head's gate, the input's weights, and what the scaling will take away.
        added = gamma[:, :, None, None] * (queries * alpha[:, None])[:, None] / core.scaling
        shared = keys[:, None].expand(-1, core.key.shape[1], -1, -1)
        query = torch.cat([core.query, added.to(core.query.dtype)], -1)
        key = torch.cat([core.key, shared.to(core.key.dtype)], -1)
        return replace(core, query=query, key=key)

    def _is_last(self, rows: int, tokens: int, device: torch.device) -> Tensor:
        at = torch.arange(tokens, device=device)
        last = torch.full((rows,), tokens - 1, device=device) if self._last is None else self._last.to(device)
        # In decoding every new token is its row's last.
        return (at == last[:, None])[..., None] if tokens > 1 else torch.ones(rows, 1, 1, device=device)

    def _with_past(self, layer: int, keys: Tensor, total: int) -> Tensor:
        """Z_k of all tokens that the keys hold: those of past calls come first."""
        past = total - keys.shape[1]
        if past == 0:
            self._past[layer] = keys
            return keys
        kept = self._past.get(layer)
        if kept is None or kept.shape[1] != past or len(kept) != len(keys):
            raise ReadoutError(
                f"layer {layer} reads a cache of {past} tokens, of which {0 if kept is None else kept.shape[1]} were "
                "routed: make the whole of a generation inside one `with routing.on(...)`, without beams"
            )
        self._past[layer] = torch.cat([kept, keys], 1)
        return self._past[layer]

    @torch.inference_mode()
    def generate(
        self, token_ids: Int[Tensor, "rows tokens"], weights: Weights, mask: Tensor | None = None, **options: object
    ) -> Int[Tensor, "rows longer"]:
        """Generate with the bias on; the weights stay those of the input.

        Parameters
        ----------
        token_ids : int64 [rows, tokens]
            Padded on the left.
        weights : Weights
        mask : int64 [rows, tokens], optional
            0 where a token is padding.
        options : passed to transformers' ``generate``

        Raises
        ------
        ReadoutError
            If beams are asked for: the order of a cache's rows is then not known here.
        """
        if int(str(options.get("num_beams", 1))) > 1 or int(str(options.get("num_return_sequences", 1))) > 1:
            raise ReadoutError("routed generation is greedy or sampled: num_beams and num_return_sequences must be 1")
        mask = torch.ones_like(token_ids) if mask is None else mask
        with self.on(weights):
            made: Tensor = self.model.model.generate(
                input_ids=token_ids, attention_mask=mask, **({"do_sample": False} | options)
            )
        return made


def _bias(queries: Tensor, keys: Tensor, alpha: Tensor, gamma: Tensor) -> Float[Tensor, "rows heads tokens tokens"]:
    """The bias written out: gamma_h Z_q diag(alpha) Z_k'."""
    shared = (queries * alpha[:, None]) @ keys.transpose(1, 2)
    return gamma[:, :, None, None] * shared[:, None]
