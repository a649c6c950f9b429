"""The match from L18H6's own query-key form of class means, beside binary and graded. Writes one JSON.

    python fits/transfer_pairs.py          extract the records first
    python fits/transfer_class_means.py

Heads and link are those that fits/transfer.py froze on the source for the graded match; the form's two constants and
the heads' are fitted there too. The target's class means are of its own residual streams, without its attention and its
label probabilities. Writes fits/transfer_class_means.json.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from main_job import HERE, rounded
from pages import load
from transfer import AGAINST, PAIRS, difference, pooled
from transfer_pairs import DRAWS, RECORDED, SMOLLM2, record_path

from readout.fitting import Observations, SoftmaxReadout
from readout.matching import Binary, KeyQueryMeans, ResidualCosine, Similarity
from readout.models import load_model
from readout.records import open_record
from readout.records.schema import Identity
from readout.validation import baseline_predictions, prompt_errors
from readout.validation.choose_match import choose_match

LAYER, HEAD = 18, 6
FORM = "class means"


def scores(readouts: dict[str, SoftmaxReadout], source: Any, target: Any) -> dict[str, np.ndarray]:
    """KL(model || prediction) of every prompt by match, beside match + log count."""
    made = {name: readout.predict_proba(target) for name, readout in readouts.items()}
    data = Observations.from_record(target)
    made[AGAINST] = baseline_predictions(Observations.from_record(source), data)[0]["match_log_count"]
    return {name: prompt_errors(data.label_probability, one, data.label_mask)["kl"] for name, one in made.items()}


def moves(readout: SoftmaxReadout, target: Any) -> dict[str, Any] | None:
    """The first head's constants on source and target; None where the target cannot tell them."""
    head = readout.usable_heads_[0]
    again = SoftmaxReadout(readout.link_.name, (head,)).fit(readout.observations(target))
    if not again.usable_heads_:
        return None
    pairs = ((readout.constants_[head][term], again.constants_[head][term]) for term in ("base", "match"))
    return dict(zip(("base", "match"), (difference(*pair) for pair in pairs), strict=True))


def main() -> None:
    """Fit on each source, score every draw of its targets, write."""
    model = load_model(SMOLLM2, device="cpu")
    frozen = load("transfer")["frozen"]
    result: dict[str, Any] = {"command": "python fits/transfer_class_means.py", "cross-validation": {}, "pairs": {}}
    for pair, (source, target) in PAIRS.items():
        if RECORDED[source].model != SMOLLM2:
            continue
        record = open_record(record_path(source, 0))
        kept = frozen[source]["graded"]
        form = KeyQueryMeans(SMOLLM2, LAYER, HEAD, loaded=model)
        graded = ResidualCosine(LAYER, "linear" if "linear map" in kept["match"] else "logistic")
        if source not in result["cross-validation"]:
            observed = Observations.from_record(record)
            choice = choose_match(record, observed, kept["heads"], "auto", [form, graded], folds="counts")
            result["cross-validation"][source] = [one.to_dict() for one in choice.candidates]
        matches: dict[str, Similarity] = {"binary": Binary(), "graded": graded, FORM: form}
        readouts = {
            name: SoftmaxReadout(kept["link"], kept["heads"], match=one.fit(record)).fit(record)
            for name, one in matches.items()
        }
        targets = [open_record(record_path(target, draw)) for draw in range(DRAWS)]
        draws = [(scores(readouts, record, one), one["context"].values) for one in targets]
        result["pairs"][pair] = {
            "source": Identity.of(record).prompts,
            "pooled": pooled(draws),
            "draws": [{name: float(kl.mean()) for name, kl in one.items()} for one, _ in draws],
            "constants": {name: [moves(readout, one) for one in targets] for name, readout in readouts.items()},
        }
        (HERE / "transfer_class_means.json").write_text(json.dumps(rounded(result), allow_nan=False, indent=1) + "\n")
        print(pair, result["pairs"][pair]["draws"], flush=True)


if __name__ == "__main__":
    main()
