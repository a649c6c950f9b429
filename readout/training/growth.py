"""What grows in a model while it is trained: the same measures at every checkpoint, as for any other model."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
import xarray as xr

from readout.circuit import LABELS, Heads, Intervention
from readout.circuit.pairs import class_pairs
from readout.circuit.swaps import PARTNER, swap
from readout.fitting import Observations, SoftmaxReadout, label_mass
from readout.models import LanguageModel, pack
from readout.prompts import Prompt, PromptDistribution, TokenizedPrompt, tokenize
from readout.prompts.repeats import without_repeat
from readout.records import ExtractionOptions, extract

ACCURACY = PromptDistribution(
    "synthetic", classes=6, shots=((3, 3), (2, 2, 2), (2,) * 4, (2,) * 5, (2,) * 6), queries=2, size=50, seed=11
)
FIT = PromptDistribution(
    "synthetic",
    classes=3,
    shots=((3, 3, 3), (5, 2, 2), (4, 3, 1), (3, 3)),
    class_half="a",
    label_half="a",
    size=32,
    seed=12,
)
TARGET = PromptDistribution(
    "synthetic",
    classes=5,
    shots=((5, 3, 2, 2), (4, 3, 3, 2), (3, 3, 2, 2, 2)),
    class_half="b",
    label_half="b",
    size=32,
    seed=13,
)
BALANCED = PromptDistribution("synthetic", classes=3, shots=3, size=24, seed=16)
PAIRS = PromptDistribution("synthetic", classes=2, shots=4, queries=2, size=32, seed=14)
GATE = PromptDistribution("synthetic", classes=6, shots=(1, 1, 1, 1, 1, 2), size=24, seed=15)
READERS = 3
"""Largest number of heads in the readout of a checkpoint."""


@dataclass(frozen=True)
class Growth:
    """Measures of one checkpoint.

    Parameters
    ----------
    accuracy : float
        Share of prompts (2-6 classes, two or three shots) whose right label is the likeliest of the vocabulary.
    label_mass : float
        Probability of the prompt's own labels together, on the same prompts.
    reader_gap : float
        Attention to matching minus to other labels of the head named on the other half of the contexts.
    reader_sink : float
        That head's attention to the first token.
    writer_effect : float
        How far the logit difference moves towards a class-swapped prompt's when all heads below the reader write at
        the labels what they write there: 0 not at all, 1 all the way.
    gate_pair : float
        P(matching label) where another label repeats, minus where its first occurrence is replaced by a fresh one.
    gate_whole : float
        P(matching labels) in prompts of three classes and three shots, minus the same with every label but its last
        showing replaced by a fresh one.
    suppression : float
        Log-probability of the last label minus that of labels as frequent, none of them matching.
    readout_kl, agreement : float
        Held-out KL(model || readout), nats, and share of equal likeliest labels.
    frequency_kl, ceiling_kl : float
        The same KL of label frequency and of the observed attention put through the same link.
    """

    accuracy: float
    label_mass: float
    reader_gap: float
    reader_sink: float
    writer_effect: float
    gate_pair: float
    gate_whole: float
    suppression: float
    readout_kl: float
    agreement: float
    frequency_kl: float
    ceiling_kl: float


def measure_growth(model: Any, tokenizer: Any) -> dict[str, float]:
    """Take all measures of a model of the synthetic task.

    Parameters
    ----------
    model : transformers causal language model
        Left as it is: the measures work on a copy.
    tokenizer : PreTrainedTokenizerFast
        Its tokenizer.

    Returns
    -------
    dict
        The fields of `Growth`.
    """
    language_model = LanguageModel(copy.deepcopy(model), tokenizer, "growing")
    options = ExtractionOptions(effects=False)
    fit, target, balanced = (extract(language_model, each, options=options) for each in (FIT, TARGET, BALANCED))
    accurate, mass = _accuracy(language_model, ACCURACY)
    gap, sink, layer = reader_gap(fit)
    growth = Growth(
        accurate,
        mass,
        gap,
        sink,
        writer_effect(language_model, tokenize(PAIRS.prompts(), tokenizer), layer),
        gate_pair(language_model, GATE),
        gate_whole(language_model, BALANCED),
        suppression(balanced),
        **readout_error(fit, target),
    )
    return asdict(growth)


def matching_gap(record: xr.Dataset) -> np.ndarray:
    """Attention to matching minus attention to other labels, float64[prompts, heads]."""
    attention = np.nan_to_num(record["attention"].values.astype(np.float64))
    match = record["demonstration_class"].values == record["query_class"].values[:, None]
    return np.where(match[:, None], attention, -attention).sum(-1)  # type: ignore[no-any-return]


def reader_gap(record: xr.Dataset) -> tuple[float, float, int]:
    """Name the head of the greatest gap on even contexts; return its gap and sink on odd ones, and its layer."""
    gap, odd = matching_gap(record), record["context"].values % 2 == 1
    head = int(gap[~odd].mean(0).argmax())
    sink = record["sink"].values[odd, head].mean()
    return float(gap[odd, head].mean()), float(sink), int(record["layer"].values[head])


def readout_error(fit: xr.Dataset, target: xr.Dataset, readers: int = READERS) -> dict[str, float]:
    """Fit constants and gain on one record and predict another.

    Parameters
    ----------
    fit, target : xarray.Dataset
        Records; the heads are named on `fit`: of the `readers` greatest gaps those above half of the greatest.
    readers : int
        Largest number of heads.

    Returns
    -------
    dict of float
        `readout_kl`, `agreement`, `frequency_kl` and `ceiling_kl`.
    """
    seen, asked = Observations.from_record(fit), Observations.from_record(target)
    gap = matching_gap(fit).mean(0)
    ranked = np.argsort(-gap)[:readers]
    heads = [seen.heads[h] for h in ranked if h == ranked[0] or gap[h] > gap.max() / 2]
    readout = SoftmaxReadout("gain", heads).fit(seen)
    truth = asked.label_probability
    predicted = readout.predict_proba(asked)
    observed = asked.select_heads(readout.usable_heads_)
    mass = label_mass(np.nan_to_num(observed.attention), observed.label, observed.label_mask.shape[1])
    counts = (asked.label[:, :, None] == np.arange(truth.shape[1])).sum(1)
    return {
        "readout_kl": divergence(truth, predicted),
        "agreement": float((truth.argmax(1) == predicted.argmax(1)).mean()),
        "frequency_kl": divergence(truth, counts / counts.sum(1, keepdims=True)),
        "ceiling_kl": divergence(truth, readout.link_.predict(mass, observed.label_mask)),
    }


def divergence(truth: np.ndarray, predicted: np.ndarray) -> float:
    """Mean KL(truth || predicted) over prompts in nats, float64[prompts, labels] each."""
    ratio = np.log(np.where(truth > 0, truth, 1.0)) - np.log(np.where(truth > 0, predicted, 1.0))
    return float((truth * ratio).sum(1).mean())


def suppression(record: xr.Dataset) -> float:
    """Log-probability of the last label against others that match as little; balanced counts are assumed."""
    logprob = record["label_logprob"].values.astype(np.float64)
    last = record["demonstration_label"].values[:, -1]
    answer = record["query_label"].values
    others = np.isfinite(logprob) & (np.arange(logprob.shape[1]) != last[:, None])
    others &= np.arange(logprob.shape[1]) != answer[:, None]
    use = last != answer
    mean = np.where(others, logprob, 0.0).sum(1) / np.maximum(others.sum(1), 1)
    return float((logprob[np.arange(len(last)), last] - mean)[use].mean())


def gate_pair(model: LanguageModel, distribution: PromptDistribution) -> float:
    """P(matching label) where one other label repeats, minus where that label's first occurrence is a fresh label.

    Only the first occurrence is relabelled: another token at the second one would be a difference of its own.
    """
    prompts = [prompt for prompt in distribution.prompts() if _shown(prompt).count(prompt.correct_label) == 1]
    twins = [without_repeat(prompt) for prompt in prompts]
    return matching_probability(model, prompts) - matching_probability(model, twins)


def gate_whole(model: LanguageModel, distribution: PromptDistribution) -> float:
    """P(matching labels) in whole prompts minus in the same prompts with every label but its last showing replaced."""
    prompts = distribution.prompts()
    twins = [without_repeat(prompt) for prompt in prompts]
    return matching_probability(model, prompts) - matching_probability(model, twins)


def _shown(prompt: Prompt) -> list[str]:
    return [demonstration.label for demonstration in prompt.demonstrations]


def matching_probability(model: LanguageModel, prompts: Sequence[Prompt]) -> float:
    """Mean probability of all labels of the query's class together."""
    tokenized = tokenize(prompts, model.tokenizer)
    width = max(len(one.label_ids) for one in tokenized)
    ids = np.stack([np.pad(one.label_ids, (0, width - len(one.label_ids))) for one in tokenized])
    owners = [np.array(one.prompt.label_classes) == one.prompt.query_class for one in tokenized]
    match = np.stack([np.pad(one, (0, width - len(one))) for one in owners])
    batch = pack([[one.token_ids] for one in tokenized])
    found = model.run(batch, torch.from_numpy(ids)).log_probabilities.exp().numpy()
    return float(np.where(match, found, 0).sum(1).mean())


def writer_effect(model: LanguageModel, prompts: Sequence[TokenizedPrompt], layer: int) -> float:
    """Swap what the heads below `layer` write at the labels for what they write in the class-swapped prompt.

    Parameters
    ----------
    model : LanguageModel
        The model.
    prompts : sequence of TokenizedPrompt
        Two balanced classes, texts of equal length.
    layer : int
        Heads of the layers below are swapped.

    Returns
    -------
    float
        Share of the way from the prompt's own logit difference to the swapped prompt's; 0 where these differ by less
        than a tenth of a nat.
    """
    edits = [(Heads(number, (), LABELS), PARTNER) for number in range(layer)]
    found = swap(model, class_pairs(prompts), [Intervention.of("writers", *edits)])
    total = float(found.total.mean())
    return float(found.moved.mean()) / total if abs(total) > 0.1 else 0.0


def _accuracy(model: LanguageModel, distribution: PromptDistribution) -> tuple[float, float]:
    prompts = tokenize(distribution.prompts(), model.tokenizer)
    vocabulary = torch.arange(len(model.tokenizer)).expand(len(prompts), -1)
    found = model.run(pack([[prompt.token_ids] for prompt in prompts]), vocabulary).log_probabilities
    answer = [p.label_ids[p.prompt.labels.index(p.prompt.correct_label)] for p in prompts]
    mass = [float(row[torch.from_numpy(p.label_ids)].exp().sum()) for row, p in zip(found, prompts, strict=True)]
    return float((found.argmax(1).numpy() == np.array(answer)).mean()), float(np.mean(mass))
