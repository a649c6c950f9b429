"""One unedited pass over prompts, kept: what edited passes start from and what patches read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from readout.models import LanguageModel, PackedBatch, Session, pack
from readout.models.attention import Kept, attending
from readout.models.wiring import hooked
from readout.prompts.tokens import Ints, TokenizedPrompt

LayerInputs = tuple[tuple[Any, ...], dict[str, Any]]


@dataclass(frozen=True)
class States:
    """What an unedited pass over packed prompts left behind.

    Attributes
    ----------
    prompts : the prompts, in the order of the batch's queries
    batch : their packed rows
    rows : int64 [prompts], each prompt's row
    places : per prompt, int64 [tokens]: where in its row each of its tokens is
    kept : by layer, keys, values and heads' outputs of every token
    residuals : by layer, the residual stream that enters it, [rows, tokens, width]
    inputs : by layer, the arguments that the model called it with
    logits : float32 [prompts, candidates] of the labels at the query
    log_normaliser : float32 [prompts] or None, log of the sum over the vocabulary
    """

    prompts: Sequence[TokenizedPrompt]
    batch: PackedBatch
    rows: Ints
    places: tuple[Ints, ...]
    kept: dict[int, Kept]
    residuals: dict[int, Tensor]
    inputs: dict[int, LayerInputs]
    logits: Float[Tensor, "prompts candidates"]
    log_normaliser: Float[Tensor, " prompts"] | None


def rows_of_contexts(prompts: Sequence[TokenizedPrompt], share: bool) -> list[list[int]]:
    """Numbers of the prompts in each packed row: neighbours of one context together where contexts are shared."""
    rows: list[list[int]] = []
    for number, one in enumerate(prompts):
        together = rows and prompts[rows[-1][0]].prompt.demonstrations == one.prompt.demonstrations
        if share and together and prompts[rows[-1][0]].prompt.context == one.prompt.context:
            rows[-1].append(number)
        else:
            rows.append([number])
    return rows


def label_candidates(prompts: Sequence[TokenizedPrompt]) -> Int[Tensor, "prompts labels"]:
    """Label token ids, padded with the first one."""
    width = max(len(one.label_ids) for one in prompts)
    padded = [np.pad(one.label_ids, (0, width - len(one.label_ids)), mode="edge") for one in prompts]
    return torch.from_numpy(np.stack(padded))


@torch.inference_mode()
def keep_states(model: LanguageModel, prompts: Sequence[TokenizedPrompt], normalise: bool = False) -> States:
    """Run prompts once and keep what edited passes need.

    Parameters
    ----------
    model : the model
    prompts : tokenised prompts; neighbours that share a context are packed into one row
    normalise : also compute the log of the sum over the vocabulary

    Returns
    -------
    States
        About (2 kv_heads head_dim + heads head_dim + width) numbers a token and layer stay in memory.
    """
    packed = rows_of_contexts(prompts, model.can_share)
    batch = pack([[prompts[number].token_ids for number in row] for row in packed]).to(model.device)
    rows, places = [], []
    for number, row in enumerate(packed):
        segments = batch.segments[number].cpu().numpy()
        for branch in range(len(row)):
            rows.append(number)
            places.append(np.flatnonzero((segments == 0) | (segments == branch + 1)))
    inputs: dict[int, LayerInputs] = {}
    residuals: dict[int, Tensor] = {}
    session = Session(batch, model.wiring.layer_of, keep=True)
    candidates = label_candidates(prompts).to(model.device)

    def at_queries(hidden: Tensor) -> Tensor:
        index = batch.queries.to(hidden.device)[:, :, None].expand(-1, -1, hidden.shape[-1])
        return hidden.gather(1, index)[batch.is_query.to(hidden.device)][:, None]

    with ExitStack() as stack:
        for part in model.wiring.attentions:
            keep = _keep_inputs(part.layer, inputs, residuals)
            stack.enter_context(hooked(part.decoder_layer, keep))
        unembed(stack, model.wiring.unembedding, at_queries, None if normalise else candidates)
        stack.enter_context(attending(session))
        logits = model.model(
            input_ids=batch.token_ids,
            attention_mask=torch.ones_like(batch.token_ids),
            position_ids=batch.positions,
            use_cache=False,
        ).logits[:, 0]
    logits, log_normaliser = read_logits(logits, candidates, normalise)
    return States(
        prompts, batch, np.array(rows), tuple(places), session.kept, residuals, inputs, logits, log_normaliser
    )


def _keep_inputs(layer: int, inputs: dict[int, LayerInputs], residuals: dict[int, Tensor]) -> Callable[..., None]:
    def keep(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        residuals[layer] = args[0] if args else kwargs["hidden_states"]
        rest = {key: value for key, value in kwargs.items() if key != "hidden_states"}
        inputs[layer] = (args[1:], rest)

    return keep


def read_logits(
    logits: Float[Tensor, "prompts any"], candidates: Int[Tensor, "prompts labels"], normalise: bool
) -> tuple[Float[Tensor, "prompts labels"], Float[Tensor, " prompts"] | None]:
    """Labels' logits and the log of the sum over the vocabulary, out of whole logits or of the labels' alone."""
    logits = logits.float()
    if not normalise:
        return logits, None
    return logits.gather(1, candidates.to(logits.device)), logits.logsumexp(-1)


def unembed(
    stack: ExitStack,
    unembedding: nn.Module,
    pick: Callable[[Tensor], Tensor],
    candidates: Int[Tensor, "prompts labels"] | None,
) -> None:
    """Unembed the picked positions [prompts, 1, width] alone and, given candidates, these tokens alone.

    What the model does to the logits afterwards (scale, soft cap) still happens.
    """
    weight, bias = getattr(unembedding, "weight", None), getattr(unembedding, "bias", None)
    if candidates is None or not isinstance(weight, Tensor) or not weight.is_floating_point():
        # A quantised unembedding computes all logits; the labels' are then gathered by the second hook.
        stack.enter_context(hooked(unembedding, lambda args, kwargs: ((pick(args[0]), *args[1:]), kwargs)))
        if candidates is not None:
            gather = candidates[:, None]
            handle = unembedding.register_forward_hook(lambda _, __, out: out.gather(2, gather.to(out.device)))
            stack.callback(handle.remove)
        return
    picked: list[Tensor] = []

    def narrow(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        picked.append(pick(args[0]))
        return ((args[0][:0], *args[1:]), kwargs)

    def project(module: nn.Module, args: Any, output: Tensor) -> Tensor:
        hidden, chosen = picked.pop(), candidates.to(weight.device)
        logits = torch.einsum("nqd,nld->nql", hidden, weight[chosen].to(hidden.dtype))
        return logits if bias is None else logits + bias[chosen][:, None]

    stack.enter_context(hooked(unembedding, narrow))
    handle = unembedding.register_forward_hook(project)
    stack.callback(handle.remove)
