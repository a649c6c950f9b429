"""Interventions from a kept pass: each row recomputes only the tokens that its edit can reach, from its layer on.

A *variant* is one intervention on one prompt. Variants enter the batch at the layer of their first edit with the
unedited residual stream, so the batch grows layer by layer. Keys and values of the tokens that an edit cannot reach
are read from the unedited pass, shared by all variants of a prompt, and never copied. Variants of one prompt with the
same recomputed tokens form a *block*: they share positions and mask.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from readout.circuit.edits import Intervention
from readout.circuit.full import change
from readout.circuit.outcome import Answers
from readout.circuit.program import Affine, Bias, Program
from readout.circuit.states import States, label_candidates, read_logits, unembed
from readout.circuit.values import Values
from readout.models import LanguageModel
from readout.models.attention import Core, PackedMask, attending
from readout.models.wiring import hooked
from readout.prompts.tokens import Ints

MOST_VOCABULARY_ROWS = 512
"""Rows of a pass whose logits over the whole vocabulary exist at a time."""


@dataclass(frozen=True)
class Variant:
    """One intervention on one prompt: its numbers, first layer, and the first token that it recomputes."""

    intervention: int
    prompt: int
    layer: int
    first_token: int


@dataclass
class Block:
    """Variants of one prompt with the same recomputed tokens, rows next to each other in every layer.

    Attributes
    ----------
    prompt, row : numbers of the prompt and of its row in the kept pass
    tokens : int64 [recomputed], places in the row
    seen : how many of the row's leading places hold what earlier tokens of the prompt kept
    """

    prompt: int
    row: int
    tokens: Ints
    seen: int
    masks: dict[int, tuple[Bool[Tensor, "own seen"] | None, Bool[Tensor, "own own"] | None]] = field(
        default_factory=dict
    )


def intervene_resumed(
    model: LanguageModel,
    values: Values,
    interventions: Sequence[Intervention],
    watch: Sequence[tuple[int, int]],
    normalise: bool,
    batch_tokens: int,
) -> Answers:
    """Make interventions on a chunk of prompts from its kept pass.

    Returns
    -------
    Answers
        Interventions first, then prompts.
    """
    states = values.states
    variants = _variants(values, interventions)
    prompts = states.prompts
    shape = (len(interventions), len(prompts))
    logits = states.logits.cpu().expand(len(interventions), -1, -1).clone()
    normaliser = None if states.log_normaliser is None else states.log_normaliser.cpu().expand(shape).clone()
    k = max(len(one.label_positions) for one in prompts)
    attention = torch.zeros(*shape, len(watch), k + 1)
    if watch:
        attention[:] = _unedited_attention(model, values, watch, batch_tokens)
    watched_layers = torch.tensor([layer for layer, _ in watch])
    for part in _batches(variants, states, batch_tokens, MOST_VOCABULARY_ROWS if normalise else None):
        resumed = Pass(model, values, interventions, part, watch)
        found, total = resumed.run(normalise)
        at = (torch.tensor([one.intervention for one in resumed.variants]),
              torch.tensor([one.prompt for one in resumed.variants]))  # fmt: skip
        logits[at] = found.cpu()
        if normaliser is not None and total is not None:
            normaliser[at] = total.cpu()
        if watch:
            # A variant starts at its first edited layer; heads below it attend as unedited.
            reached = watched_layers >= torch.from_numpy(resumed.layer)[:, None]
            attention[at] = torch.where(reached[..., None], resumed.attention, attention[at])
    if not watch:
        return Answers(logits.numpy(), None if normaliser is None else normaliser.numpy())
    seen = attention.numpy()
    return Answers(logits.numpy(), None if normaliser is None else normaliser.numpy(), seen[..., 1:], seen[..., 0])


def _variants(values: Values, interventions: Sequence[Intervention]) -> list[Variant]:
    """Variants that change anything."""
    found = []
    for number, one in enumerate(interventions):
        layer = min((edit.site.layer for edit in one.edits), default=0)
        for prompt, tokens in enumerate(values.states.prompts):
            reached = [edit.site.at.find(tokens, values.first + prompt) for edit in one.edits]
            first = min((int(places.min()) for places in reached if len(places)), default=-1)
            if first >= 0:
                found.append(Variant(number, prompt, layer, first))
    return found


def _unedited_attention(
    model: LanguageModel, values: Values, watch: Sequence[tuple[int, int]], batch_tokens: int
) -> Float[Tensor, "prompts heads columns"]:
    """Attention of watched heads without an edit, out of the query's own token, computed again from the first layer."""
    prompts, first_layer = values.states.prompts, min(part.layer for part in values.wiring.attentions)
    k = max(len(one.label_positions) for one in prompts)
    attention = torch.zeros(len(prompts), len(watch), k + 1)
    variants = [Variant(0, number, first_layer, one.query_position) for number, one in enumerate(prompts)]
    for part in _batches(variants, values.states, batch_tokens, None):
        resumed = Pass(model, values, [Intervention("", ())], part, watch)
        resumed.run(False)
        attention[torch.tensor([one.prompt for one in resumed.variants])] = resumed.attention
    return attention


def _batches(
    variants: list[Variant], states: States, batch_tokens: int, most_rows: int | None
) -> Iterator[list[Variant]]:
    """Batches of variants that recompute about as many tokens and start at about the same layer."""

    def tokens(one: Variant) -> int:
        return len(states.places[one.prompt]) - one.first_token

    batch: list[Variant] = []
    for one in sorted(variants, key=lambda one: (-(tokens(one) - 1).bit_length(), one.layer, one.prompt)):
        longest = max(tokens(one), tokens(batch[0]) if batch else 0)
        full = (len(batch) + 1) * longest > batch_tokens or len(batch) == most_rows
        if batch and (full or 2 * tokens(one) < tokens(batch[0])):
            yield batch
            batch = []
        batch.append(one)
    if batch:
        yield batch


class Pass:
    """One growing batch.

    Attributes
    ----------
    variants : in the order of the results: by block
    attention : float32 [variants, watched heads, 1 + demonstrations], to the first token and to the labels
    """

    def __init__(
        self,
        model: LanguageModel,
        values: Values,
        interventions: Sequence[Intervention],
        variants: Sequence[Variant],
        watch: Sequence[tuple[int, int]],
    ) -> None:
        self.model, self.values, self.states = model, values, values.states
        blocks: dict[tuple[int, int], list[Variant]] = {}
        for one in variants:
            blocks.setdefault((one.prompt, one.first_token), []).append(one)
        self.blocks = [self._block(*key) for key in blocks]
        self.variants = [one for own in blocks.values() for one in own]
        self.width = max(len(block.tokens) for block in self.blocks)
        self.block_of = np.repeat(np.arange(len(blocks)), [len(own) for own in blocks.values()])
        self._row_of = np.array([block.row for block in self.blocks])
        self._places_of = np.stack(
            [np.pad(one.tokens, (0, self.width - len(one.tokens)), "edge") for one in self.blocks]
        )
        self.layer = np.array([one.layer for one in self.variants])
        self._compile(interventions)
        self.layer_of = model.wiring.layer_of
        self._watched: dict[int, list[tuple[int, int]]] = {}
        for place, (layer, head) in enumerate(watch):
            self._watched.setdefault(layer, []).append((place, head))
        k = max(len(one.label_positions) for one in self.states.prompts)
        self.attention = torch.zeros(len(self.variants), len(watch), k + 1)
        # Rows that are in the batch at the current layer, as numbers of variants.
        self.present = np.zeros(0, np.int64)
        self.bounds = np.zeros(len(self.blocks) + 1, np.int64)

    def _block(self, prompt: int, first: int) -> Block:
        places, row = self.states.places[prompt], int(self.states.rows[prompt])
        tokens = places[first:]
        before = places[:first]
        return Block(prompt, row, tokens, int(before.max()) + 1 if len(before) else 0)

    def _compile(self, interventions: Sequence[Intervention]) -> None:
        program = Program()
        prompts, first = self.states.prompts, self.values.first
        for row, one in enumerate(self.variants):
            for place, edit in enumerate(interventions[one.intervention].edits):
                program.add(row, place, edit, first + one.prompt, prompts[one.prompt], self.values)
        start = torch.tensor([one.first_token for one in self.variants])

        def own(affine: Affine) -> Affine:
            return affine._replace(tokens=affine.tokens - start[affine.rows])

        self.heads = {layer: [own(one) for one in changes] for layer, changes in program.heads.items()}
        self.residuals = {layer: [own(one) for one in changes] for layer, changes in program.residuals.items()}
        self.scores = {
            layer: bias._replace(tokens=bias.tokens - start[bias.rows]) for layer, bias in program.scores.items()
        }

    @torch.inference_mode()
    def run(self, normalise: bool) -> tuple[Float[Tensor, "variants labels"], Float[Tensor, " variants"] | None]:
        """Run the pass; logits of the labels and, if asked for, the log of the sum over the vocabulary."""
        prompts = [one.prompt for one in self.variants]
        candidates = label_candidates(self.states.prompts)[prompts]
        last = torch.tensor([len(self.blocks[block].tokens) - 1 for block in self.block_of])
        rows = torch.arange(len(self.variants))

        def at_queries(hidden: Tensor) -> Tensor:
            return hidden[rows.to(hidden.device), last.to(hidden.device)][:, None]

        # The model is called on one row that stands in until the first variants join, and leaves then.
        stand_in = self.states.batch.token_ids[:1, : self.width]
        with ExitStack() as stack:
            for part in self.model.wiring.attentions:
                stack.enter_context(hooked(part.decoder_layer, self._joining(part.layer)))
            unembed(stack, self.model.wiring.unembedding, at_queries, None if normalise else candidates)
            stack.enter_context(attending(self))
            logits = self.model.model(
                input_ids=stand_in,
                attention_mask=torch.ones_like(stand_in),
                position_ids=self.states.batch.positions[:1, : self.width],
                use_cache=False,
            ).logits[:, 0]
        return read_logits(logits, candidates, normalise)

    def _joining(self, layer: int) -> Callable[[tuple[Any, ...], dict[str, Any]], Any]:
        """Before a layer: let its variants join, give the layer the arguments of all rows, edit the residual stream."""

        def join(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            hidden = args[0] if args else kwargs["hidden_states"]
            new = np.flatnonzero(self.layer == layer)
            if len(new):
                hidden = self._grown(hidden, new, layer)
            if not len(self.present):
                return None
            for affine in self.residuals.get(layer, ()):
                change(hidden, affine, self._rows(affine.rows))
            rest, named = self.states.inputs[layer]
            rest, named = self._of_rows(rest, hidden.device), self._of_rows(named, hidden.device)
            return ((hidden, *rest), named) if args else ((), named | {"hidden_states": hidden})

        return join

    def _grown(self, hidden: Tensor, new: Ints, layer: int) -> Tensor:
        """The batch with the variants that join here, ordered by block."""
        entering = self.states.residuals[layer]
        index = self._tokens(new)
        joined = entering[index[0].to(entering.device), index[1].to(entering.device)].to(hidden.device)
        before = self.present
        self.present = np.sort(np.concatenate([before, new]))
        self.bounds = np.searchsorted(self.block_of[self.present], np.arange(len(self.blocks) + 1))
        self._index = self._tokens(self.present)
        if not len(before):
            return joined
        order = np.argsort(np.concatenate([before, new]), kind="stable")
        return torch.cat([hidden, joined])[torch.from_numpy(order).to(hidden.device)]

    def _tokens(self, variants: Ints) -> tuple[Int[Tensor, "rows 1"], Int[Tensor, "rows own"]]:
        """Row and places in the kept pass of variants' recomputed tokens, padded with the last one."""
        blocks = self.block_of[variants]
        return torch.from_numpy(self._row_of[blocks])[:, None], torch.from_numpy(self._places_of[blocks])

    def _of_rows(self, given: Any, device: torch.device) -> Any:
        """A layer's arguments for the present rows: what has a row and a token dimension is gathered."""
        if isinstance(given, tuple | list):
            return type(given)(self._of_rows(one, device) for one in given)
        if isinstance(given, dict):
            return {key: self._of_rows(one, device) for key, one in given.items()}
        rows, tokens = self.states.batch.token_ids.shape
        if not isinstance(given, Tensor) or given.ndim < 2 or given.shape[0] not in (1, rows):
            return given
        if given.shape[1] != tokens:
            return given
        row, token = (one.to(given.device) for one in self._index)
        return given[row if given.shape[0] > 1 else torch.zeros_like(row), token]

    def _rows(self, variants: Tensor) -> Tensor:
        """Rows of the present batch that hold variants."""
        return torch.from_numpy(np.searchsorted(self.present, variants.numpy()))

    def attend(self, module: nn.Module, core: Core, value: Tensor, mask: PackedMask) -> Tensor:
        """One layer's heads' outputs [rows, own tokens, heads, value_dim], edited."""
        layer = self.layer_of[module]
        rows, heads, width, _ = core.query.shape
        outputs = value.new_zeros(rows, width, heads, value.shape[-1])
        if not len(self.present):
            return outputs
        bias = self.scores.get(layer)
        edited = None if bias is None else (bias, self._rows(bias.rows).numpy())
        unedited = self._unedited(layer)
        for number, block in enumerate(self.blocks):
            start, stop = int(self.bounds[number]), int(self.bounds[number + 1])
            if unedited[number]:
                # Within a block variants are in the order of their layers: the last rows have just joined.
                joined, stop = slice(stop - unedited[number], stop), stop - unedited[number]
                outputs[joined, : len(block.tokens)] = self.states.kept[layer].outputs[block.row, block.tokens]
            if start < stop:
                self._attend_block(layer, block, start, stop, core, value, mask, edited, outputs)
        for affine in self.heads.get(layer, ()):
            change(outputs, affine, self._rows(affine.rows))
        return outputs

    def _unedited(self, layer: int) -> Ints:
        """Variants of each block whose attention at a layer is the kept one: they join there, heads edited at most."""
        if layer in self.residuals or layer in self.scores or layer in self._watched:
            return np.zeros(len(self.blocks), np.int64)
        return np.bincount(self.block_of[self.layer == layer], minlength=len(self.blocks))

    def _attend_block(
        self,
        layer: int,
        block: Block,
        start: int,
        stop: int,
        core: Core,
        value: Tensor,
        mask: PackedMask,
        edited: tuple[Bias, Ints] | None,
        outputs: Tensor,
    ) -> None:
        kept, own, groups = self.states.kept[layer], len(block.tokens), core.groups
        rows, kv = stop - start, core.key.shape[1]
        past = kept.key[block.row, :, : block.seen].float()  # [kv, seen, dim], a view
        query = core.query[start:stop, :, :own].float() * core.scaling
        query = query.reshape(rows, kv, groups * own, -1)
        fresh = core.key[start:stop, :, :own].float()
        scores = query.new_empty(kv, rows, groups * own, block.seen + own)
        scores[..., : block.seen] = (
            query.transpose(0, 1).reshape(kv, rows * groups * own, -1) @ past.transpose(1, 2)
        ).view(kv, rows, groups * own, block.seen)
        scores[..., block.seen :] = (query @ fresh.transpose(2, 3)).transpose(0, 1)
        if core.softcap is not None:
            scores = core.softcap * torch.tanh(scores / core.softcap)
        by_token = scores.view(kv, rows, groups, own, -1)
        if edited is not None:
            self._shift(by_token, block, start, stop, groups, *edited)
        hidden_past, hidden_own = self._hidden(block, mask, scores.device)
        if hidden_past is not None:
            by_token[..., : block.seen].masked_fill_(hidden_past, -torch.inf)
        if hidden_own is not None:
            by_token[..., block.seen :].masked_fill_(hidden_own, -torch.inf)
        weights = _softmax(by_token, core.sinks)
        if layer in self._watched:
            self._keep_attention(layer, block, start, stop, weights[:, :, :, -1])
        weights = weights.to(value.dtype)
        before = weights[..., : block.seen].reshape(kv, rows * groups * own, block.seen)
        mixed = (before @ kept.value[block.row, :, : block.seen]).view(kv, rows, groups * own, -1)
        # [kv, rows, groups, own, dim] to [rows, own, heads, dim]
        inside = weights[..., block.seen :].reshape(kv, rows, groups * own, own)
        mixed = mixed + inside @ value[start:stop, :, :own].transpose(0, 1)
        mixed = mixed.view(kv, rows, groups, own, -1).permute(1, 3, 0, 2, 4)
        outputs[start:stop, :own] = mixed.reshape(rows, own, kv * groups, -1)

    def _hidden(
        self, block: Block, mask: PackedMask, device: torch.device
    ) -> tuple[Bool[Tensor, "own seen"] | None, Bool[Tensor, "own own"] | None]:
        """What the block's tokens do not see among the kept and among their own tokens; None where they see all."""
        key = id(mask.rule)
        if key not in block.masks:
            batch = self.states.batch
            tokens = torch.from_numpy(block.tokens).to(batch.positions.device)
            one = slice(block.row, block.row + 1)
            row = type(batch)(
                batch.token_ids[one], batch.positions[one], batch.segments[one], batch.queries[one],
                batch.is_query[one], batch.causal_rows,
            )  # fmt: skip
            sees = mask.sees(row, tokens[None])[0, 0]
            past = ~sees[:, : block.seen]
            inside = torch.isin(torch.arange(block.seen, device=tokens.device), tokens)
            past, own = past | inside, ~sees[:, tokens]
            block.masks[key] = (past if past.any() else None, own if own.any() else None)
        past_hidden, own_hidden = block.masks[key]
        return (
            None if past_hidden is None else past_hidden.to(device),
            None if own_hidden is None else own_hidden.to(device),
        )

    def _columns(self, block: Block, positions: Ints) -> Ints:
        """Columns of the block's scores that hold the prompt's own positions."""
        places = self.states.places[block.prompt]
        first = len(places) - len(block.tokens)
        return np.where(positions < first, places[np.minimum(positions, first)], block.seen + positions - first)

    def _shift(self, scores: Tensor, block: Block, start: int, stop: int, groups: int, bias: Bias, rows: Ints) -> None:
        inside = np.flatnonzero((rows >= start) & (rows < stop))
        if not len(inside):
            return
        heads, tokens = bias.heads.numpy()[inside], bias.tokens[inside]
        columns = torch.from_numpy(self._columns(block, bias.keys.numpy()[inside]))
        at = (torch.from_numpy(heads // groups), torch.from_numpy(rows[inside] - start),
              torch.from_numpy(heads % groups), tokens, columns)  # fmt: skip
        scores.index_put_(
            tuple(one.to(scores.device) for one in at), bias.shift[inside].to(scores.device), accumulate=True
        )

    def _keep_attention(self, layer: int, block: Block, start: int, stop: int, weights: Tensor) -> None:
        """Weights at the query [kv, rows, groups, columns] of the watched heads, to the first token and the labels."""
        prompt = self.states.prompts[block.prompt]
        columns = torch.from_numpy(self._columns(block, np.r_[0, prompt.label_positions]))
        groups = weights.shape[2]
        rows = torch.from_numpy(self.present[start:stop])
        for place, head in self._watched[layer]:
            read = weights[head // groups, :, head % groups][:, columns.to(weights.device)].cpu()
            self.attention[rows, place, : read.shape[1]] = read


def _softmax(scores: Float[Tensor, "kv rows groups own columns"], sinks: Tensor | None) -> Tensor:
    if sinks is None:
        return scores.softmax(-1)
    kv, rows, groups, own, _ = scores.shape
    sink = sinks.float().view(kv, 1, groups, 1, 1).expand(-1, rows, -1, own, -1)
    return torch.cat([scores, sink], -1).softmax(-1)[..., :-1]
