"""Prompts: demonstrations (text, label) and a query, laid out by a template."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from readout.errors import PromptError
from readout.wording import counted


class Template(NamedTuple):
    """A template, taken apart around its text and its label.

    `cue` ends where the model has read everything but the label; the one space that may follow belongs to the
    label, because tokenisers put it there.
    """

    before: str
    cue: str
    space: str
    after: str


@lru_cache(maxsize=256)
def parse_template(template: str) -> Template:
    """Take a template apart.

    Parameters
    ----------
    template
        Holds `{text}` once and then `{label}` once, for instance `"{text}: {label}\\n"`.

    Returns
    -------
    Template
        The parts before the text, between text and label, the label's leading space, and after the label.

    Raises
    ------
    PromptError
        When a field is missing or repeated, when the label comes first, or when nothing separates two fields.
    """
    example = "for instance '{text}: {label}\\n'"
    for field in ("{text}", "{label}"):
        if template.count(field) != 1:
            raise PromptError(
                f"a template holds {{text}} once and {{label}} once; {template!r} holds {field} "
                f"{template.count(field)} times; write {example}"
            )
    before, rest = template.split("{text}") if template.index("{text}") < template.index("{label}") else ("", "")
    if not rest:
        raise PromptError(f"the label must come after the text in a template, got {template!r}; write {example}")
    between, after = rest.split("{label}")
    cue = between.removesuffix(" ")
    if cue.endswith(" "):
        raise PromptError(f"at most one space may stand before {{label}} in a template, got {template!r}")
    if not between:
        raise PromptError(f"nothing separates {{text}} from {{label}} in the template {template!r}; write {example}")
    if not after + before:
        raise PromptError(
            f"nothing follows {{label}} in the template {template!r}; end it with a line break, {example}"
        )
    return Template(before, cue, between[len(cue) :], after)


@dataclass(frozen=True)
class Demonstration:
    """One text of a class, shown with its label."""

    text: str
    class_name: str
    label: str


class Layout(NamedTuple):
    """A prompt's text and the character spans (start, stop) of its parts.

    A demonstration's label span starts where its cue ends: the label's leading space is inside.
    """

    text: str
    demonstration_spans: list[tuple[int, int]]
    label_spans: list[tuple[int, int]]
    query_span: tuple[int, int]


@dataclass(frozen=True)
class Prompt:
    """A context's demonstrations and one query whose label is to be predicted.

    Parameters
    ----------
    context
        Number of the context; prompts with the same number share their demonstrations.
    demonstrations
        The k demonstrations, in the order in which they are read.
    query, query_class
        The query's text and its class.
    labels, label_classes
        The candidate labels (each once) and the class that each stands for, parallel, in the context's class
        order.
    template
        Holds `{text}` and `{label}`; every demonstration follows it, the query follows it up to its label.

    Raises
    ------
    PromptError
        When a label repeats, when labels and classes differ in number, or when a demonstration shows another
        label.
    """

    context: int
    demonstrations: tuple[Demonstration, ...]
    query: str
    query_class: str
    labels: tuple[str, ...]
    label_classes: tuple[str, ...]
    template: str

    def __post_init__(self) -> None:
        parse_template(self.template)
        if len(self.labels) != len(self.label_classes):
            raise PromptError(
                f"a prompt names one class for each label, got {counted(len(self.labels), 'label')} and "
                f"{counted(len(self.label_classes), 'class', 'classes')}"
            )
        if len(set(self.labels)) != len(self.labels):
            raise PromptError(f"the labels of a prompt must differ, got {', '.join(map(repr, self.labels))}")
        for demonstration in self.demonstrations:
            if demonstration.label not in self.labels:
                raise PromptError(
                    f"a demonstration shows the label {demonstration.label!r}, which is none of the prompt's "
                    f"labels {', '.join(map(repr, self.labels))}"
                )

    @property
    def text(self) -> str:
        """The prompt up to the query's label, as the model reads it: no trailing space."""
        return self.layout().text

    @property
    def correct_label(self) -> str:
        """The label of the query's class.

        Raises
        ------
        PromptError
            When no label stands for that class.
        """
        if self.query_class not in self.label_classes:
            raise PromptError(f"no label of the prompt stands for the query's class {self.query_class!r}")
        return self.labels[self.label_classes.index(self.query_class)]

    @property
    def counts(self) -> tuple[int, ...]:
        """Number of demonstrations of each label's class, parallel to `labels`."""
        shown = [demonstration.label for demonstration in self.demonstrations]
        return tuple(shown.count(label) for label in self.labels)

    def layout(self) -> Layout:
        """Lay the prompt out and keep where its parts stand."""
        before, cue, space, after = parse_template(self.template)
        parts: list[str] = []
        texts: list[tuple[int, int]] = []
        labels: list[tuple[int, int]] = []
        at = 0
        for demonstration in self.demonstrations:
            start = at + len(before)
            stop = start + len(demonstration.text)
            end = stop + len(cue)
            parts += (before, demonstration.text, cue, space, demonstration.label, after)
            texts.append((start, stop))
            labels.append((end, end + len(space) + len(demonstration.label)))
            at = labels[-1][1] + len(after)
        parts += (before, self.query, cue)
        start = at + len(before)
        return Layout("".join(parts), texts, labels, (start, start + len(self.query)))


def contexts(prompts: Sequence[Prompt]) -> dict[int, list[int]]:
    """Group prompts by context.

    Parameters
    ----------
    prompts
        Any prompts.

    Returns
    -------
    dict
        From each context's number to the places of its prompts in `prompts`.
    """
    groups: dict[int, list[int]] = {}
    for place, prompt in enumerate(prompts):
        groups.setdefault(prompt.context, []).append(place)
    return groups
