"""Where readers look when no label repeats, and which heads push down the last label: measures of the search."""

from pathlib import Path

import numpy as np
import torch

from readout.models import Edits, LanguageModel, load_model, pack
from readout.prompts import TokenizedPrompt, tokenize
from readout.prompts.repeats import without_repeat
from readout.records import ExtractionOptions, extract
from readout.training.growth import BALANCED, FIT, GATE, matching_gap


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
    prompts = [p for p in GATE.prompts() if sum(d.label == p.correct_label for d in p.demonstrations) == 1]
    sides = [tokenize(side, model.tokenizer) for side in (prompts, [without_repeat(prompt) for prompt in prompts])]
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
    """Which heads push down the last label: attention, direct effect and mean ablation, head by head.

    Parameters
    ----------
    folder : Path
        Model in transformers' format.

    Returns
    -------
    dict
        `log_odds` of the last label against a label as frequent, neither matching the query; by head `last` and
        `others` (attention to the last label and to the other one, a demonstration each), `effect` (direct effect on
        the last label minus the other) and `ablated` (change of the log-odds when the head's output at the query is
        its mean over prompts: positive for a head that pushes the last label down).
    """
    model = load_model(str(folder), device="cpu", self_test=False)
    record = extract(model, BALANCED)
    last, answer = record["demonstration_label"].values[:, -1], record["query_label"].values
    rows = np.flatnonzero(last != answer)
    last = last[rows]
    other = 3 - last - answer[rows]  # BALANCED has three labels
    logprob, effect = record["label_logprob"].values[rows], record["label_effect"].values[rows]
    attention, shown = record["attention"].values[rows], record["demonstration_label"].values[rows]
    at_other = np.where((shown == other[:, None])[:, None], attention, 0).sum(-1) / 3
    at = np.arange(len(rows))
    log_odds = logprob[at, last] - logprob[at, other]
    prompts = tokenize(BALANCED.prompts(), model.tokenizer)
    prompts = [prompts[row] for row in rows]
    heads = {}
    for h, (layer, number) in enumerate(model.heads):
        ablated = _ablated(model, prompts, layer, number)
        heads[f"L{layer}H{number}"] = {
            "last": round(float(attention[:, h, -1].mean()), 4),
            "others": round(float(at_other[:, h].mean()), 4),
            "effect": round(float((effect[at, h, last] - effect[at, h, other]).mean()), 4),
            "ablated": round(float((ablated[at, last] - ablated[at, other] - log_odds).mean()), 4),
        }
    return {"log_odds": round(float(log_odds.mean()), 4), "prompts": len(rows), "heads": heads}


def _ablated(model: LanguageModel, prompts: list[TokenizedPrompt], layer: int, head: int) -> np.ndarray:
    """Log-probabilities of the labels with one head's output at the query replaced by its mean."""
    ends = torch.tensor([prompt.query_position for prompt in prompts])
    rows = torch.arange(len(prompts))

    def average(outputs: torch.Tensor, session: object) -> torch.Tensor:
        outputs = outputs.clone()
        outputs[rows, ends, head] = outputs[rows, ends, head].mean(0)
        return outputs

    batch = pack([[prompt.token_ids] for prompt in prompts])
    labels = torch.from_numpy(np.stack([prompt.label_ids for prompt in prompts]))
    return model.run(batch, labels, edits=Edits(outputs={layer: [average]})).log_probabilities.numpy()
