"""Prompts as tokens, with the position of every part.

A label is the single token that the tokeniser really produces at its place: prompt and label are tokenised
together and the ids compared, at the query and at every demonstration.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from readout.errors import PromptError
from readout.prompts.prompt import Layout, Prompt, parse_template

Ints = NDArray[np.int64]

# prompts handed to the tokeniser at once: bounds the memory that their encodings take
BATCH = 128


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
        int64[k, 2], token start and stop of each demonstration's text. Tokens that hold any of its characters
        count, so a token shared with the template is inside.
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
    """Token ids of a text without what the tokeniser puts behind it, and the characters of each token."""

    ids: list[int]
    places: Ints  # tokens that hold any characters
    starts: Ints  # first character of each of these, never falling
    stops: Ints

    def cover(self, spans: Sequence[tuple[int, int]]) -> Ints:
        """First token in `places` that holds characters of a span, and the one behind the last, [n, 2]."""
        edges = np.array(spans, dtype=np.int64).reshape(len(spans), 2)
        first = np.searchsorted(self.stops, edges[:, 0], side="right")
        behind = np.searchsorted(self.starts, edges[:, 1], side="left")
        return np.stack([first, behind], axis=1)


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
        When the tokeniser is slow; when a label is several tokens, merges with what stands next to it or is
        another token at a demonstration than after the query (its pieces are named); when two labels of a
        prompt share their token.
    """
    if not getattr(tokenizer, "is_fast", False):
        raise PromptError(
            f"token positions need a fast tokeniser, got {type(tokenizer).__name__}; "
            "load it with AutoTokenizer.from_pretrained(...), or convert it to a tokenizer.json"
        )
    if label_pieces not in ("refuse", "first"):
        raise PromptError(f"label_pieces must be refuse or first, got {label_pieces!r}")
    tokenized: list[TokenizedPrompt] = []
    for start in range(0, len(prompts), BATCH):
        tokenized += _tokenize_batch(prompts[start : start + BATCH], tokenizer, label_pieces)
    return tokenized


def _tokenize_batch(prompts: Sequence[Prompt], tokenizer: Any, label_pieces: str) -> list[TokenizedPrompt]:
    layouts = [prompt.layout() for prompt in prompts]
    texts: list[str] = []
    for prompt, layout in zip(prompts, layouts, strict=True):
        space = parse_template(prompt.template).space
        texts.append(layout.text)
        texts += [layout.text + space + label for label in prompt.labels]
    encodings = iter(_encode(texts, tokenizer))
    tokenized = []
    for prompt, layout in zip(prompts, layouts, strict=True):
        encoded = _with_characters(next(encodings))
        joint = [_ids(next(encodings)) for _ in prompt.labels]
        tokenized.append(_positions(prompt, layout, encoded, joint, tokenizer, label_pieces))
    return tokenized


def _encode(texts: list[str], tokenizer: Any) -> list[Any]:
    # verbose: the warning about texts longer than the model is the model's business, not the prompt's
    batch = tokenizer(texts, padding=False, truncation=False, return_attention_mask=False, verbose=False)
    return list(batch.encodings)


def _ids(encoding: Any) -> list[int]:
    """Token ids without what the tokeniser puts behind a text (such as EOS)."""
    special = encoding.special_tokens_mask
    length = len(special)
    while length and special[length - 1]:
        length -= 1
    ids: list[int] = encoding.ids
    return ids[:length]


def _with_characters(encoding: Any) -> _Encoded:
    ids = _ids(encoding)
    offsets = np.array(encoding.offsets[: len(ids)], dtype=np.int64).reshape(len(ids), 2)
    places = np.flatnonzero(offsets[:, 1] > offsets[:, 0])
    return _Encoded(ids, places, offsets[places, 0], offsets[places, 1])


def _positions(
    prompt: Prompt,
    layout: Layout,
    encoded: _Encoded,
    joint: Sequence[list[int]],
    tokenizer: Any,
    label_pieces: str,
) -> TokenizedPrompt:
    label_ids = [
        _label_id(label, encoded.ids, both, tokenizer, label_pieces)
        for label, both in zip(prompt.labels, joint, strict=True)
    ]
    _refuse_shared(prompt.labels, label_ids, tokenizer)
    index = {label: place for place, label in enumerate(prompt.labels)}
    shown = np.array([index[demonstration.label] for demonstration in prompt.demonstrations], dtype=np.int64)
    wanted = np.array(label_ids, dtype=np.int64)
    covers = encoded.cover(layout.label_spans)
    for place, cover, span in zip(shown.tolist(), covers.tolist(), layout.label_spans, strict=True):
        _check_label(prompt.labels[place], label_ids[place], span, cover, encoded, tokenizer, label_pieces)
    positions = encoded.places[covers[:, 0]]
    spans = _text_spans([*layout.demonstration_spans, layout.query_span], layout.text, encoded)
    return TokenizedPrompt(
        prompt=prompt,
        token_ids=np.array(encoded.ids, dtype=np.int64),
        label_positions=positions,
        demonstration_labels=shown,
        label_ids=wanted,
        cue_positions=positions - 1,
        demonstration_spans=spans[:-1],
        query_span=spans[-1],
        query_position=len(encoded.ids) - 1,
    )


def _label_id(label: str, alone: list[int], both: list[int], tokenizer: Any, label_pieces: str) -> int:
    """The token that follows the prompt when prompt and label are tokenised together."""
    if both[: len(alone)] != alone:
        same = next(place for place, pair in enumerate(zip(alone, [*both, -1], strict=False)) if pair[0] != pair[1])
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
            "choose another label, or take the first piece with label_pieces='first' (--label-pieces)"
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


def _check_label(
    label: str,
    label_id: int,
    span: tuple[int, int],
    cover: list[int],
    encoded: _Encoded,
    tokenizer: Any,
    label_pieces: str,
) -> None:
    """Refuse a demonstration's label that is not the token that follows the query."""
    first, behind = cover
    pieces = [encoded.ids[place] for place in encoded.places[first:behind]]
    if not pieces:
        raise PromptError(f"the tokeniser makes no token of the label {label!r}; choose another label")
    if encoded.starts[first] < span[0]:
        raise PromptError(
            f"the label {label!r} merges with the text before it into {_named(pieces, tokenizer)}; "
            "put a space or a line break before {label} in the template"
        )
    if encoded.stops[behind - 1] > span[1]:
        raise PromptError(
            f"the label {label!r} merges with the text after it into {_named(pieces, tokenizer)}; "
            "put a line break after {label} in the template"
        )
    if len(pieces) > 1 and label_pieces == "refuse":
        raise PromptError(
            f"the label {label!r} is {len(pieces)} tokens ({_named(pieces, tokenizer)}) in a demonstration, "
            "expected one; choose another label, or take the first piece with label_pieces='first' (--label-pieces)"
        )
    if pieces[0] != label_id:
        raise PromptError(
            f"the label {label!r} starts with the token {_named(pieces[:1], tokenizer)} in a demonstration "
            f"and with {_named([label_id], tokenizer)} after the query; choose another label or template"
        )


def _text_spans(spans: Sequence[tuple[int, int]], text: str, encoded: _Encoded) -> Ints:
    """Token start and stop of each span of characters, [n, 2]."""
    covers = encoded.cover(spans)
    for (first, behind), (start, stop) in zip(covers.tolist(), spans, strict=True):
        if first >= behind:
            raise PromptError(f"the tokeniser makes no token of the text {text[start:stop]!r}; leave it out")
    return np.stack([encoded.places[covers[:, 0]], encoded.places[covers[:, 1] - 1] + 1], axis=1)


def _named(ids: Sequence[int], tokenizer: Any) -> str:
    return ", ".join(repr(tokenizer.decode([token])) for token in ids)
