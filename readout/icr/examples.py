"""Examples of a data set: prompts with their answers, split once and for all into training, development and test."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from readout.errors import PromptError
from readout.icr.datasets import DataSet, Fields, data_set
from readout.prompts.staicc import read_set
from readout.prompts.synthetic import SyntheticTask
from readout.statistics import generator

SPLIT_SEED = 20260
"""The split of a set that has none of its own never changes with a run's seed."""
TEST_POOL, DEVELOPMENT_POOL = 0.35, 0.15


@dataclass(frozen=True)
class Example:
    """A query of a data set.

    Attributes
    ----------
    dataset : str
        Its data set.
    text : str
        The bare input, which an encoder reads.
    prompt : str
        What the model reads, up to the answer.
    options : tuple of str
        The answers.
    answer : int
        The right one.
    """

    dataset: str
    text: str
    prompt: str
    options: tuple[str, ...]
    answer: int


@dataclass(frozen=True)
class Split:
    """Three disjoint lists of examples, each in a random order that is always the same."""

    train: tuple[Example, ...]
    development: tuple[Example, ...]
    test: tuple[Example, ...]


def load_split(name: str, folder: str | Path | None = None, source: str = "auto", max_words: int = 0) -> Split:
    """Load and split a data set.

    Parameters
    ----------
    name : str
        A key of `readout.icr.datasets.DATA_SETS`.
    folder : path, optional
        Where ``NAME`` is a folder that `datasets.load_from_disk` or `datasets.load_dataset` reads, with the columns of
        the hub's set.
    source : str
        "staicc", "hub", "folder", or "auto": the folder where it holds the set, then StaICC, then the hub.
    max_words : int
        Cut texts of single-text sets to this many words, 0 for never.

    Raises
    ------
    PromptError
        If there is no such set, or it cannot be read from there.
    """
    return _load_split(name, None if folder is None else str(folder), source, max_words)


@lru_cache(maxsize=32)
def _load_split(name: str, folder: str | None, source: str, max_words: int) -> Split:
    known = data_set(name)
    if source not in ("auto", "staicc", "hub", "folder"):
        raise PromptError(f"source {source!r}: expected auto, staicc, hub or folder")
    local = folder is not None and (Path(folder) / name).is_dir()
    if source == "folder" and not local:
        raise PromptError(f"no folder {name} in {folder or 'the folder given'}: save the data set there")
    if name.startswith("synthetic"):
        return _divide(_examples(known, _synthetic_rows(known), max_words))
    if source == "staicc" and not known.staicc:
        raise PromptError(f"{name} does not come with StaICC: use the hub or a local folder")
    if local and source in ("auto", "folder"):
        train, test = _hub_rows(known, str(Path(str(folder)) / name))
    elif known.staicc and source in ("auto", "staicc"):
        return _divide(_examples(known, _staicc_rows(known), max_words))
    else:
        train, test = _hub_rows(known, None)
    learn, held = (_examples(known, rows, max_words) for rows in (train, test))
    n_development = round(len(learn) * DEVELOPMENT_POOL)
    learn, held = _shuffled(learn), _shuffled(held)
    return Split(tuple(learn[n_development:]), tuple(learn[:n_development]), tuple(held))


def _divide(examples: list[Example]) -> Split:
    mixed = _shuffled(examples)
    test = round(len(mixed) * TEST_POOL)
    development = test + round(len(mixed) * DEVELOPMENT_POOL)
    return Split(tuple(mixed[development:]), tuple(mixed[test:development]), tuple(mixed[:test]))


def _shuffled(examples: list[Example]) -> list[Example]:
    return [examples[i] for i in generator(SPLIT_SEED).permutation(len(examples))]


def _examples(known: DataSet, rows: Sequence[Fields], max_words: int) -> list[Example]:
    """Rows as examples, in their order; a text that is there twice is kept once."""
    found: dict[str, Example] = {}
    for row in rows:
        values, text = dict(row.values), " ".join(row.text.split())
        if "text" in values:
            text = " ".join(text.split()[:max_words] if max_words else text.split())
            values["text"] = text
        options = known.options[: row.n_options] if row.n_options else known.options
        if not text or not 0 <= row.answer < len(options):
            continue
        prompt = known.template.format(**values)
        found.setdefault(prompt, Example(known.name, text, prompt, options, row.answer))
    if not found:
        raise PromptError(f"{known.name}: no row has a text and a known answer")
    return list(found.values())


def _staicc_rows(known: DataSet) -> list[Fields]:
    name, *classes = known.staicc
    return [Fields({"text": text}, text, classes.index(one)) for text, one in read_set(name) if one in classes]


def _synthetic_rows(known: DataSet) -> list[Fields]:
    number, size = int(known.name.removeprefix("synthetic")), len(known.options)
    texts = list(SyntheticTask().texts().items())[number * size : (number + 1) * size]
    return [Fields({"text": one}, one, answer) for answer, (_, own) in enumerate(texts) for one in own]


def _hub_rows(known: DataSet, place: str | None) -> tuple[list[Fields], list[Fields]]:
    if known.hub is None:
        raise PromptError(f"{known.name} comes with StaICC only: pip install --no-deps StaICC==0.1.1")
    try:
        import datasets
    except ImportError as error:
        raise PromptError(f"{known.name} needs the datasets package; pip install datasets") from error
    hub = known.hub
    try:
        loaded: Any
        if place is None:
            loaded = datasets.load_dataset(hub.path, hub.config)
        elif (Path(place) / "dataset_dict.json").is_file():
            loaded = datasets.load_from_disk(place)
        else:
            loaded = datasets.load_dataset(place)
    except Exception as error:  # the hub, the network and the file readers raise many kinds
        told = " ".join(str(error).split())[:200]
        raise PromptError(
            f"{known.name} cannot be loaded from {place or hub.path} ({told}): give a folder with --data"
        ) from error
    missing = [split for split in (hub.train, hub.test) if split not in loaded]
    if missing:
        raise PromptError(f"{known.name}: expected the splits {hub.train} and {hub.test}, found {', '.join(loaded)}")
    try:
        train, test = ([hub.read(row) for row in loaded[split]] for split in (hub.train, hub.test))
    except KeyError as error:
        raise PromptError(f"{known.name}: a row has no column {error}; expected those of {hub.path}") from error
    return train, test


def without_overlap(examples: Sequence[Example], used: Sequence[Example]) -> list[Example]:
    """Examples that share no text with those in use: neither equal nor one inside the other (three words or more).

    MR, SST-5 and SST-2 are made of the same Rotten Tomatoes sentences, and SST-2 of their phrases.
    """
    known = [_words(one.text) for one in used]
    exact = set(known)
    phrases = [one for one in known if one.count(" ") >= 2]

    def overlaps(own: str) -> bool:
        padded = f" {own} "
        inside = own.count(" ") >= 2
        return own in exact or any(f" {one} " in padded or (inside and padded in f" {one} ") for one in phrases)

    return [one for one in examples if not overlaps(_words(one.text))]


def _words(text: str) -> str:
    return " ".join(re.findall(r"[a-z0-9]+", text.lower()))


def balanced(examples: Sequence[Example], each: int, seed: int) -> list[Example]:
    """``each`` examples of every answer, in a random order.

    Raises
    ------
    PromptError
        If an answer has fewer.
    """
    draw = generator(seed)
    mixed = [examples[i] for i in draw.permutation(len(examples))]
    chosen: list[Example] = []
    for answer in sorted({one.answer for one in mixed}):
        own = [one for one in mixed if one.answer == answer][:each]
        if len(own) < each:
            raise PromptError(f"{mixed[0].dataset}: answer {answer} has {len(own)} examples, {each} were asked for")
        chosen += own
    return [chosen[i] for i in draw.permutation(len(chosen))]


def sample(examples: Sequence[Example], size: int, least: int, seed: int) -> list[Example]:
    """Random examples, with at least so many of each answer that there is (TREC has an answer in 60 queries).

    Parameters
    ----------
    examples : sequence of Example
    size : int
        How many.
    least : int
        Of each answer; those that are missing take the place of the last of the commonest answer.
    seed : int
        Seed of the draw.

    Raises
    ------
    PromptError
        If there are fewer of an answer, or not room for all.
    """
    mixed = [examples[i] for i in generator(seed).permutation(len(examples))]
    chosen, rest = mixed[:size], mixed[size:]
    answers = sorted({one.answer for one in mixed})
    if least * len(answers) > size:
        raise PromptError(
            f"{mixed[0].dataset}: {size} training queries cannot hold {least} of each of {len(answers)} answers; "
            f"ask for {least * len(answers)} or more"
        )
    for answer in answers:
        while sum(one.answer == answer for one in chosen) < least:
            found = next((one for one in rest if one.answer == answer), None)
            if found is None:
                raise PromptError(f"{mixed[0].dataset}: fewer than {least} examples have the answer {answer}")
            counts = [sum(one.answer == other for one in chosen) for other in answers]
            commonest = answers[counts.index(max(counts))]
            place = max(i for i, one in enumerate(chosen) if one.answer == commonest)
            chosen[place] = found
            rest.remove(found)
    return chosen


def few_shot(demonstrations: Sequence[Example]) -> str:
    """Demonstrations as a text that a query's prompt can follow: each on its own, a line break after it."""
    return "".join(f"{one.prompt} {one.options[one.answer]}\n" for one in demonstrations)


def digest(examples: Sequence[Example]) -> str:
    """Short digest of examples, for provenance."""
    return hashlib.sha256(json.dumps([asdict(one) for one in examples]).encode()).hexdigest()[:16]
