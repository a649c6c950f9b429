"""Does a graded match transfer better than a binary one, and than what needs no attention? Writes fits/transfer.json.

    python fits/transfer_pairs.py     extract the records first
    python fits/transfer.py           fit each source, write down what is frozen, then score every draw of every target

All choices (match, heads, link, layer) are made on the source by cross-validation and written to the file before a
target is opened. Differences are paired by prompt, their intervals clustered by context over the pooled draws.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from main_job import HERE, rounded
from transfer_pairs import DRAWS, RECORDED, record_path

from readout.fitting import Observations, SoftmaxReadout, make_link
from readout.matching import EncoderCosine, ResidualCosine, Similarity
from readout.pipeline.fit_stage import FitStage, fit_stage
from readout.records import open_record
from readout.statistics import Estimate, cluster_difference, cluster_mean
from readout.validation import baseline_predictions, measure_behaviour, prompt_errors
from readout.validation.controls import ceiling_prediction, observed_mass, random_head_predictions
from readout.validation.metrics import attention_errors

PAIRS = {
    "words -> other words": ("words", "other_words"),
    "words -> names, other template, 3 classes": ("words", "other_form"),
    "words -> TREC": ("words", "other_trec"),
    "TREC -> other TREC classes": ("trec", "other_trec"),
    "TREC -> 4 TREC classes": ("trec", "trec_four"),
    "tiny: synthetic -> other classes": ("synthetic", "other_synthetic"),
    "tiny: synthetic -> noisy": ("synthetic", "noisy"),
}
TERMS = {
    "recency": ("recency",),
    "first occurrence": ("first_occurrence",),
    "gate": ("gate",),
    "length": ("log_count", "match_log_count"),
}
CEILING_HEADS, RANDOM_DRAWS = 8, 20
AGAINST = "match + log count"


def frozen(record: Any) -> dict[str, FitStage]:
    """What a source fixes: the run's own choice, and the best binary and graded readouts."""
    return {mode: fit_stage(record, match=mode, bootstrap=0) for mode in ("auto", "binary", "graded")}


def frozen_told(stages: dict[str, FitStage]) -> dict[str, Any]:
    """The choices of a source in plain values."""
    auto = stages["auto"]
    told: dict[str, Any] = {"readers": list(auto.readers.readers), "auto": auto.match.similarity.describe()}
    told["candidates"] = [candidate.to_dict() for candidate in auto.match.candidates]
    for mode in ("binary", "graded"):
        stage = stages[mode]
        told[mode] = {
            "match": stage.match.similarity.describe(),
            "heads": list(stage.choice.heads),
            "link": stage.choice.link,
            "constants": {
                head: {term: one.to_dict() for term, one in row.items()}
                for head, row in stage.readout.constants_.items()
            },
        }
    return told


def scores(stages: dict[str, FitStage], source: Any, target: Any) -> dict[str, np.ndarray]:
    """KL(model || prediction) of every prompt of one draw, by prediction."""
    readouts = {mode: stages[mode].readout for mode in ("binary", "graded")}
    graded, binary = readouts["graded"], readouts["binary"]
    seen = {mode: readout.observations(source, fitted_to=True) for mode, readout in readouts.items()}
    hidden = {mode: readout.observations(target) for mode, readout in readouts.items()}
    simple, _ = baseline_predictions(seen["graded"], hidden["graded"])
    made = {
        "label frequency": simple["label_frequency"],
        AGAINST: simple["match_log_count"],
        "similarity + log count": simple["similarity_log_count"],
        "binary": binary.predict_proba(hidden["binary"]),
        "graded": graded.predict_proba(hidden["graded"]),
    }
    first = stages["auto"].readers.readers[:CEILING_HEADS] or graded.usable_heads_
    for name, link, heads in (
        ("observed attention, same heads and link", graded.link_.name, graded.usable_heads_),
        (f"observed attention, {len(first)} readers, power", "power", tuple(first)),
    ):
        made[name] = ceiling_prediction(make_link(link), seen["graded"], hidden["graded"], heads)
    made |= {name: refitted(graded, s, source, target) for name, s in others(graded.match, source, target).items()}
    for name, terms in TERMS.items():
        prediction = with_terms(graded, terms, seen["graded"], hidden["graded"])
        if prediction is not None:
            made[f"graded + {name}"] = prediction
    data = hidden["graded"]
    kl = {name: prompt_errors(data.label_probability, one, data.label_mask)["kl"] for name, one in made.items()}
    random = random_head_predictions(graded, seen["graded"], data, RANDOM_DRAWS, 0)
    if random:
        drawn = [prompt_errors(data.label_probability, one, data.label_mask)["kl"] for one in random]
        kl["graded, random heads of the same layers"] = np.mean(drawn, axis=0)
    return kl


def others(similarity: Similarity, source: Any, target: Any) -> dict[str, Similarity]:
    """Other similarities to put in the place of the chosen one: of a pass blind to labels, of an encoder."""
    found: dict[str, Similarity] = {}
    if "encoder" not in similarity.name and not source.attrs["distribution"].count("synthetic"):
        found["graded, encoder cosine"] = EncoderCosine()
    if isinstance(similarity, ResidualCosine) and "blind_query_residual" in source and "blind_query_residual" in target:
        found["graded, pass blind to labels"] = ResidualCosine(similarity.layer, similarity.map, blind=True)
    return found


def refitted(graded: SoftmaxReadout, similarity: Similarity, source: Any, target: Any) -> np.ndarray:
    """The prediction with another similarity, the same heads and the same link."""
    readout = SoftmaxReadout(graded.link_.name, graded.usable_heads_, match=similarity.fit(source)).fit(source)
    return readout.predict_proba(target)


def with_terms(
    graded: SoftmaxReadout, terms: tuple[str, ...], seen: Observations, hidden: Observations
) -> np.ndarray | None:
    """The prediction with further terms of the score; None where the source cannot tell them for every head."""
    readout = SoftmaxReadout(graded.link_.name, graded.usable_heads_, terms=("base", "match", *terms))
    readout.fit(seen)
    return readout.predict_proba(hidden) if readout.usable_heads_ == graded.usable_heads_ else None


def constants(stages: dict[str, FitStage], target: Any) -> dict[str, Any]:
    """Constants of each mode's heads on the source and refitted on one draw of the target, with their difference."""
    found: dict[str, Any] = {}
    for mode in ("binary", "graded"):
        readout = stages[mode].readout
        again = SoftmaxReadout(readout.link_.name, readout.usable_heads_).fit(readout.observations(target))
        hidden = readout.observations(target)
        masses = observed_mass(hidden, readout.usable_heads_)
        carried = attention_errors(
            masses, readout.predict_mass(hidden), hidden.label_mask, hidden.context, readout.usable_heads_
        )
        own = attention_errors(
            masses, again.predict_mass(hidden), hidden.label_mask, hidden.context, again.usable_heads_
        )
        found[mode] = {
            head: {
                "r2": carried[head]["r2"].to_dict(),
                "r2 refitted": own[head]["r2"].to_dict(),
                **{
                    term: difference(readout.constants_[head][term], again.constants_[head][term])
                    for term in ("base", "match")
                },
            }
            for head in again.usable_heads_
        }
    return found


def difference(fitted: Estimate, again: Estimate) -> dict[str, Any]:
    """A constant on the source, on the target, and target minus source (independent samples)."""
    error = float(np.hypot(fitted.se, again.se))
    gap = again.value - fitted.value
    return {
        "source": fitted.to_dict(),
        "target": again.to_dict(),
        "difference": {"value": gap, "low": gap - 1.96 * error, "high": gap + 1.96 * error, "se": error},
    }


def pooled(draws: list[tuple[dict[str, np.ndarray], np.ndarray]]) -> dict[str, Any]:
    """Means and paired differences over all draws, contexts of different draws being different clusters."""
    names = [name for name in draws[0][0] if all(name in kl for kl, _ in draws)]
    contexts = np.concatenate([np.char.add(f"{number}-", c.astype(str)) for number, (_, c) in enumerate(draws)])
    kl = {name: np.concatenate([one[name] for one, _ in draws]) for name in names}
    table = {name: {"kl": cluster_mean(values, contexts).to_dict()} for name, values in kl.items()}
    for name, values in kl.items():
        table[name][f"minus {AGAINST}"] = cluster_difference(values, kl[AGAINST], contexts).to_dict()
        table[name]["minus graded"] = cluster_difference(values, kl["graded"], contexts).to_dict()
    return table


def main() -> None:
    """Freeze every source, then score every target."""
    sources = {name: open_record(record_path(name, 0)) for name in dict.fromkeys(pair[0] for pair in PAIRS.values())}
    stages = {name: frozen(record) for name, record in sources.items()}
    result: dict[str, Any] = {"command": "python fits/transfer.py", "pairs": {}}
    result["frozen"] = {name: frozen_told(stage) for name, stage in stages.items()}
    write(result)
    for pair, (source, target) in PAIRS.items():
        draws, rows = [], {}
        for draw in range(DRAWS):
            record = open_record(record_path(target, draw))
            kl = scores(stages[source], sources[source], record)
            context = Observations.from_record(record).context
            draws.append((kl, context))
            behaviour = measure_behaviour(Observations.from_record(record))
            rows[str(draw)] = {
                "behaviour": behaviour.to_dict(),
                "contexts": len(set(context.tolist())),
                "kl": {name: float(values.mean()) for name, values in kl.items()},
                "constants": constants(stages[source], record),
            }
        blind = [one for one in draws if "graded, pass blind to labels" in one[0]]
        result["pairs"][pair] = {
            "model": RECORDED[source].model,
            "source": source,
            "target": target,
            "draws": rows,
            "pooled": pooled(draws),
            "with a blind pass": pooled(blind) if blind else None,
        }
        write(result)
        print(pair, {name: round(row["kl"]["value"], 3) for name, row in result["pairs"][pair]["pooled"].items()})


def write(result: dict[str, Any]) -> None:
    """Write the committed result."""
    (HERE / "transfer.json").write_text(json.dumps(rounded(result), allow_nan=False, indent=1) + "\n")


if __name__ == "__main__":
    main()
