"""A reader's query-key form of class means, against the model's own attention and means taken by hand."""

import numpy as np
import pytest

from readout.errors import FitError
from readout.fitting import Observations
from readout.matching import KeyQueryMeans, Similarity
from readout.prompts import PromptDistribution
from readout.records import ExtractionOptions, extract

LAYER, HEAD = 1, 2


@pytest.fixture(scope="module")
def kept(tiny_model):
    options = ExtractionOptions(residual_layers=(LAYER,), label_residuals=True)
    return extract(
        tiny_model,
        PromptDistribution(class_pool=("animals", "foods", "tools"), shots=((1, 1), (1, 2)), size=8, seed=5),
        None,
        options,
    )


@pytest.fixture(scope="module")
def similarity(tiny_model):
    return KeyQueryMeans("tiny", LAYER, HEAD, loaded=tiny_model)


def test_scores_of_true_queries_and_keys_differ_as_the_logarithms_of_attention_do(kept, similarity):
    queries, keys = similarity.vectors(kept)
    row = np.arange(len(queries)) // (len(queries) // len(keys))
    score = similarity.turned_scores(kept, queries, keys[row])
    place = [f"L{LAYER}H{HEAD}" == head for head in Observations.from_record(kept).heads].index(True)
    seen = np.log(kept["attention"].values[:, place, :2])
    assert score[:, 1] - score[:, 0] == pytest.approx(seen[:, 1] - seen[:, 0], abs=1e-4)


def test_class_means_are_those_of_the_other_contexts(kept, similarity):
    queries, keys = similarity.vectors(kept)
    prompts = len(queries)
    row = np.arange(prompts) // (prompts // len(keys))
    shown, asked = kept["demonstration_class"].values, kept["query_class"].values
    number, i = 3, 1
    others = [n for n in range(prompts) if row[n] != row[number] and asked[n] == asked[number]]
    pairs = [
        (c, j)
        for c in range(len(keys))
        for j in range(shown.shape[1])
        if c != row[number] and shown[row == c][0, j] == shown[number, i]
    ]
    assert others
    assert pairs
    query = np.mean([queries[n] for n in others], axis=0)
    key = np.mean([keys[c, j] for c, j in pairs], axis=0)
    one = kept.isel(prompt=[number])
    by_hand = similarity.turned_scores(one, query[None], np.broadcast_to(key, (1, shown.shape[1], len(key))))[0, i]
    assert similarity.scores(kept)[number, i] == pytest.approx(by_hand)


def test_the_form_is_fitted_kept_in_a_file_and_lies_in_0_to_1(kept, similarity):
    fitted = similarity.fit(kept)
    s, there = fitted(kept), kept["demonstration_label"].values >= 0
    assert ((s[there] > 0) & (s[there] < 1)).all()
    assert (s[~there] == 0).all()
    assert Similarity.from_dict(fitted.to_dict()).to_dict() == fitted.to_dict()
    with pytest.raises(FitError, match="fit them to the fitting record first"):
        similarity(kept)


def test_residual_streams_at_the_labels_are_asked_for(kept, similarity):
    with pytest.raises(FitError, match="--residual-layers 1 --label-residuals"):
        similarity.fit(kept.drop_vars("label_residual"))
