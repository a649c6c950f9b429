"""What effects of label words are worth on held-out distributions, estimated without them. Writes one JSON.

    python fits/transfer_pairs.py     extract the records first
    python fits/transfer_labels.py

Two ways, both frozen before a target is opened: from the source's own label words, so that the target's words get what
words with like unembeddings have; and from the target's words in prompts of the source's classes and texts. Every
prediction is given both, the baseline too: else the readout would be ahead by what has nothing to do with attention.
Writes fits/transfer_labels.json.

The ways were settled before the targets of fits/transfer.py were scored with them, but for one thing: a first record of
TREC's prompts with the target's words had 64 contexts of two classes, about three a word, and the effects it gave were
worth half of those from the words' record; a record of 96 contexts of three classes took its place. Hence one more
draw of each target, made after that and scored once: "fresh draw".
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from main_job import HERE, rounded
from transfer import AGAINST, CEILING_HEADS, PAIRS
from transfer_pairs import DRAWS, RECORDED, RECORDS, record_path

from readout.fitting import Observations, make_link
from readout.fitting.label_words import LabelWords, fit_label_words
from readout.pipeline.fit_stage import FitStage, fit_stage
from readout.records import open_record
from readout.statistics import cluster_bootstrap, cluster_difference, cluster_mean
from readout.validation import baseline_predictions, prompt_errors
from readout.validation.baselines import label_frequency
from readout.validation.controls import ceiling_prediction

KNOWN = {"words": "words_labels", "trec": "trec_labels_three"}
"""The record of each source's classes and texts with the label words of the second half of the pool."""
FRESH = DRAWS
"""The draw that was made after all choices."""
FREQUENCY, CEILING = "label frequency", "ceiling"
ALIKE, SAME, SHUFFLED = "words with like unembeddings", "the same words", "the same words, shuffled"


def label_vectors(name: str) -> dict[int, np.ndarray]:
    """Unembedding of every label word in the records of one model, kept beside them."""
    path = RECORDS / f"label_vectors_{name}.npz"
    wanted = sorted({i for pair in PAIRS.values() if RECORDED[pair[0]].model == name for i in _ids(pair)})
    if not path.exists() or sorted(np.load(path)["ids"].tolist()) != wanted:
        from readout.models import load_model

        rows = load_model(name, device="cpu").model.get_output_embeddings().weight.detach()[wanted].numpy()
        np.savez(path, ids=np.array(wanted), rows=rows)
    kept = np.load(path)
    return dict(zip(kept["ids"].tolist(), kept["rows"], strict=True))


def _ids(pair: tuple[str, str]) -> set[int]:
    names = [
        (one, draw) for one in (*pair, *([KNOWN[pair[0]]] if pair[0] in KNOWN else [])) for draw in range(FRESH + 1)
    ]
    found: set[int] = set()
    for one, draw in names:
        if record_path(one, draw).exists():
            ids = open_record(record_path(one, draw))["label_id"].values
            found |= set(ids[ids >= 0].tolist())
    return found


def predictions(stage: FitStage, source: Any, record: Any) -> dict[str, np.ndarray]:
    """The frozen predictions of a record: graded, and the baseline that needs no attention."""
    readout = stage.readout
    seen, hidden = readout.observations(source, fitted_to=True), readout.observations(record)
    baseline = baseline_predictions(seen, hidden)[0]
    return {"graded": readout.predict_proba(hidden), AGAINST: baseline["match_log_count"]}


Frozen = dict[tuple[str, str], LabelWords]


def effects(stage: FitStage, source: Any, known: Any | None, vectors: Mapping[int, np.ndarray]) -> Frozen:
    """Effects of label words for every prediction, by both ways; no target is seen."""
    ways: list[tuple[str, Any, Mapping[int, np.ndarray] | None, str]] = [(ALIKE, source, vectors, "words")]
    if known is not None:
        ways.append((SAME, known, None, "contexts"))
    found: Frozen = {}
    for way, record, given, leave in ways:
        data, ids = Observations.from_record(record), record["label_id"].values
        for name, made in predictions(stage, source, record).items():
            found[name, way] = fit_label_words(data, made, ids, given, leave=leave)
    return found


def shuffled(words: LabelWords) -> LabelWords:
    """The same effects on other words: a null."""
    order = np.random.default_rng(0).permutation(len(words.ids))
    return LabelWords(words.ids, words.effects[order], words.centre, words.direction, words.spread, words.errors)


def scores(
    stage: FitStage, source: Any, record: Any, frozen: Frozen, vectors: Mapping[int, np.ndarray]
) -> dict[str, np.ndarray]:
    """KL(model || prediction) of every prompt of one draw, by prediction."""
    plain = predictions(stage, source, record)
    data, ids = Observations.from_record(record), record["label_id"].values
    made = dict(plain)
    for (name, way), words in frozen.items():
        made[f"{name} + {way}"] = words.predict(plain[name], data.label_mask, ids, vectors)
        if way == SAME:
            made[f"{name} + {SHUFFLED}"] = shuffled(words).predict(plain[name], data.label_mask, ids, vectors)
    made[FREQUENCY] = label_frequency(data)
    heads = tuple(stage.readers.readers[:CEILING_HEADS] or stage.readout.usable_heads_)
    made[CEILING] = ceiling_prediction(make_link("power"), Observations.from_record(source), data, heads)
    return {name: prompt_errors(data.label_probability, one, data.label_mask)["kl"] for name, one in made.items()}


def pooled(draws: list[tuple[dict[str, np.ndarray], np.ndarray]]) -> dict[str, Any]:
    """Means, paired differences and shares of the ceiling's skill over all draws; clusters are contexts of a draw."""
    contexts = np.concatenate([np.char.add(f"{number}-", c.astype(str)) for number, (_, c) in enumerate(draws)])
    kl = {name: np.concatenate([one[name] for one, _ in draws]) for name in draws[0][0]}
    table = {}
    for name, values in kl.items():
        columns = np.stack([kl[FREQUENCY], values, kl[CEILING]], axis=1)
        share = cluster_bootstrap(columns, contexts, lambda s: (s[:, 0] - s[:, 1]) / (s[:, 0] - s[:, 2]))
        table[name] = {"kl": cluster_mean(values, contexts).to_dict(), "share of the ceiling's skill": share.to_dict()}
        for other in (AGAINST, "graded", f"{AGAINST} + {SAME}", f"{AGAINST} + {ALIKE}"):
            if other in kl:
                table[name][f"minus {other}"] = cluster_difference(values, kl[other], contexts).to_dict()
    return table


def main() -> None:
    """Freeze every source with its label words, then score every target."""
    result: dict[str, Any] = {"command": "python fits/transfer_labels.py", "frozen": {}, "pairs": {}}
    frozen, opened = {}, {}
    vectors = {
        name: label_vectors(name) for name in dict.fromkeys(RECORDED[source].model for source, _ in PAIRS.values())
    }
    for source in dict.fromkeys(source for source, _ in PAIRS.values()):
        record = open_record(record_path(source, 0)).load()
        stage = fit_stage(record, match="graded", bootstrap=0)
        known = open_record(record_path(KNOWN[source], 0)).load() if source in KNOWN else None
        words = effects(stage, record, known, vectors[RECORDED[source].model])
        opened[source], frozen[source] = record, (stage, words)
        result["frozen"][source] = {" + ".join(key): one.summary() for key, one in words.items()}
        write(result)
    for pair, (source, target) in PAIRS.items():
        stage, words = frozen[source]
        model = RECORDED[source].model
        met = set(words["graded", SAME].ids.tolist()) if source in KNOWN else set()
        draws, rows = [], {}
        for draw in [draw for draw in range(FRESH + 1) if record_path(target, draw).exists()]:
            record = open_record(record_path(target, draw)).load()
            ids = record["label_id"].values
            # names as labels occur in no prompt of a source: only the first way is open
            use = {key: one for key, one in words.items() if key[1] != SAME or met & set(ids.ravel().tolist())}
            kl = scores(stage, opened[source], record, use, vectors[model])
            draws.append((kl, Observations.from_record(record).context))
            rows[str(draw)] = {name: float(values.mean()) for name, values in kl.items()}
        result["pairs"][pair] = {
            "model": model,
            "draws": rows,
            "pooled": pooled(draws[:DRAWS]),
            "fresh draw": pooled(draws[FRESH:]) if len(draws) > FRESH else None,
        }
        write(result)
        print(pair, {name: round(row["kl"]["value"], 3) for name, row in result["pairs"][pair]["pooled"].items()})


def write(result: dict[str, Any]) -> None:
    """Write the committed result."""
    (HERE / "transfer_labels.json").write_text(json.dumps(rounded(result), allow_nan=False, indent=1) + "\n")


if __name__ == "__main__":
    main()
