"""Tasks: classes and their texts, by name or from a file."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Final

from readout.errors import PromptError
from readout.prompts import files, staicc
from readout.prompts.synthetic import SyntheticTask

if TYPE_CHECKING:
    from readout.prompts.distribution import PromptDistribution

WORD_TEMPLATE: Final = "{text}: {label}\n"
SENTENCE_TEMPLATE: Final = "{text} -> {label}\n"


@dataclass(frozen=True)
class Task:
    """Classes and the texts of each.

    Whitespace in texts and class names is normalised: runs of spaces, tabs and line breaks become one space.
    A text that occurs twice in a class is kept once; a text that occurs in two classes is left out, since its
    class is not known.

    Parameters
    ----------
    name
        The task's name; for a file, the file's name without its folder.
    texts
        From each class's name to its texts, in a fixed order.
    default_template
        The template for prompts that name none.
    repeated, ambiguous
        Number of texts left out because they repeat, and because they occur in two classes.
    emptied
        Classes that are left out because all of their texts occur in another class too.
    """

    name: str
    texts: dict[str, tuple[str, ...]]
    default_template: str
    repeated: int = 0
    ambiguous: int = 0
    digest: str = field(default="", compare=False)
    emptied: tuple[str, ...] = ()

    def left_out(self) -> str:
        """The texts that are left out because they occur in two classes, and the classes that this empties; or ""."""
        if not self.ambiguous:
            return ""
        texts = "1 text occurs" if self.ambiguous == 1 else f"{self.ambiguous} texts occur"
        empty = f", which leaves no text of {', '.join(map(repr, self.emptied[:10]))}" if self.emptied else ""
        return f" ({texts} under two labels and cannot be used{empty})"

    @property
    def class_names(self) -> tuple[str, ...]:
        """The classes, in a fixed order."""
        return tuple(self.texts)


def known_tasks() -> tuple[str, ...]:
    """Names of the tasks that need no file."""
    return ("words", *staicc.SETS, "synthetic")


def check_task(task: str) -> None:
    """Refuse a task that is neither known nor a file of a known kind.

    Raises
    ------
    PromptError
        Naming the known tasks.
    """
    if task in known_tasks() or _is_synthetic(task) or files.is_hub(task):
        return
    if Path(task).suffix.lower() in files.SUFFIXES:
        return
    raise PromptError(
        f"unknown task {task!r}; known are {', '.join(known_tasks())}, a file that ends in "
        f"{', '.join(files.SUFFIXES)}, and hf:NAME-OR-FOLDER[:SPLIT]"
    )


def build_task(name: str, pairs: Iterable[tuple[str, str]], classes: Iterable[str], template: str) -> Task:
    """Build a task from pairs of text and class.

    Parameters
    ----------
    name
        The task's name.
    pairs
        Text and class name of each example.
    classes
        The classes, in the order to keep.
    template
        The default template.

    Returns
    -------
    Task
        With its texts normalised and without repeated or ambiguous texts.
    """
    owner: dict[str, str] = {}
    seen: set[str] = set()
    ambiguous: set[str] = set()
    repeated = 0
    for raw, class_name in pairs:
        text = " ".join(raw.split())
        if not text:
            continue
        seen.add(class_name)
        if text not in owner:
            owner[text] = class_name
        elif owner[text] == class_name:
            repeated += 1
        else:
            ambiguous.add(text)
    texts: dict[str, list[str]] = {class_name: [] for class_name in classes}
    for text, class_name in owner.items():
        if text not in ambiguous:
            texts[class_name].append(text)
    kept = {class_name: tuple(members) for class_name, members in texts.items() if members}
    emptied = tuple(class_name for class_name, members in texts.items() if class_name in seen and not members)
    return Task(name, kept, template, repeated, len(ambiguous), _content_digest(kept), emptied)


def _content_digest(texts: dict[str, tuple[str, ...]]) -> str:
    content = json.dumps(texts, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(content.encode()).hexdigest()


def load_task(distribution: "PromptDistribution") -> Task:
    """Load the task that a distribution names.

    Parameters
    ----------
    distribution
        Its `task`, `text_column`, `label_column` and `data_split` are used.

    Returns
    -------
    Task
        All classes and texts, before the distribution's pools and halves.

    Raises
    ------
    PromptError
        When the task is unknown or its file cannot be read.
    """
    task = distribution.task
    check_task(task)
    if task == "words":
        return _words()
    if _is_synthetic(task):
        return _synthetic(task)
    if task in staicc.SETS:
        return _staicc(task)
    if files.is_hub(task):
        return _hub(task, distribution.text_column, distribution.label_column, distribution.data_split)
    path = Path(task)
    stamp = files.stamp(path)
    return _file(path, distribution.text_column, distribution.label_column, stamp)


@lru_cache(maxsize=1)
def _words() -> Task:
    text = resources.files("readout.prompts").joinpath("data", "concepts.json").read_text(encoding="utf-8")
    concepts: dict[str, list[str]] = json.loads(text)
    pairs = ((word, concept) for concept, words in concepts.items() for word in words)
    return build_task("words", pairs, concepts, WORD_TEMPLATE)


def _is_synthetic(task: str) -> bool:
    return task.partition(":")[0] == "synthetic"


@lru_cache(maxsize=4)
def _synthetic(task: str) -> Task:
    # not through build_task: a text that belongs to two classes is what an ambiguous synthetic task is about
    texts = SyntheticTask.parse(task).texts()
    return Task(task, texts, SENTENCE_TEMPLATE, digest=_content_digest(texts))


@lru_cache(maxsize=4)
def _staicc(task: str) -> Task:
    return build_task(task, staicc.read_set(task), staicc.SETS[task].class_names, SENTENCE_TEMPLATE)


@lru_cache(maxsize=4)
def _file(path: Path, text_column: str, label_column: str, stamp: tuple[int, int]) -> Task:
    # the stamp (time and size) is part of the key so that a file that changed is read again
    pairs = files.read_file(path, text_column, label_column)
    return _from_rows(path.name, pairs)


@lru_cache(maxsize=4)
def _hub(task: str, text_column: str, label_column: str, split: str) -> Task:
    return _from_rows(task, files.read_hub(task, text_column, label_column, split))


def _from_rows(name: str, rows: list[tuple[str, str]]) -> Task:
    pairs = [(text, " ".join(label.split())) for text, label in rows]
    # sorted, so that the order of the rows does not decide which class is in which half
    return build_task(name, pairs, sorted({label for _, label in pairs}), SENTENCE_TEMPLATE)
