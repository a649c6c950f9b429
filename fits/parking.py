"""Where readers look when no label repeats, and which heads push down the last label: measures of the search."""

from pathlib import Path

import numpy as np
import torch

from readout.models import Edits, LanguageModel, load_model, pack
from readout.prompts import Prompt, TokenizedPrompt, tokenize
from readout.prompts.repeats import without_repeat
from readout.records import ExtractionOptions, extract
from readout.training.growth import BALANCED, FIT, GATE, matching_gap, matching_probability


def parking(folder: Path) -> dict[str, object]:
    """Attention of each head to the first token, to labels and to cues, with a repeated label and without.

    Parameters
    ----------
    folder : Path
        Model in transformers' format.

    Returns
    -------
    dict
        `one` for prompts in which one label repeats, `all` for prompts in which every label does; `none` in them is the
        same prompts with every label but its last showing replaced by a fresh one. Each holds `gate`, the probability
        of the query class's labels in both cases, and `heads`: masses `first`, `labels`, `cues` in both, and whether
        the head is a reader (its gap is above half of the greatest and above .1).
    """
    model = load_model(str(folder), device="cpu", self_test=False)
    gap = matching_gap(extract(model, FIT, options=ExtractionOptions(effects=False))).mean(0)
    readers = np.flatnonzero(gap > max(gap.max() / 2, 0.1))
    single = [p for p in GATE.prompts() if sum(d.label == p.correct_label for d in p.demonstrations) == 1]
    return {name: _both(model, gap, readers, p) for name, p in (("one", single), ("all", BALANCED.prompts()))}


def _both(model: LanguageModel, gap: np.ndarray, readers: np.ndarray, prompts: list[Prompt]) -> dict[str, object]:
    """Gate and masses of the prompts as they are and without a repeat."""
    cases = {"repeat": prompts, "none": [without_repeat(prompt) for prompt in prompts]}
    both = {case: _masses(model, tokenize(side, model.tokenizer)) for case, side in cases.items()}
    rows = {}
    for head, (layer, number) in enumerate(model.heads):
        means = {f"{part}_{case}": float(m[i][head]) for case, m in both.items() for i, part in enumerate(PARTS)}
        rows[f"L{layer}H{number}"] = {"gap": round(float(gap[head]), 4), "reader": bool(head in readers)} | {
            name: round(value, 4) for name, value in means.items()
        }
    gate = {case: round(matching_probability(model, side), 4) for case, side in cases.items()}
    return {"gate": gate, "heads": rows}


PARTS = ("first", "labels", "cues")


def _masses(model: LanguageModel, prompts: list[TokenizedPrompt]) -> np.ndarray:
    """Attention masses at the query, float64[parts, heads], means over prompts."""
    labels = torch.from_numpy(np.stack([p.label_ids[:1] for p in prompts]))
    columns = np.stack([np.r_[0, p.label_positions, p.cue_positions, p.query_position] for p in prompts])
    attention = model.run(pack([[p.token_ids] for p in prompts]), labels, torch.from_numpy(columns)).attention
    assert attention is not None
    k = len(prompts[0].label_positions)
    parts = [attention[:, :, :1], attention[:, :, 1 : 1 + k], attention[:, :, 1 + k :]]
    return np.stack([part.sum(-1).mean(0).numpy() for part in parts])


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
