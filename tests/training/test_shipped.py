"""The models in the package: small, quick to load, readable, and able to do their task."""

import time

import pytest

from readout.models import check, load_model
from readout.models.sources import ASSETS, known_names
from readout.pipeline import default_pair
from readout.prompts import PromptDistribution, tokenize
from readout.records import ExtractionOptions, extract
from readout.training.growth import readout_error
from readout.training.tokenizer import vocabulary

SHIPPED = ["tiny", *(f"tiny:{seed}" for seed in range(5))]


def test_the_shipped_files_are_small():
    sizes = {name: sum(file.stat().st_size for file in (ASSETS / name.replace(":", "")).iterdir()) for name in SHIPPED}
    assert sizes["tiny"] < 2e6
    assert sum(sizes.values()) < 8e6
    assert {"tiny", "tiny0", "tiny4"} <= set(known_names())


def test_the_built_in_model_loads_in_two_seconds_and_passes_its_self_test():
    load_model("tiny", device="cpu")  # imports
    started = time.perf_counter()
    model = load_model("tiny", device="cpu")
    assert time.perf_counter() - started < 2
    assert model.tokenizer.get_vocab() == vocabulary()
    assert "ok" in check(model).summary()


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_model_names_the_right_label(name):
    model = load_model(name, device="cpu", self_test=False)
    distribution = PromptDistribution("synthetic", classes=4, shots=3, size=20, queries=2, seed=77)
    record = extract(model, distribution, options=ExtractionOptions(effects=False))
    best = record["label_logprob"].values.argmax(1)
    assert (best == record["query_label"].values).mean() >= 0.95


def test_the_readout_of_the_built_in_model_holds_on_more_classes_and_unbalanced_counts():
    model = load_model("tiny", device="cpu", self_test=False)
    options = ExtractionOptions(effects=False)
    found = readout_error(*(extract(model, each, options=options) for each in default_pair("synthetic")))
    assert found["agreement"] >= 0.97
    assert found["readout_kl"] <= min(0.06, found["frequency_kl"] / 10)
    reached = found["frequency_kl"] - found["readout_kl"]
    assert reached >= 0.8 * (found["frequency_kl"] - found["ceiling_kl"])


def test_prompts_of_the_task_are_readable_and_one_token_a_word():
    model = load_model("tiny", device="cpu", self_test=False)
    prompt = PromptDistribution("synthetic", size=1).prompts()[0]
    assert len(tokenize([prompt], model.tokenizer)[0].token_ids) == 1 + len(prompt.text.split())
