"""Where readers look when no label repeats, and which heads push down the last label: measures of the search."""

from pathlib import Path

import numpy as np
import torch

from readout.models import LanguageModel, load_model, pack
from readout.prompts import TokenizedPrompt, tokenize
from readout.records import ExtractionOptions, extract
from readout.training.growth import BALANCED, FIT, GATE, matching_gap, without_repeat


def parking(folder: Path) -> dict[str, object]:
    """Attention of each reader to the first token, to labels and to cues, with a repeated label and without.

    Parameters
    ----------
    folder : Path
        Model in transformers' format.

    Returns
    -------
    dict
        `gate` with P(matching label) where another label repeats and where it is replaced; `readers` with one row a
        head whose gap is above half of the greatest: masses `first`, `labels`, `cues` in both cases.
    """
    model = load_model(str(folder), device="cpu", self_test=False)
    gap = matching_gap(extract(model, FIT, options=ExtractionOptions(effects=False))).mean(0)
    readers = np.flatnonzero(gap > max(gap.max() / 2, 0.1))
    pairs = [pair for prompt in GATE.prompts() for pair in without_repeat(prompt)]
    sides = [tokenize(side, model.tokenizer) for side in zip(*pairs, strict=True)]
    (open_answer, open_mass), (closed_answer, closed_mass) = (_masses(model, side) for side in sides)
    rows = {}
    for head in range(len(model.heads)):
        layer, number = model.heads[head]
        both = {"repeat": open_mass[:, head], "none": closed_mass[:, head]}
        means = {f"{part}_{case}": round(float(m[i]), 4) for case, m in both.items() for i, part in enumerate(PARTS)}
        rows[f"L{layer}H{number}"] = {"gap": round(float(gap[head]), 4), "reader": head in readers} | means
    return {"gate": {"repeat": open_answer, "none": closed_answer}, "heads": rows}


PARTS = ("first", "labels", "cues")


def _masses(model: LanguageModel, prompts: list[TokenizedPrompt]) -> tuple[float, np.ndarray]:
    """P(right label) and attention masses [parts, heads], means over prompts."""
    answers = torch.tensor([[int(p.label_ids[p.prompt.labels.index(p.prompt.correct_label)])] for p in prompts])
    columns = np.stack([np.r_[0, p.label_positions, p.cue_positions, p.query_position] for p in prompts])
    found = model.run(pack([[p.token_ids] for p in prompts]), answers, torch.from_numpy(columns))
    k = len(prompts[0].label_positions)
    attention = found.attention
    assert attention is not None
    parts = [attention[:, :, :1], attention[:, :, 1 : 1 + k], attention[:, :, 1 + k :]]
    return float(found.log_probabilities.exp().mean()), np.stack([x.sum(-1).mean(0).numpy() for x in parts])


def suppressors(folder: Path) -> dict[str, object]:
    """Attention of each head to the last label, and its direct effect on that label against labels as frequent.

    Parameters
    ----------
    folder : Path
        Model in transformers' format.

    Returns
    -------
    dict
        `log_odds` of the last label against labels as frequent that do not match either, and per head `last` and
        `others` (attention to the last label and the mean over other labels that do not match) and `effect` (direct
        effect on the last label minus the mean of these others).
    """
    model = load_model(str(folder), device="cpu", self_test=False)
    record = extract(model, BALANCED)
    logprob = record["label_logprob"].values.astype(float)
    last, answer = record["demonstration_label"].values[:, -1], record["query_label"].values
    use = last != answer
    rows = np.arange(len(last))[use]
    labels = np.arange(logprob.shape[1])
    other = (labels != last[:, None]) & (labels != answer[:, None])
    other_of = other[use].argmax(1)
    effect = record["label_effect"].values
    attention = record["attention"].values
    shown = record["demonstration_label"].values
    neither = (shown != last[:, None]) & (shown != answer[:, None])
    away = np.where(neither[:, None], attention, 0).sum(-1) / neither.sum(-1)[:, None]
    heads = {
        f"L{layer}H{number}": {
            "last": round(float(attention[use, h, -1].mean()), 4),
            "others": round(float(away[use, h].mean()), 4),
            "effect": round(float((effect[rows, h, last[use]] - effect[rows, h, other_of]).mean()), 4),
        }
        for h, (layer, number) in enumerate(model.heads)
    }
    return {"log_odds": float((logprob[rows, last[use]] - logprob[rows, other_of]).mean()), "heads": heads}
