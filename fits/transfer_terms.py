"""What further terms of the score and pooled constants are worth, on data that can tell.

    python fits/transfer_terms.py

Writes fits/transfer_terms.json. The SmolLM2 sources of fits/transfer.py all have 16 demonstrations and no prompt
without a repeated label, so that neither length nor gate can be fitted there. Here prompts have 3 to 24 demonstrations,
and in some no label repeats. Heads, link and match are chosen on the source; each term is fitted there beside base and
match, and scored on a target of other classes and other labels that chose nothing. Records that are missing are
extracted first (SmolLM2: about ten minutes).
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
from main_job import HERE, rounded
from transfer_pairs import RECORDS, SMOLLM2, SYNTHETIC, TINY, WORDS

from readout.fitting import Observations, fit_constants, make_link, pool_constants
from readout.fitting.likelihood import predicted_attention
from readout.fitting.terms import features
from readout.pipeline.fit_stage import FitStage, fit_stage
from readout.prompts import PromptDistribution
from readout.records import ExtractionOptions, extract, middle_layers
from readout.statistics import cluster_difference, cluster_mean, generator
from readout.validation import measure_behaviour, prompt_errors
from readout.validation.controls import masses

SHOTS = ((1, 1, 1), (1, 1, 1, 1), (2, 1, 1, 1), (2, 2, 2), (4, 4), (3, 4, 5), (2, 6), (8, 8), (4, 5, 7), (6, 8, 10))
OTHER_SHOTS = ((1, 1, 1, 1), (1, 1, 1), (2, 2, 1, 1), (3, 4, 1), (2, 4, 6), (3, 5, 7, 7), (4, 8, 12))
PAIRS = {
    "words": (
        SMOLLM2,
        replace(WORDS, shots=SHOTS, size=80, seed=171),
        replace(WORDS, class_half="b", label_half="b", shots=OTHER_SHOTS, size=64, seed=181),
    ),
    "tiny: synthetic": (
        TINY,
        replace(SYNTHETIC, shots=SHOTS[:7], size=160, seed=191),
        replace(SYNTHETIC, class_half="b", label_half="b", shots=OTHER_SHOTS[:5], size=96, seed=192),
    ),
}
PLAIN = ("base", "match")
TERMS = {
    "recency": ("recency",),
    "first occurrence": ("first_occurrence",),
    "gate": ("gate",),
    "length": ("log_count", "match_log_count"),
}
MOST_HEADS, FEW_CONTEXTS, FEW_DRAWS = 8, 12, 10
Errors = dict[str, np.ndarray]


def recorded(name: str) -> tuple[Any, Any]:
    """The source's and the target's record of one pair."""
    from readout.models import load_model

    model_name, source, target = PAIRS[name]
    model = load_model(model_name, device="cpu")
    options = ExtractionOptions(residual_layers=middle_layers(len(model.wiring.attentions)))

    def one(what: str, distribution: PromptDistribution) -> Any:
        return extract(model, distribution, RECORDS / f"terms_{name.replace(': ', '_')}-{what}", options, progress=True)

    return one("source", source), one("target", target)


def log_likelihood(observations: Observations, theta: np.ndarray, terms: tuple[str, ...]) -> np.ndarray:
    """Log-likelihood of each prompt's attention, mean over heads [n], nats."""
    predicted = predicted_attention(features(observations, terms), observations.mask, theta)
    seen = observations.attention.astype(np.float64)
    here = np.broadcast_to(observations.mask[:, None], seen.shape)
    on_labels = np.where(here, seen * np.log(np.where(here, predicted, 1.0)), 0.0).sum(axis=2)
    rest, predicted_rest = 1 - seen.sum(axis=2), 1 - predicted.sum(axis=2)
    result: np.ndarray = (on_labels + rest * np.log(np.maximum(predicted_rest, 1e-300))).mean(axis=1)
    return result


def scored(seen: Observations, hidden: Observations, theta: np.ndarray, terms: tuple[str, ...], link: str) -> Errors:
    """KL of labels, and of attention what it loses against its own entropy's sign: minus the log-likelihood [n]."""
    fitted = make_link(link).fit(masses(seen, theta, terms), seen.label_probability, seen.label_mask)
    prediction = fitted.predict(masses(hidden, theta, terms), hidden.label_mask)
    kl = prompt_errors(hidden.label_probability, prediction, hidden.label_mask)["kl"]
    return {"labels": kl, "attention": -log_likelihood(hidden, theta, terms)}


def differences(one: Errors, other: Errors, context: np.ndarray) -> dict[str, Any]:
    """Paired differences one minus other, clustered by context."""
    return {what: cluster_difference(one[what], other[what], context).to_dict() for what in one}


def term_gains(stage: FitStage, source: Any, target: Any) -> dict[str, Any]:
    """Each term's constants on the source and what they change on the target."""
    heads, link = stage.readout.usable_heads_, stage.choice.link
    seen, hidden = (stage.readout.observations(one, fitted_to=True).select_heads(heads) for one in (source, target))
    plain = scored(seen, hidden, fit_constants(seen, PLAIN, covariance=False).theta, PLAIN, link)
    found: dict[str, Any] = {}
    for name, extra in TERMS.items():
        terms = (*PLAIN, *extra)
        fit = fit_constants(seen, terms)
        if not fit.usable.all():
            found[name] = {"status": dict(zip(fit.heads, fit.status, strict=True))}
            continue
        constants = {head: {term: row[term].to_dict() for term in extra} for head, row in fit.estimates().items()}
        gain = differences(scored(seen, hidden, fit.theta, terms, link), plain, hidden.context)
        found[name] = {"constants": constants, "minus plain": gain}
    return {"kl": cluster_mean(plain["labels"], hidden.context).to_dict(), "terms": found}


def pooling_gains(stage: FitStage, source: Any, target: Any) -> dict[str, Any]:
    """What pooling the constants of the first readers changes on the target, from all contexts and from few."""
    heads = stage.readers.readers[:MOST_HEADS]
    seen, hidden = (stage.readout.observations(one, fitted_to=True).select_heads(heads) for one in (source, target))
    contexts = np.unique(seen.context)
    found: dict[str, Any] = {"heads": list(heads)}
    for size, draws in ((len(contexts), 1), (FEW_CONTEXTS, FEW_DRAWS)):
        kept: list[tuple[Errors, Errors]] = []
        for draw in range(draws):
            chosen = generator(draw).permutation(contexts)[:size]
            part = seen.select_prompts(np.isin(seen.context, chosen))
            fit = fit_constants(part, PLAIN)
            pooled = pool_constants(fit)
            use = tuple(np.array(heads)[fit.usable])
            own, other = part.select_heads(use), hidden.select_heads(use)
            pair = (pooled.fit.theta[fit.usable], fit.theta[fit.usable])
            kept.append(tuple(scored(own, other, theta, PLAIN, "share") for theta in pair))
        one, two = ({what: np.mean([pair[k][what] for pair in kept], axis=0) for what in kept[0][0]} for k in (0, 1))
        found[f"{size} contexts"] = differences(one, two, hidden.context)
    return found


def main() -> None:
    """Measure every pair and write."""
    result: dict[str, Any] = {"command": "python fits/transfer_terms.py", "pairs": {}}
    for name in PAIRS:
        source, target = recorded(name)
        stage = fit_stage(source, bootstrap=0)
        result["pairs"][name] = {
            "model": PAIRS[name][0],
            "match": stage.readout.match.describe() if stage.readout.match else "binary (same class)",
            "heads": list(stage.readout.usable_heads_),
            "link": stage.choice.link,
            "behaviour": measure_behaviour(Observations.from_record(target)).to_dict(),
            **term_gains(stage, source, target),
            "pooling": pooling_gains(stage, source, target),
        }
        (HERE / "transfer_terms.json").write_text(json.dumps(rounded(result), allow_nan=False, indent=1) + "\n")
        print(name, result["pairs"][name]["heads"], result["pairs"][name]["match"], flush=True)


if __name__ == "__main__":
    main()
