"""The data sets of in-context routing, by name: template, answers, group, and where the rows come from.

Templates and answers are the paper's (icr.md, section 3), with TREC's answers in lower case so that each is one token
of SmolLM2's tokenizer. The far sets beside the paper's come with StaICC and have templates of the same form.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from readout.errors import PromptError

IN_DOMAIN, NEAR, FAR = "in-domain", "near", "far"
LETTERS: Final = "ABCDEFGH"
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Fields:
    """What of a row fills the template, what of it an encoder reads, and which answer is right."""

    values: Mapping[str, str]
    text: str
    answer: int
    n_options: int = 0
    """Number of answers of this row, where it is not the data set's."""


@dataclass(frozen=True)
class Hub:
    """A data set on the hub: its id and configuration, its splits, and how a row is read."""

    path: str
    config: str | None
    train: str
    test: str
    read: Callable[[Row], Fields]


@dataclass(frozen=True)
class DataSet:
    """A data set of the study.

    Attributes
    ----------
    name : str
        Its short name.
    template : str
        The prompt without its answer, which follows after a space.
    options : tuple of str
        The answers.
    group : str
        "in-domain", "near" or "far".
    hub : Hub or None
        Where it is on the hub.
    staicc : tuple of str
        Its short name in the StaICC package, then StaICC's class names in the order of ``options``; or ().
    """

    name: str
    template: str
    options: tuple[str, ...]
    group: str
    hub: Hub | None = None
    staicc: tuple[str, ...] = ()


def _text(column: str, label: str, shift: int = 0) -> Callable[[Row], Fields]:
    def read(row: Row) -> Fields:
        return Fields({"text": str(row[column])}, str(row[column]), int(row[label]) - shift)

    return read


def _csqa(row: Row) -> Fields:
    shown = dict(zip(row["choices"]["label"], row["choices"]["text"], strict=True))
    return Fields({"question": row["question"], **shown}, row["question"], LETTERS.index(row["answerKey"]))


def _piqa(row: Row) -> Fields:
    return Fields({"goal": row["goal"], "A": row["sol1"], "B": row["sol2"]}, row["goal"], int(row["label"]))


def _mrpc(row: Row) -> Fields:
    pair = f"Sentence 1: {row['sentence1']}\nSentence 2: {row['sentence2']}"
    # the set's label 1 is "equivalent", which is answer A
    return Fields({"pair": pair}, pair.replace("\n", " "), 1 - int(row["label"]))


def _cb(row: Row) -> Fields:
    pair = f"Premise: {row['premise']}\nHypothesis: {row['hypothesis']}"
    return Fields({"pair": pair}, pair.replace("\n", " "), int(row["label"]))


def _creak(row: Row) -> Fields:
    return Fields({"claim": row["sentence"]}, row["sentence"], 0 if str(row["label"]).lower() in ("true", "1") else 1)


def _copa(row: Row) -> Fields:
    asked = "What was the cause of this?" if row["question"] == "cause" else "What happened as a result?"
    context = f"{row['premise']} {asked}"
    return Fields({"context": context, "A": row["choice1"], "B": row["choice2"]}, context, int(row["label"]))


def _ai2scie(row: Row) -> Fields:
    texts, marks = list(row["choices"]["text"]), list(row["choices"]["label"])
    letters = LETTERS[: len(texts)]
    shown = "\n".join(f"{letter}. {text}" for letter, text in zip(letters, texts, strict=True))
    values = {"question": row["question"], "choices": shown, "letters": "/".join(letters)}
    return Fields(values, row["question"], marks.index(row["answerKey"]), len(texts))


_REVIEW = "Review: {text}\nSentiment:"
_PAPER = (
    DataSet("agnews", "News: {text}\nType:", ("World", "Sports", "Business", "Technology"), IN_DOMAIN,
            Hub("fancyzhx/ag_news", None, "train", "test", _text("text", "label")),
            ("agnews", "world", "sports", "business", "science")),
    DataSet("sst2", _REVIEW, ("negative", "positive"), IN_DOMAIN,
            Hub("nyu-mll/glue", "sst2", "train", "validation", _text("sentence", "label")),
            ("sst2", "negative", "positive")),
    DataSet("trec", "Question: {text}\nAnswer Type:",
            ("abbreviation", "entity", "description", "person", "location", "number"), IN_DOMAIN,
            Hub("CogComp/trec", None, "train", "test", _text("text", "coarse_label")),
            ("trec", "abbreviation", "entity", "description", "person", "location", "number")),
    DataSet("csqa", "Question: {question}\nA. {A}\nB. {B}\nC. {C}\nD. {D}\nE. {E}\nAnswer (A/B/C/D/E):",
            tuple("ABCDE"), IN_DOMAIN, Hub("tau/commonsense_qa", None, "train", "validation", _csqa)),
    DataSet("piqa", "Goal: {goal}\nA. {A}\nB. {B}\nAnswer (A/B):", ("A", "B"), IN_DOMAIN,
            Hub("ybisk/piqa", None, "train", "validation", _piqa)),
    DataSet("sst5", "Sentence: {text}\nSentiment:", ("terrible", "negative", "neutral", "positive", "great"), NEAR,
            Hub("SetFit/sst5", None, "train", "test", _text("text", "label")),
            ("sst5", "poor", "bad", "neutral", "good", "great")),
    DataSet("mr", _REVIEW, ("negative", "positive"), NEAR,
            Hub("cornell-movie-review-data/rotten_tomatoes", None, "train", "test", _text("text", "label")),
            ("mr", "negative", "positive")),
    DataSet("mrpc", "{pair}\nA. Paraphrase\nB. Not paraphrase\nAnswer (A/B):", ("A", "B"), NEAR,
            Hub("nyu-mll/glue", "mrpc", "train", "test", _mrpc)),
    DataSet("cb", "{pair}\nA. Entailment\nB. Contradiction\nC. Neutral\nAnswer (A/B/C):", ("A", "B", "C"), FAR,
            Hub("aps/super_glue", "cb", "train", "validation", _cb)),
    DataSet("copa", "{context}\nA. {A}\nB. {B}\nAnswer (A/B):", ("A", "B"), FAR,
            Hub("aps/super_glue", "copa", "train", "validation", _copa)),
    DataSet("creak", "Claim: {claim}\nLabel (yes/no):", ("yes", "no"), FAR,
            Hub("amydeng2000/CREAK", None, "train", "validation", _creak)),
    DataSet("ai2scie", "Question: {question}\n{choices}\nAnswer ({letters}):", tuple(LETTERS), FAR,
            Hub("allenai/ai2_arc", "ARC-Easy", "train", "test", _ai2scie)),
)  # fmt: skip
_OFFLINE = (
    DataSet("subj", "Review: {text}\nType:", ("objective", "subjective"), FAR,
            staicc=("subj", "objective", "subjective")),
    DataSet("emotion", "Tweet: {text}\nEmotion:", ("anger", "joy", "optimism", "sadness"), FAR,
            staicc=("emotion", "anger", "joy", "optimism", "sadness")),
    DataSet("financial", "Sentence: {text}\nSentiment:", ("negative", "neutral", "positive"), FAR,
            staicc=("financial", "negative", "neutral", "positive")),
    DataSet("hate", "Tweet: {text}\nLabel:", ("normal", "hate"), FAR, staicc=("hate", "normal", "hate")),
)  # fmt: skip
# Domains of the built-in model's pseudo-words: three classes each, with label words that only training can tell.
# The near one shares its label words with synthetic0 and has other classes.
_SYNTHETIC_LABELS = (
    ("book", "road", "star"), ("price", "event", "code"), ("wave", "debt", "poem"), ("book", "road", "star"),
    ("letter", "scene", "key"), ("voice", "page", "myth"),
)  # fmt: skip
_SYNTHETIC_GROUPS = (IN_DOMAIN, IN_DOMAIN, IN_DOMAIN, NEAR, FAR, FAR)
_SYNTHETIC = tuple(
    DataSet(f"synthetic{number}", "{text} ->", labels, group)
    for number, (labels, group) in enumerate(zip(_SYNTHETIC_LABELS, _SYNTHETIC_GROUPS, strict=True))
)

DATA_SETS: Final[dict[str, DataSet]] = {one.name: one for one in (*_PAPER, *_OFFLINE, *_SYNTHETIC)}
PAPER_TWELVE: Final = tuple(one.name for one in _PAPER)
"""The paper's twelve, in its tables' order."""


def data_set(name: str) -> DataSet:
    """A data set by its short name.

    Raises
    ------
    PromptError
        Naming the known ones.
    """
    if name not in DATA_SETS:
        raise PromptError(f"no data set {name!r}; known are {', '.join(DATA_SETS)}")
    return DATA_SETS[name]
