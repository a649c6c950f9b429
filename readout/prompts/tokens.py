"""Prompts as tokens, with the position of every part.

A label is the single token that the tokeniser really produces at its place: prompt and label are tokenised together
and the ids compared, at the query and at every demonstration.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from readout.errors import PromptError
from readout.prompts.prompt import Layout, Prompt, parse_template

Ints = NDArray[np.int64]

# texts handed to the tokeniser at once: bounds the memory that offsets take
BATCH = 512


@dataclass(frozen=True, eq=False)
class TokenizedPrompt:
    """A prompt's tokens and the positions of its parts.

    Parameters
    ----------
    prompt
        The prompt; it has k demonstrations and L candidate labels.
    token_ids
        int64[T], with what the tokeniser puts in front of a text (such as BOS) and nothing behind it.
    label_positions
        int64[k], position of each demonstration's label token.
    demonstration_labels
        int64[k], index into `prompt.labels` of each demonstration's label.
    label_ids
        int64[L], token id of each candidate label, the same at demonstrations and after the query.
    cue_positions
        int64[k], the position before each label token: what the model has read when the label comes.
    demonstration_spans
        int64[k, 2], token start and stop of each demonstration's text. Tokens that hold any of its characters count,
        so a token shared with the template is inside.
    query_span
        int64[2], token start and stop of the query's text.
    query_position
        T - 1, the last token, where the query's label is predicted.
    """

    prompt: Prompt
    token_ids: Ints
    label_positions: Ints
    demonstration_labels: Ints
    label_ids: Ints
    cue_positions: Ints
    demonstration_spans: Ints
    query_span: Ints
    query_position: int


class _Encoded(NamedTuple):
    """Token ids of a text without what the tokeniser puts behind it, and each token's characters."""

    ids: list[int]
    starts: Ints
    stops: Ints


def tokenize(
    prompts: Sequence[Prompt], tokenizer: Any, label_pieces: Literal["refuse", "first"] = "refuse"
) -> list[TokenizedPrompt]:
    """Tokenise prompts and find their parts.

    Parameters
    ----------
    prompts
        Any prompts.
    tokenizer
        A fast tokeniser of transformers (`PreTrainedTokenizerFast`).
    label_pieces
        "refuse" labels of several tokens, or take their "first" piece as the label token.

    Returns
    -------
    list of TokenizedPrompt
        One for each prompt, in order.

    Raises
    ------
    PromptError
        When the tokeniser is slow; when a label is several tokens, merges with what stands next to it or is another
        token at a demonstration than after the query (its pieces are named); when two labels of a prompt share their
        token.
    """
    if not getattr(tokenizer, "is_fast", False):
        raise PromptError(
            f"token positions need a fast tokeniser, got {type(tokenizer).__name__}; "
            "load it with AutoTokenizer.from_pretrained(...), or convert it to a tokenizer.json"
        )
    if label_pieces not in ("refuse", "first"):
        raise PromptError(f"label_pieces must be refuse or first, got {label_pieces!r}")
    tokenized: list[TokenizedPrompt] = []
    batch: list[Prompt] = []
    waiting = 0
    for prompt in prompts:
        batch.append(prompt)
        waiting += 1 + len(prompt.labels)
        if waiting >= BATCH:
            tokenized += _tokenize_batch(batch, tokenizer, label_pieces)
            batch, waiting = [], 0
    return tokenized + (_tokenize_batch(batch, tokenizer, label_pieces) if batch else [])


def _tokenize_batch(prompts: Sequence[Prompt], tokenizer: Any, label_pieces: str) -> list[TokenizedPrompt]:
    layouts = [prompt.layout() for prompt in prompts]
    texts: list[str] = []
    for prompt, layout in zip(prompts, layouts, strict=True):
        space = parse_template(prompt.template).space
        texts.append(layout.text)
        texts += [layout.text + space + label for label in prompt.labels]
    encoded = iter(_encode(texts, tokenizer))
    return [
        _positions(
            prompt, layout, next(encoded), [next(encoded) for _ in prompt.labels], tokenizer, label_pieces
        )
        for prompt, layout in zip(prompts, layouts, strict=True)
    ]


def _encode(texts: list[str], tokenizer: Any) -> list[_Encoded]:
    # verbose: the warning about texts longer than the model is the model's business, not the prompt's
    batch = tokenizer(texts, padding=False, truncation=False, return_attention_mask=False, verbose=False)
    encoded = []
    for encoding in batch.encodings:
        special = encoding.special_tokens_mask
        length = len(special)
        while length and special[length - 1]:
            length -= 1
        offsets = np.array(encoding.offsets[:length], dtype=np.int64).reshape(length, 2)
        encoded.append(_Encoded(encoding.ids[:length], offsets[:, 0], offsets[:, 1]))
    return encoded


def _positions(
    prompt: Prompt,
    layout: Layout,
    encoded: _Encoded,
    joint: Sequence[_Encoded],
    tokenizer: Any,
    label_pieces: str,
) -> TokenizedPrompt:
    label_ids = [
        _label_id(label, encoded.ids, both.ids, tokenizer, label_pieces)
        for label, both in zip(prompt.labels, joint, strict=True)
    ]
    _refuse_shared(prompt.labels, label_ids, tokenizer)
    index = {label: place for place, label in enumerate(prompt.labels)}
    shown = [index[demonstration.label] for demonstration in prompt.demonstrations]
    spots = [
        _label_position(prompt.labels[place], label_ids[place], span, encoded, tokenizer, label_pieces)
        for place, span in zip(shown, layout.label_spans, strict=True)
    ]
    positions = np.array(spots, dtype=np.int64)
    spans = [_token_span(span, layout.text, encoded) for span in layout.demonstration_spans]
    return TokenizedPrompt(
        prompt=prompt,
        token_ids=np.array(encoded.ids, dtype=np.int64),
        label_positions=positions,
        demonstration_labels=np.array(shown, dtype=np.int64),
        label_ids=np.array(label_ids, dtype=np.int64),
        cue_positions=positions - 1,
        demonstration_spans=np.array(spans, dtype=np.int64).reshape(len(spans), 2),
        query_span=np.array(_token_span(layout.query_span, layout.text, encoded), dtype=np.int64),
        query_position=len(encoded.ids) - 1,
    )


def _label_id(label: str, alone: list[int], both: list[int], tokenizer: Any, label_pieces: str) -> int:
    """The token that follows the prompt when prompt and label are tokenised together."""
    if both[: len(alone)] != alone:
        same = next(
            place for place, pair in enumerate(zip(alone, [*both, -1], strict=False)) if pair[0] != pair[1]
        )
        raise PromptError(
            f"the label {label!r} merges with the text before it into {_named(both[same:], tokenizer)}; "
            "put a space or a line break before {label} in the template"
        )
    pieces = both[len(alone) :]
    if not pieces:
        raise PromptError(f"the tokeniser makes no token of the label {label!r}; choose another label")
    if len(pieces) > 1 and label_pieces == "refuse":
        raise PromptError(
            f"the label {label!r} is {len(pieces)} tokens ({_named(pieces, tokenizer)}), expected one; "
            "choose another label, or take the first piece with label_pieces='first'"
        )
    return pieces[0]


def _refuse_shared(labels: Sequence[str], label_ids: Sequence[int], tokenizer: Any) -> None:
    owner: dict[int, str] = {}
    for label, token in zip(labels, label_ids, strict=True):
        other = owner.setdefault(token, label)
        if other != label:
            raise PromptError(
                f"the labels {other!r} and {label!r} have the same first token {_named([token], tokenizer)}; "
                "choose labels that differ in it"
            )


def _label_position(
    label: str, label_id: int, span: tuple[int, int], encoded: _Encoded, tokenizer: Any, label_pieces: str
) -> int:
    """Position of a demonstration's label token."""
    start, stop = span
    places = np.flatnonzero((encoded.stops > start) & (encoded.starts < stop))
    # tokens of no characters (specials inside a text) never count
    places = places[encoded.stops[places] > encoded.starts[places]]
    pieces = [encoded.ids[place] for place in places]
    if not pieces:
        raise PromptError(f"the tokeniser makes no token of the label {label!r}; choose another label")
    named = _named(pieces, tokenizer)
    if encoded.starts[places[0]] < start:
        raise PromptError(
            f"the label {label!r} merges with the text before it into {named}; "
            "put a space or a line break before {label} in the template"
        )
    if encoded.stops[places[-1]] > stop:
        raise PromptError(
            f"the label {label!r} merges with the text after it into {named}; "
            "put a line break after {label} in the template"
        )
    if len(pieces) > 1 and label_pieces == "refuse":
        raise PromptError(
            f"the label {label!r} is {len(pieces)} tokens ({named}) in a demonstration, expected one; "
            "choose another label, or take the first piece with label_pieces='first'"
        )
    if pieces[0] != label_id:
        raise PromptError(
            f"the label {label!r} is the token {named} in a demonstration and "
            f"{_named([label_id], tokenizer)} after the query; choose another label or template"
        )
    return int(places[0])


def _token_span(span: tuple[int, int], text: str, encoded: _Encoded) -> tuple[int, int]:
    start, stop = span
    places = np.flatnonzero(
        (encoded.stops > start) & (encoded.starts < stop) & (encoded.stops > encoded.starts)
    )
    if not len(places):
        raise PromptError(f"the tokeniser makes no token of the text {text[start:stop]!r}; leave it out")
    return int(places[0]), int(places[-1]) + 1


def _named(ids: Sequence[int], tokenizer: Any) -> str:
    return ", ".join(repr(tokenizer.decode([token])) for token in ids)
