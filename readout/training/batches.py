"""Training sequences of a phase, drawn for a whole batch at once and seeded by the step alone."""

from dataclasses import dataclass

import numpy as np

from readout.prompts.labels import label_pool
from readout.prompts.synthetic import FIRST_SYLLABLES, SECOND_SYLLABLES, SyntheticTask
from readout.training.presets import Phase

# The vocabulary: three special tokens, the words class by class, then the labels.
BOS, UNKNOWN, CUE = 0, 1, 2
FIRST_WORD = 3
FIRST_LABEL = FIRST_WORD + len(FIRST_SYLLABLES) * len(SECOND_SYLLABLES)
N_LABELS = len(label_pool("words"))
VOCABULARY = FIRST_LABEL + N_LABELS


@dataclass(frozen=True)
class Batch:
    """Sequences with what is to be predicted in them.

    Parameters
    ----------
    tokens : int64[sequences, tokens]
        Token ids, the first one the beginning of the text.
    predict_at : int64[demonstrations]
        Position whose next token is the demonstration's label; the same in all sequences.
    labels : int64[sequences, demonstrations]
        Label ids.
    weight : float32[sequences, demonstrations]
        1 where the loss counts.
    fresh : bool[sequences, demonstrations]
        Where the label is any label not used before, each equally likely.
    judged : bool[sequences, demonstrations]
        Where the label can be known: its class has come before and the loss counts, in a repeating sequence.
    distinct : bool[sequences]
        Sequences without a repeated label.
    classes : int64[sequences, demonstrations]
        Class numbers.
    word_at : int64[demonstrations]
        Position whose next token is the text's second word; empty for texts of one word.
    """

    tokens: np.ndarray
    predict_at: np.ndarray
    labels: np.ndarray
    weight: np.ndarray
    fresh: np.ndarray
    judged: np.ndarray
    distinct: np.ndarray
    classes: np.ndarray
    word_at: np.ndarray


def step_generator(seed: int, step: int, stream: int = 0) -> np.random.Generator:
    """Return the generator of one training step: a function of seed and step, so that a resumed run needs no state."""
    return np.random.Generator(np.random.PCG64([seed, step, stream]))


def draw_batch(phase: Phase, size: int, rng: np.random.Generator) -> Batch:
    """Draw training sequences of a phase.

    Parameters
    ----------
    phase : Phase
        What to draw.
    size : int
        Number of sequences.
    rng : numpy.random.Generator
        Source of chance.

    Returns
    -------
    Batch
        The sequences.
    """
    k = phase.demonstrations
    distinct = rng.random(size) < phase.distinct
    low = np.where(distinct, phase.distinct_classes[0], phase.classes[0])
    high = np.where(distinct, phase.distinct_classes[1], phase.classes[1])
    n_classes = rng.integers(low, np.minimum(high, phase.class_pool) + 1)
    slots = _draw_slots(phase, n_classes, rng)
    pool = _permutations(rng, size, phase.class_pool)
    classes = np.take_along_axis(pool, slots, axis=1)
    names = _permutations(rng, size, phase.label_pool)
    # A distinct sequence gives each demonstration the next unused label instead of its class's.
    named = np.where(distinct[:, None], np.arange(k)[None, :], slots)
    labels = FIRST_LABEL + np.take_along_axis(names, named, axis=1)

    same = slots[:, :, None] == slots[:, None, :]
    seen = np.tril(same, -1).any(axis=2)
    repeated = np.cumsum(seen, axis=1) - seen > 0
    open_ = repeated if phase.masked_until_repeat else np.ones_like(seen)
    counts = open_ if phase.novel else open_ & seen
    judged = open_ & seen & ~distinct[:, None]
    weight = np.where(distinct[:, None], True, counts).astype(np.float32)

    texts = _draw_texts(phase, classes, rng)
    parts = [texts]
    if phase.cue:
        parts.append(np.full((size, k, 1), CUE))
    parts.append(labels[:, :, None])
    body = np.concatenate(parts, axis=2)
    length = body.shape[2]
    tokens = np.concatenate([np.full((size, 1), BOS), body.reshape(size, -1)], axis=1)
    start = 1 + length * np.arange(k)
    word_at = start if phase.words_per_text == 2 else start[:0]
    fresh = distinct[:, None] | ~seen
    return Batch(tokens, start + length - 2, labels, weight, fresh, judged, distinct, classes, word_at)


def draw_echo(phase: Phase, rng: np.random.Generator, length: int = 20) -> np.ndarray:
    """Draw echo sequences: random words and labels in which each token copies an earlier one half of the time.

    Parameters
    ----------
    phase : Phase
        Gives the number of sequences and the words and labels in use.
    rng : numpy.random.Generator
        Source of chance.
    length : int
        Tokens in a sequence, the first one (the beginning of the text) not counted.

    Returns
    -------
    int64[sequences, length + 1]
        Token ids; with probability one half token i is the token at i - 1 - d, d drawn from {1, 2} per sequence.
    """
    words = SyntheticTask().word_table[: phase.class_pool, : phase.words_per_class].ravel() + FIRST_WORD
    vocabulary = np.concatenate([words, FIRST_LABEL + np.arange(phase.label_pool)])
    tokens = rng.choice(vocabulary, size=(phase.echo, length))
    lag = rng.integers(1, 3, size=phase.echo)
    copies = rng.random((phase.echo, length)) < 0.5
    rows = np.arange(phase.echo)
    for i in range(3, length):
        tokens[:, i] = np.where(copies[:, i], tokens[rows, i - 1 - lag], tokens[:, i])
    return np.concatenate([np.full((phase.echo, 1), BOS), tokens], axis=1)


def _draw_slots(phase: Phase, n_classes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Number of the class within its sequence, int64[sequences, demonstrations]."""
    size, k, most = len(n_classes), phase.demonstrations, int(n_classes.max())
    weight = rng.exponential(size=(size, most)) if phase.unbalanced else np.ones((size, most))
    weight = np.where(np.arange(most) < n_classes[:, None], weight, 0.0)
    slots = np.empty((size, k), dtype=np.int64)
    rows = np.arange(size)
    for i in range(k):
        chance = weight.copy()
        if i:
            chance[rows, slots[:, i - 1]] *= phase.repeat_weight
        bounds = np.cumsum(chance, axis=1)
        slots[:, i] = (rng.random(size)[:, None] * bounds[:, -1:] > bounds[:, :-1]).sum(axis=1)
        if phase.cover_first:
            slots[:, i] = np.where(i < n_classes, i, slots[:, i])
    return slots


def _draw_texts(phase: Phase, classes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Word ids of each text, int64[sequences, demonstrations, words]; the two words of a text differ."""
    table = SyntheticTask(ambiguity=phase.ambiguity).word_table[: phase.class_pool, : phase.words_per_class]
    size, k = classes.shape
    n_words = phase.words_per_class
    first = rng.integers(n_words, size=(size, k))
    columns = [first]
    if phase.words_per_text == 2:
        columns.append((first + rng.integers(1, n_words, size=(size, k))) % n_words)
    places = np.stack(columns, axis=2)
    other = (classes[:, :, None] + rng.integers(1, phase.class_pool, size=places.shape)) % phase.class_pool
    noisy = rng.random(places.shape) < phase.noise
    return FIRST_WORD + table[np.where(noisy, other, classes[:, :, None]), places]


def _permutations(rng: np.random.Generator, rows: int, n: int) -> np.ndarray:
    return np.argsort(rng.random((rows, n)), axis=1)
