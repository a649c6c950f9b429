"""The specification of a prompt distribution, and the prompts drawn from it."""

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, cast

from readout.errors import PromptError
from readout.prompts.context import draw_context
from readout.prompts.fields import Shots, check, frozen_shots, is_int, option
from readout.prompts.labels import HALVES, OWN, POOLS, half, label_pool
from readout.prompts.prompt import Prompt, parse_template
from readout.prompts.tasks import Task, build_task, check_task, load_task
from readout.wording import counted

Half = Literal["all", "a", "b"]

_CHOICES: Final = {
    "class_half": HALVES,
    "text_half": HALVES,
    "label_half": HALVES,
    "labels": (*POOLS, *OWN),
    "order": ("shuffled", "grouped", "alternating"),
    "label_pieces": ("refuse", "first"),
}
_AT_LEAST: Final = {"classes": 2, "queries": 1, "size": 1, "seed": 0, "max_words": 0}


@dataclass(frozen=True)
class PromptDistribution:
    """A distribution of prompts: the same specification and seed give the same prompts on any machine.

    A context draws its classes, their labels, the demonstrations and their order; `queries` prompts share it
    and differ in their query. Context c depends on the seed and on c alone, so a larger `size` extends a
    smaller one. A context never repeats a text.

    Parameters
    ----------
    task
        "words" (bundled word concepts); the name of a StaICC set (agnews, sst2, sst5, trec, mr, subj,
        emotion, financial, hate, hate18); a path to a .jsonl, .csv or .parquet file; or
        hf:NAME-OR-FOLDER[:SPLIT].
    classes
        Classes in each context.
    class_pool
        Classes to draw from; () for all.
    class_half
        "a" and "b" are disjoint halves of the task's classes, whatever the seed.
    text_half
        "a" and "b" are disjoint halves of each class's texts, whatever the seed.
    shots
        Demonstrations of each class: one number for all classes (0 for prompts without demonstrations); one number
        for each, given to the context's classes at random; or a mixture of such lists, of which each context draws
        one. Lists of a mixture may be shorter than `classes`: such a context has fewer classes. A list is not all 0.
    labels
        The pool that labels are drawn from ("words", "letters", "names", "nonsense"), "own" for the classes'
        own names, "swapped" for these names with no class keeping its own, "flipped" for own names in half of the
        contexts (by chance) and swapped ones in the others.
    label_half
        "a" and "b" are disjoint halves of the pool.
    order
        Demonstrations "shuffled", "grouped" by class, or "alternating" between the classes.
    template
        Holds `{text}` and `{label}`; "" for the task's own.
    queries
        Prompts that share one context.
    size
        Number of contexts; there are size * queries prompts.
    seed
        Any non-negative integer.
    label_pieces
        "refuse" labels of several tokens, or take their "first".
    max_words
        Texts are cut to this many words; 0 for never.
    text_column, label_column
        Columns of a file or data set.
    data_split
        Split of a data set where the task names none; "" for "train".

    Raises
    ------
    PromptError
        When a field is out of range, saying what was expected.
    """

    task: str = "words"
    classes: int = 2
    class_pool: tuple[str, ...] = ()
    class_half: Half = "all"
    text_half: Half = "all"
    shots: Shots = 4
    labels: Literal["words", "letters", "names", "nonsense", "own", "swapped", "flipped"] = "words"
    label_half: Half = "all"
    order: Literal["shuffled", "grouped", "alternating"] = "shuffled"
    template: str = ""
    queries: int = 4
    size: int = 64
    seed: int = 0
    label_pieces: Literal["refuse", "first"] = "refuse"
    max_words: int = 0
    text_column: str = "text"
    label_column: str = "label"
    data_split: str = ""

    def __post_init__(self) -> None:
        for name in ("task", "template", "text_column", "label_column", "data_split"):
            check(isinstance(getattr(self, name), str), name, "a text", getattr(self, name))
        for name, least in _AT_LEAST.items():
            value = getattr(self, name)
            check(is_int(value) and value >= least, name, f"a whole number, at least {least}", value)
        for name, choices in _CHOICES.items():
            value = getattr(self, name)
            check(isinstance(value, str) and value in choices, name, f"one of {', '.join(choices)}", value)
        pool = self.class_pool
        named = isinstance(pool, Sequence) and not isinstance(pool, str) and all(isinstance(n, str) for n in pool)
        check(named, "class_pool", "a list of class names", pool)
        check(len(set(pool)) == len(pool), "class_pool", "a list of different class names", pool)
        object.__setattr__(self, "class_pool", tuple(pool))
        object.__setattr__(self, "shots", frozen_shots(self.shots, self.classes))
        if self.labels in OWN and self.label_half != "all":
            raise PromptError(
                f"{option('label_half')} is for label pools; with labels={self.labels!r} leave it at 'all'"
            )
        if self.labels in POOLS and len(label_pool(self.labels, self.label_half)) < self.classes:
            raise PromptError(
                f"{self.classes} classes need {self.classes} labels, and the pool {self.labels!r} "
                f"(half {self.label_half!r}) has {len(label_pool(self.labels, self.label_half))}"
            )
        if self.template:
            parse_template(self.template)
        check_task(self.task)

    def count_lists(self) -> tuple[tuple[int, ...], ...]:
        """The lists of counts per class that a context draws from, each equally likely."""
        shots = self.shots
        if isinstance(shots, int):
            return ((shots,) * self.classes,)
        if shots and isinstance(shots[0], tuple):
            return shots
        return (cast(tuple[int, ...], shots),)

    def load(self) -> Task:
        """Load the task with this distribution's classes, halves and cut texts.

        Raises
        ------
        PromptError
            When the task has too few classes, or a class too few texts.
        """
        task = load_task(self)
        names = self._class_names(task)
        texts, left_out = self._texts(task, names)
        need = max(map(max, self.count_lists())) + self.queries
        for name, members in texts.items():
            if len(members) < need:
                raise PromptError(
                    f"the class {name!r} has {counted(len(members), 'different text')}{left_out} and a context may "
                    f"need {need} (demonstrations and {counted(self.queries, 'query', 'queries')}); ask for fewer "
                    f"shots or queries, or leave the class out with {option('class_pool')}"
                )
        return dataclasses.replace(task, texts=texts)

    def prompts(self) -> list[Prompt]:
        """Draw the prompts, ordered by context.

        Returns
        -------
        list of Prompt
            size * queries prompts.

        Raises
        ------
        PromptError
            When the task cannot be loaded, or holds too little for the specification.
        """
        task = self.load()
        template = self.template or task.default_template
        return [prompt for context in range(self.size) for prompt in draw_context(self, context, task, template)]

    def to_dict(self) -> dict[str, Any]:
        """The specification as plain data."""
        return dataclasses.asdict(self)

    def to_json(self) -> str:
        """The specification as JSON."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False)

    @classmethod
    def from_dict(cls, fields: object) -> "PromptDistribution":
        """Rebuild a specification from plain data; fields that are left out keep their defaults.

        Raises
        ------
        PromptError
            When a field is unknown or out of range.
        """
        if not isinstance(fields, dict):
            raise PromptError(f"a prompt distribution is a JSON object, got {type(fields).__name__}")
        known = [field.name for field in dataclasses.fields(cls)]
        unknown = [str(name) for name in fields if name not in known]
        if unknown:
            raise PromptError(f"unknown fields {', '.join(unknown)}; a prompt distribution knows {', '.join(known)}")
        return cls(**fields)

    @classmethod
    def from_json(cls, text: str) -> "PromptDistribution":
        """Rebuild a specification from JSON.

        Raises
        ------
        PromptError
            When the text is not JSON, or a field is unknown or out of range.
        """
        try:
            fields = json.loads(text)
        except json.JSONDecodeError as error:
            raise PromptError(
                f"the prompt distribution is not valid JSON: {error.msg} at line {error.lineno}, column {error.colno}"
            ) from error
        return cls.from_dict(fields)

    def digest(self) -> str:
        """SHA-256 of the specification and of the task's texts, as 64 hexadecimal digits.

        A file counts by its name and content, not by its folder.
        """
        task = load_task(self)
        fields = self.to_dict() | {"task": task.name, "content": task.digest}
        canonical = json.dumps(fields, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()

    def summary(self) -> str:
        """One screen of text: what the prompts are made of."""
        lists, queries = self.count_lists(), counted(self.queries, "query", "queries")
        shots = str(self.shots) if isinstance(self.shots, int) else " or ".join("-".join(map(str, c)) for c in lists)
        halves = [
            f"{what} half {which}"
            for what, which in (
                ("class", self.class_half),
                ("text", self.text_half),
                ("label", self.label_half),
            )
            if which != "all"
        ]
        lines = [
            f"task        {self.task}" + (f" (classes {', '.join(self.class_pool)})" if self.class_pool else ""),
            f"prompts     {counted(self.size, 'context')} x {queries}, seed {self.seed}",
            f"classes     {self.classes} in each context",
            f"shots       {shots} for each class, {self.order}",
            f"labels      {self.labels}" + (", first piece where they split" if self.label_pieces == "first" else ""),
            f"template    {self.template!r}" if self.template else "template    the task's own",
        ]
        if halves:
            lines.append(f"halves      {', '.join(halves)}")
        if self.max_words:
            lines.append(f"texts       cut to {counted(self.max_words, 'word')}")
        return "\n".join(lines)

    def _class_names(self, task: Task) -> tuple[str, ...]:
        left_out = task.left_out()
        if len(task.class_names) < 2:
            has = f"only one class ({task.class_names[0]})" if task.class_names else "no class"
            raise PromptError(f"the task {task.name!r} has {has}{left_out}; at least two are needed")
        unknown = [name for name in self.class_pool if name not in task.class_names]
        if unknown:
            raise PromptError(
                f"the task {task.name!r} has no class {', '.join(map(repr, unknown))}; "
                f"it has {_listed(task.class_names)}{left_out if set(unknown) & set(task.emptied) else ''}"
            )
        names = half(task.class_names, self.class_half)
        if self.class_pool:
            names = tuple(name for name in names if name in self.class_pool)
        if len(names) < self.classes:
            raise PromptError(
                f"{self.classes} classes were asked for, and the task {task.name!r} offers {len(names)} "
                f"({_listed(names)}){left_out if task.emptied else ''}; ask for fewer, or widen {option('class_pool')} "
                f"or {option('class_half')}"
            )
        return names

    def _texts(self, task: Task, names: tuple[str, ...]) -> tuple[dict[str, tuple[str, ...]], str]:
        """Texts of these classes, and a word on those that are left out."""
        texts = {name: _text_half(task.texts[name], self.text_half) for name in names}
        if not self.max_words:
            return texts, task.left_out()
        pairs = [
            (" ".join(text.split(" ")[: self.max_words]), name) for name, members in texts.items() for text in members
        ]
        # cutting can make texts equal, within a class or between two
        cut = build_task(task.name, pairs, names, task.default_template)
        left_out = cut.left_out().replace(" occur", f" cut to {option('max_words')} occur", 1)
        return dict.fromkeys(names, ()) | cut.texts, left_out or task.left_out()


def _text_half(texts: tuple[str, ...], which: str) -> tuple[str, ...]:
    if which == "all":
        return texts
    # halves follow the texts' hashes, so that a file sorted by anything still gives two halves alike
    members = set(half(sorted(texts, key=lambda text: hashlib.sha256(text.encode()).digest()), which))
    return tuple(text for text in texts if text in members)


def _listed(names: Sequence[str], most: int = 20) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
