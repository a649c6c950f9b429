"""The synthetic word task: pseudo-words whose first syllable names their class, so that a reader sees the truth.

A class is a syllable ("ka") and its words are that syllable with a second one ("kali", "kamu"). A text is one or two
words of its class. With *noise* each word is replaced, with a stated probability, by a word of another class; with
*ambiguity* a share of every class's words also belongs to its neighbour's.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from readout.errors import PromptError
from readout.prompts.draws import Draws

FIRST_SYLLABLES = tuple(consonant + vowel for vowel in "ao" for consonant in "bdfghjklmnprstvz")
SECOND_SYLLABLES = ("li", "mu", "ni", "ra", "su", "vi", "zu", "ko")
CUE = "->"
TEMPLATE = "{text} -> {label}\n"


@dataclass(frozen=True)
class SyntheticTask:
    """Class structure of the synthetic words and how texts are drawn from it.

    Parameters
    ----------
    noise : float
        Probability, per word, that it is a word of another class.
    ambiguity : float
        Share of a class's words that belong to its neighbouring class as well (neighbours: 0-1, 2-3, ...).
    words_per_text : int
        1 or 2; the words of a text differ.
    texts_per_class : int
        Distinct texts of each class; 0 takes every text there is (only without noise).
    seed : int
        Seed of the noise.
    """

    noise: float = 0.0
    ambiguity: float = 0.0
    words_per_text: int = 2
    texts_per_class: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("noise", "ambiguity"):
            if not 0 <= getattr(self, name) < 1:
                raise PromptError(
                    f"{name} must be a probability below 1, came {getattr(self, name)}: choose it in [0, 1)"
                )
        if self.words_per_text not in (1, 2):
            raise PromptError(f"words_per_text must be 1 or 2, came {self.words_per_text}: choose one of them")
        if self.texts_per_class < 0:
            raise PromptError(f"texts_per_class must be at least 0, came {self.texts_per_class}: 0 takes all")

    @classmethod
    def parse(cls, name: str) -> "SyntheticTask":
        """Read a task name such as ``synthetic`` or ``synthetic:noise=0.15,ambiguity=0.1``.

        Raises
        ------
        PromptError
            For an option that does not exist or a value that is no number; the message lists the options.
        """
        _, _, tail = name.partition(":")
        options: dict[str, float | int] = {}
        for part in filter(None, tail.split(",")):
            key, _, value = part.partition("=")
            kind = {"noise": float, "ambiguity": float, "words": int, "texts": int, "seed": int}.get(key.strip())
            try:
                if kind is None:
                    raise ValueError
                options[_FIELDS.get(key.strip(), key.strip())] = kind(value)
            except ValueError:
                raise PromptError(
                    f"the synthetic task takes noise=, ambiguity=, words=, texts= and seed= with numbers, came "
                    f"{part!r}: write for example synthetic:noise=0.15,ambiguity=0.25"
                ) from None
        return cls(**options)  # type: ignore[arg-type]

    @property
    def class_names(self) -> tuple[str, ...]:
        """The classes: the 32 first syllables."""
        return FIRST_SYLLABLES

    @cached_property
    def word_table(self) -> np.ndarray:
        """Vocabulary numbers of each class's words, int64[classes, words], shared words counted in both classes."""
        n_classes, n_words = len(FIRST_SYLLABLES), len(SECOND_SYLLABLES)
        table = np.arange(n_classes * n_words).reshape(n_classes, n_words)
        shared = round(self.ambiguity * n_words)
        # Shared places alternate between the two neighbours, so that neither class loses all its own words first.
        for place in range(shared):
            owner = place % 2
            table[1 - owner :: 2, -1 - place] = table[owner::2, -1 - place]
        return table

    def texts(self) -> dict[str, tuple[str, ...]]:
        """All texts, by class.

        Returns
        -------
        dict of str to tuple of str
            Texts of each class, distinct within the class, in an order that depends on the seed only.

        Raises
        ------
        PromptError
            If a class has fewer distinct texts than asked for.
        """
        return {name: self._texts_of(number) for number, name in enumerate(FIRST_SYLLABLES)}

    def _texts_of(self, number: int) -> tuple[str, ...]:
        draws = Draws(self.seed, number)
        own = [int(word) for word in self.word_table[number]]
        clean = draws.shuffled(
            [(word,) for word in own]
            if self.words_per_text == 1
            else [(first, second) for first in own for second in own if first != second]
        )
        wanted = self.texts_per_class or len(clean)
        if wanted > len(clean):
            raise PromptError(
                f"class {FIRST_SYLLABLES[number]!r} has {len(clean)} texts, {wanted} were asked for: lower texts="
            )
        others = [word for word in range(self.word_table.size) if word not in own]
        texts: dict[str, None] = {}
        for words in clean[:wanted]:
            # Two noisy texts may come out alike: draw such a one again, from the same clean words.
            while (text := " ".join(WORDS[self._noisy(word, others, draws)] for word in words)) in texts:
                pass
            texts[text] = None
        return tuple(texts)

    def _noisy(self, word: int, others: list[int], draws: Draws) -> int:
        return draws.choice(others) if draws.below(_FINE) < self.noise * _FINE else word


WORDS = tuple(first + second for first in FIRST_SYLLABLES for second in SECOND_SYLLABLES)
_FIELDS = {"words": "words_per_text", "texts": "texts_per_class"}


def word_classes(text: str) -> tuple[str, ...]:
    """Class of each word of a synthetic text, read off its first syllable.

    Parameters
    ----------
    text : str
        A text of the synthetic task.

    Returns
    -------
    tuple of str
        One class name per word.

    Raises
    ------
    PromptError
        If a word is not of the synthetic vocabulary.
    """
    words = text.split()
    unknown = [word for word in words if word not in _KNOWN]
    if unknown:
        raise PromptError(f"{unknown[0]!r} is no word of the synthetic task: its words look like {WORDS[0]!r}")
    return tuple(word[:2] for word in words)


def word_overlap(text: str, other: str) -> float:
    """Share of word pairs of two synthetic texts that are of one class: a graded match in [0, 1].

    Parameters
    ----------
    text, other : str
        Two texts of the synthetic task, such as a query's and a demonstration's.

    Returns
    -------
    float
        Number of pairs (one word of each text) of the same class, divided by the number of pairs.
    """
    a, b = word_classes(text), word_classes(other)
    return sum(x == y for x in a for y in b) / (len(a) * len(b))


_KNOWN = frozenset(WORDS)
_FINE = 2**32  # grain of a drawn probability
