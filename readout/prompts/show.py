"""Prompts for the terminal, as the model reads them, with label tokens marked."""

from collections.abc import Sequence
from typing import Any, Final, Literal

from readout.prompts.prompt import Prompt
from readout.prompts.tokens import TokenizedPrompt, tokenize

OPEN: Final = "⟦"
CLOSE: Final = "⟧"


def show(prompts: Sequence[Prompt], tokenizer: Any = None, label_pieces: Literal["refuse", "first"] = "refuse") -> str:
    """Write prompts out for the terminal.

    Parameters
    ----------
    prompts
        Any prompts.
    tokenizer
        A fast tokeniser: marks the label tokens that it makes, and counts tokens. Without one, the labels'
        characters are marked.
    label_pieces
        As in `tokenize`.

    Returns
    -------
    str
        Each prompt under a line that says its context, size and answer; ⟦ and ⟧ stand around label tokens,
        ⟦?⟧ where the label is predicted.

    Raises
    ------
    PromptError
        When a label is refused by `tokenize`.
    """
    if tokenizer is None:
        return "\n\n".join(_marked(prompt, "") for prompt in prompts)
    return "\n\n".join(_tokens(one, tokenizer) for one in tokenize(prompts, tokenizer, label_pieces))


def _head(prompt: Prompt, size: str) -> str:
    known = prompt.query_class in prompt.label_classes
    answer = f"{prompt.correct_label} ({prompt.query_class})" if known else f"none ({prompt.query_class})"
    labels = ", ".join(
        f"{label} = {name} x {count}"
        for label, name, count in zip(prompt.labels, prompt.label_classes, prompt.counts, strict=True)
    )
    return f"--- context {prompt.context}: {labels}{size}; answer: {answer}"


def _marked(prompt: Prompt, size: str) -> str:
    layout = prompt.layout()
    parts, at = [], 0
    for start, stop in layout.label_spans:
        parts += [layout.text[at:start], OPEN, layout.text[start:stop], CLOSE]
        at = stop
    return f"{_head(prompt, size)}\n{''.join(parts)}{layout.text[at:]}{OPEN}?{CLOSE}"


def _tokens(one: TokenizedPrompt, tokenizer: Any) -> str:
    ids = one.token_ids.tolist()
    parts, at = [], 0
    for position in one.label_positions.tolist():
        parts += [tokenizer.decode(ids[at:position]), OPEN, tokenizer.decode([ids[position]]), CLOSE]
        at = position + 1
    text = "".join(parts) + tokenizer.decode(ids[at:])
    return f"{_head(one.prompt, f'; {len(ids)} tokens')}\n{text}{OPEN}?{CLOSE}"
