"""What `intervene` refuses before it computes anything."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from readout.circuit.edits import Block, Head, Intervention, Mean, Patch
from readout.circuit.outcome import Answers
from readout.circuit.positions import Positions, is_whole, shown
from readout.errors import InterventionError
from readout.models import LanguageModel
from readout.prompts import Prompt, TokenizedPrompt, tokenize
from readout.wording import counted

Prompts = Sequence[Prompt] | Sequence[TokenizedPrompt]


def check_options(model: Any, method: Any, methods: Sequence[str], batch_tokens: Any) -> None:
    """Refuse what is no model, no method or no number of tokens."""
    if not isinstance(model, LanguageModel):
        raise InterventionError(f"model: expected one that load_model(...) gives, got {shown(model)}")
    if method not in methods:
        raise InterventionError(f"method: expected one of {', '.join(methods)}, got {shown(method)}")
    if not is_whole(batch_tokens) or batch_tokens < 1:
        raise InterventionError(f"batch_tokens: expected a positive number, got {shown(batch_tokens)}")


def as_interventions(given: Any) -> tuple[Intervention, ...]:
    """A list of interventions.

    Raises
    ------
    InterventionError
        If it is none, or empty.
    """
    if isinstance(given, Intervention):
        raise InterventionError("interventions: expected a list, got one intervention: put it in a list")
    listed = tuple(given) if isinstance(given, Iterable) else (given,)
    if not listed:
        raise InterventionError("there are no interventions: give at least one, such as ablate([(layer, head)])")
    wrong = [one for one in listed if not isinstance(one, Intervention)]
    if wrong:
        raise InterventionError(
            "interventions: expected a list of what ablate(...) and Intervention.of(name, (where, what)) give, got "
            f"{shown(wrong[0])}"
        )
    return listed


def as_tokenized(model: LanguageModel, given: Any, what: str) -> Sequence[TokenizedPrompt]:
    """A list of prompts, tokenised, that the model can read.

    Raises
    ------
    InterventionError
        If it is none, empty, of two kinds, or of another tokeniser.
    """
    example = "a list of prompts, as PromptDistribution(...).prompts() gives it"
    if isinstance(given, Prompt | TokenizedPrompt):
        raise InterventionError(f"{what}: expected {example}, got one prompt: put it in a list")
    if isinstance(given, str | Mapping) or not isinstance(given, Iterable):
        raise InterventionError(f"{what}: expected {example}, got {type(given).__name__}")
    listed = list(given)
    if not listed:
        raise InterventionError(f"{what}: there is no prompt, give at least one")
    wrong = [one for one in listed if not isinstance(one, Prompt | TokenizedPrompt)]
    if wrong:
        raise InterventionError(f"{what}: expected {example}, got {type(wrong[0]).__name__} in it")
    ready = [one for one in listed if isinstance(one, TokenizedPrompt)]
    if ready and len(ready) < len(listed):
        raise InterventionError(f"{what}: some prompts are tokenised and some are not: give one kind")
    found = ready or tokenize(listed, model.tokenizer)
    _check_tokens(model, found, what)
    return found


def _check_tokens(model: LanguageModel, prompts: Sequence[TokenizedPrompt], what: str) -> None:
    known, most = int(model.model.get_input_embeddings().num_embeddings), model.context_length
    for number, one in enumerate(prompts):
        ids = np.concatenate([one.token_ids, one.label_ids])
        if not len(one.token_ids) or ids.min() < 0 or ids.max() >= known:
            raise InterventionError(
                f"{what}: prompt {number} has no tokens, or other ones than the {known} of {model.name}: tokenise it "
                "with this model's tokeniser"
            )
        if most is not None and len(one.token_ids) > most:
            raise InterventionError(
                f"{what}: prompt {number} has {len(one.token_ids)} tokens and {model.name} reads at most {most}: give "
                "fewer demonstrations or shorter texts"
            )
        if one.prompt.query_class not in one.prompt.label_classes:
            raise InterventionError(
                f"{what}: prompt {number} has no label for its query's class {one.prompt.query_class!r}: name a label "
                "that stands for it"
            )


def as_sources(
    model: LanguageModel, given: Any, prompts: Sequence[TokenizedPrompt]
) -> dict[str, Sequence[TokenizedPrompt]]:
    """Lists of prompts by name, each as long as the prompts.

    Raises
    ------
    InterventionError
        If they are not.
    """
    if not isinstance(given, Mapping):
        raise InterventionError(
            f"sources: expected lists of prompts by name, such as {{'others': prompts}}, got {type(given).__name__}"
        )
    found = {name: as_tokenized(model, one, f"sources {name!r}") for name, one in given.items()}
    for name, one in found.items():
        if len(one) != len(prompts):
            raise InterventionError(
                f"the sources {name!r} are {counted(len(one), 'prompt')} and the prompts {len(prompts)}: give one "
                "source for each prompt"
            )
    return found


def check_edits(
    model: LanguageModel,
    prompts: Sequence[TokenizedPrompt],
    interventions: Sequence[Intervention],
    sources: Iterable[str],
    has_reference: bool,
    watch: Sequence[Head],
) -> None:
    """Refuse edits of what is not there, and edits that could change nothing.

    Raises
    ------
    InterventionError
        If a layer, head, source or position does not exist, or a mean is taken over a single value.
    """
    heads = {part.layer: part.n_heads for part in model.wiring.attentions}
    places: dict[Positions, int] = {}
    for one in interventions:
        name = one.name or "an intervention"
        for edit in one.edits:
            layer, at = edit.site.layer, edit.site.at
            if layer not in heads:
                raise InterventionError(
                    f"{name}: {model.name} has the layers {min(heads)} to {max(heads)}, asked for {layer}"
                )
            asked = () if not hasattr(edit.site, "heads") else edit.site.heads
            if any(not 0 <= head < heads[layer] for head in asked):
                raise InterventionError(
                    f"{name}: layer {layer} has heads 0 to {heads[layer] - 1}, asked for {list(asked)}"
                )
            if isinstance(edit.action, Patch) and edit.action.source not in sources:
                raise InterventionError(
                    f"{name} patches from {edit.action.source!r}: give it in sources; known are "
                    f"{', '.join(map(str, sources)) or 'none'}"
                )
            if at not in places:
                places[at] = _count(at, prompts)
            if not places[at]:
                raise InterventionError(
                    f"{name}: no prompt has a position of the role {at.role!r} ({at.which!r}), so nothing is edited: "
                    "give other positions, or prompts with demonstrations"
                )
            if isinstance(edit.action, Mean) and places[at] == 1 and not has_reference:
                raise InterventionError(
                    f"{name}: the mean over one position of one prompt is the value that is there: give more prompts, "
                    "reference prompts, or Zero()"
                )
    for layer, head in watch:
        if not 0 <= head < heads.get(layer, 0):
            raise InterventionError(f"there is no head L{layer}H{head} to watch in {model.name}")


def _count(at: Positions, prompts: Sequence[TokenizedPrompt]) -> int:
    """Positions in all prompts."""
    if at.given and len(at.given) != len(prompts):
        raise InterventionError(
            f"positions are given for {counted(len(at.given), 'prompt')} and the prompts are {len(prompts)}: give a "
            "list for each, empty for none"
        )
    return sum(len(at.find(one, number)) for number, one in enumerate(prompts))


def check_finite(model: LanguageModel, interventions: Sequence[Intervention], answers: Answers) -> None:
    """Refuse answers that are no numbers; the first are without an edit.

    Raises
    ------
    InterventionError
        Naming the first intervention that makes them so.
    """
    finite = np.isfinite(answers.logits).all((1, 2))
    if not finite[0]:
        raise InterventionError(f"{model.name} gives logits that are not finite without any edit: load it in float32")
    if not finite.all():
        wrong = interventions[int(finite.argmin())]
        blocks = any(isinstance(edit.action, Block) for edit in wrong.edits)
        cause = "a row of attention needs at least one key: block fewer" if blocks else "edit less strongly"
        raise InterventionError(f"{wrong.name or 'an intervention'} makes logits that are not finite: {cause}")
