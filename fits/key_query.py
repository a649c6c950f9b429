"""Constants of a reader from class-mean queries and keys, beside fitted ones, with their held-out errors.

    python fits/key_query.py

Needs the records of fits/transfer_pairs.py. Writes fits/key_query.json. Class means are not fitted to attention.
"""

import json

import numpy as np
from main_job import HERE, rounded
from transfer_pairs import DRAWS, RECORDED, record_path

from readout.circuit.key_query import key_query_constants
from readout.fitting import Observations, SoftmaxReadout, make_link
from readout.models import load_model
from readout.prompts import tokenize
from readout.records import open_record
from readout.statistics import cluster_difference, cluster_mean
from readout.validation import prompt_errors
from readout.validation.controls import masses, observed_mass
from readout.validation.metrics import attention_errors

READERS = {
    "words": ("other_words", 18, 6),
    "trec": ("other_trec", 18, 6),
    "synthetic": ("other_synthetic", 1, 2),
}
TERMS = ("base", "match")


def held_out(target: str, head: str, thetas: dict[str, list[float]]) -> dict:
    """R² of label masses and KL (share link) of each pair of constants, over all draws of a target."""
    draws = [
        Observations.from_record(open_record(record_path(target, draw))).select_heads([head]) for draw in range(DRAWS)
    ]
    contexts = np.concatenate([np.char.add(f"{n}-", one.context.astype(str)) for n, one in enumerate(draws)])
    index = np.unique(contexts, return_inverse=True)[1]
    mask = np.concatenate([one.label_mask for one in draws])
    seen = np.concatenate([observed_mass(one, (head,)) for one in draws])
    found, kl = {}, {}
    for name, theta in thetas.items():
        made = [masses(one, np.array([theta]), TERMS) for one in draws]
        found[name] = {"r2": attention_errors(seen, np.concatenate(made), mask, index, [head])[head]["r2"].to_dict()}
        errors = []
        for one, mass in zip(draws, made, strict=True):
            link = make_link("share").fit(mass, one.label_probability, one.label_mask)
            errors.append(
                prompt_errors(one.label_probability, link.predict(mass, one.label_mask), one.label_mask)["kl"]
            )
        kl[name] = np.concatenate(errors)
        found[name]["kl"] = cluster_mean(kl[name], index).to_dict()
    found["KL, class means minus fitted"] = cluster_difference(kl["class means"], kl["fitted"], index).to_dict()
    return found


def main() -> None:
    """Measure every reader and write."""
    result = {"command": "python fits/key_query.py", "readers": {}}
    models = {}
    for source, (target, layer, head) in READERS.items():
        own = RECORDED[source]
        model = models.setdefault(own.model, load_model(own.model, device="cpu"))
        prompts = tokenize(own.drawn(0).prompts(), model.tokenizer)
        made = key_query_constants(model, prompts, layer, head)
        fitted = SoftmaxReadout("share", [made.head]).fit(Observations.from_record(open_record(record_path(source, 0))))
        constants = fitted.constants_[made.head]
        thetas = {
            "class means": [made.base.value, made.match.value],
            "fitted": [constants[term].value for term in TERMS],
        }
        result["readers"][source] = {
            "model": own.model,
            "target": target,
            "class means": made.to_dict(),
            "fitted": {term: constants[term].to_dict() for term in TERMS},
            "held out": held_out(target, made.head, thetas),
        }
        (HERE / "key_query.json").write_text(json.dumps(rounded(result), indent=1) + "\n")
        print(source, made.summary(), {term: str(constants[term]) for term in TERMS}, flush=True)


if __name__ == "__main__":
    main()
