"""Similarities of demonstrations and queries, against values computed another way."""

import json
from itertools import pairwise

import numpy as np
import pytest
import xarray as xr
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from readout.errors import FitError, RecordError
from readout.fitting import Observations, SoftmaxReadout
from readout.matching import Binary, EncoderCosine, Given, ResidualCosine, Similarity, class_match
from readout.matching.logistic import fit_logistic
from readout.prompts import PromptDistribution
from readout.records import extract
from readout.records.schema import select_contexts
from readout.validation.choose_match import choose_match

CONTEXTS, QUERIES, K, WIDTH, CLASSES = 40, 2, 6, 8, 3


def record(noise: float = 0.8, seed: int = 0, shift: float = 0.0) -> xr.Dataset:
    """Contexts whose residual streams hold their class in one direction a class, and attention that follows them."""
    rng = np.random.default_rng(seed)
    directions = np.eye(CLASSES, WIDTH)
    shown = rng.integers(0, CLASSES, (CONTEXTS, K))
    query = rng.integers(0, CLASSES, CONTEXTS * QUERIES)
    row = np.arange(CONTEXTS * QUERIES) // QUERIES
    keys = directions[shown] + noise * rng.normal(size=(CONTEXTS, K, WIDTH)) + 3.0 + shift
    queries = directions[query] + noise * rng.normal(size=(len(query), WIDTH)) - 2.0 + shift
    cosine = np.einsum("nkw,nw->nk", unit(keys - 3.0 - shift)[row], unit(queries + 2.0 - shift))
    score = np.exp(-1.0 + 3.0 * cosine)
    attention = (score / (1 + score.sum(1, keepdims=True)))[:, None]
    mass = np.stack([np.where(shown[row] == c, attention[:, 0], 0).sum(1) for c in range(CLASSES)], 1) + 1e-3
    there = np.stack([(shown[row] == c).any(1) for c in range(CLASSES)], 1)
    share = np.where(there, mass, np.nan)
    return xr.Dataset(
        {
            "attention": (("prompt", "head", "demonstration"), attention),
            "label_logprob": (("prompt", "label"), np.log(share / np.nansum(share, 1, keepdims=True))),
            "demonstration_class": (("prompt", "demonstration"), shown[row]),
            "demonstration_label": (("prompt", "demonstration"), shown[row]),
            "query_class": (("prompt",), query),
            "query_label": (("prompt",), np.where(there[np.arange(len(query)), query], query, -1)),
            "context": (("prompt",), row),
            "demonstration_residual": (("context_row", "demonstration", "residual_layer", "width"), keys[:, :, None]),
            "query_residual": (("prompt", "residual_layer", "width"), queries[:, None]),
        },
        coords={"layer": ("head", [5]), "head_in_layer": ("head", [1]), "residual_layer": [4]},
    )


def unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


@pytest.fixture(scope="module")
def tiny_record(tiny_model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("record") / "record.zarr"
    return extract(tiny_model, PromptDistribution(shots=((1, 1), (1, 2)), size=4, seed=5), folder)


def test_the_binary_match_is_the_class_match():
    data = record()
    same = data["demonstration_class"].values == data["query_class"].values[:, None]
    assert (Binary().fit(data)(data) == same).all()


def test_the_residual_cosine_centres_with_two_means_of_the_fitting_record():
    data, other = record(), record(seed=1)
    fitted = ResidualCosine(4, map="linear", own=0.0).fit(data)
    keys, queries = data["demonstration_residual"].values[:, :, 0], data["query_residual"].values[:, 0]
    row = other["context"].values
    centred = unit(other["demonstration_residual"].values[:, :, 0] - keys.mean((0, 1)))[row]
    expected = np.einsum("nkw,nw->nk", centred, unit(other["query_residual"].values[:, 0] - queries.mean(0)))
    assert fitted(other) == pytest.approx((1 + expected) / 2)


def test_the_prompts_own_mean_takes_out_what_moves_all_texts_of_a_task():
    fitted = ResidualCosine(4, map="linear", own=1.0).fit(record())
    here, there = fitted.cosine(record(seed=1)), fitted.cosine(record(seed=1, shift=50.0))
    assert there == pytest.approx(here, abs=1e-9)


def test_the_logistic_map_is_scikit_learns_without_a_penalty():
    data = record()
    cosine = ResidualCosine(4).fit(data).cosine(data)
    ours = fit_logistic(cosine.reshape(-1, 1), class_match(data).ravel())
    theirs = LogisticRegression(C=np.inf, tol=1e-10).fit(cosine.reshape(-1, 1), class_match(data).ravel())
    assert ours == pytest.approx([theirs.intercept_[0], theirs.coef_[0, 0]], rel=2e-3)
    assert ResidualCosine(4).fit(data)(data) == pytest.approx(expit(ours[0] + ours[1] * cosine))


def test_a_similarity_is_learned_from_contexts_that_are_kept_whole():
    data = record()
    kept = select_contexts(data, data["context"].values < 10)
    assert kept.sizes["context_row"] == 10
    assert kept.sizes["prompt"] == 10 * QUERIES
    with pytest.raises(RecordError, match="all prompts of a context or none"):
        select_contexts(data, np.arange(CONTEXTS * QUERIES) < 5)


def test_the_encoders_cosine_needs_texts_alone(tiny_record):
    def encode(texts):
        return np.array([[len(text), text.count("a") + 1.0, 1.0] for text in texts])

    fitted = EncoderCosine(encode=encode).fit(tiny_record)
    similarity = fitted(tiny_record)
    there = tiny_record["demonstration_label"].values >= 0
    assert similarity.shape == there.shape
    assert (similarity[~there] == 0).all()
    assert ((similarity[there] > 0) & (similarity[there] < 1)).all()


def test_a_users_function_is_kept_by_name_and_refused_where_it_is_lost():
    data = record()
    given = Given(lambda one: np.full(one["demonstration_class"].shape, 0.3), "always .3")
    assert (given(data) == 0.3).all()
    read = Similarity.from_dict(given.to_dict())
    with pytest.raises(FitError, match=r"'always \.3' was given as a function, which a file lacks"):
        read(data)
    with pytest.raises(FitError, match=r"expected \(80, 6\) numbers from 'a function', got shape \(2,\)"):
        Given(lambda one: np.zeros(2))(data)


@pytest.mark.parametrize("similarity", [Binary(), ResidualCosine(4), ResidualCosine(4, map="linear", own=0.25)])
def test_a_fitted_similarity_comes_back_from_json(similarity):
    data, other = record(), record(seed=1)
    fitted = similarity.fit(data)
    read = Similarity.from_dict(json.loads(json.dumps(fitted.to_dict())))
    assert read(other) == pytest.approx(fitted(other), abs=1e-6)


def test_a_readout_keeps_its_similarity_in_its_file(tmp_path):
    data, other = record(), record(seed=1)
    readout = SoftmaxReadout(match=ResidualCosine(4).fit(data)).fit(data)
    readout.save(tmp_path / "fit.json")
    read = SoftmaxReadout.load(tmp_path / "fit.json")
    assert read.predict_mass(other) == pytest.approx(readout.predict_mass(other), abs=1e-6)


def test_the_residual_stream_at_the_labels_is_tried_where_the_record_keeps_it():
    data = record(noise=0.6)
    moved = data.assign(
        label_residual=data["demonstration_residual"],
        demonstration_residual=data["demonstration_residual"].roll(demonstration=1),
    )
    observed = Observations.from_record(moved)
    choice = choose_match(moved, observed, observed.heads)
    assert choice.similarity.describe() == "residual cosine entering layer 4, logistic map, at the label"
    at_label = ResidualCosine(4, place="label").fit(moved)
    assert at_label(moved) == pytest.approx(ResidualCosine(4).fit(data)(data))
    assert Similarity.from_dict(at_label.to_dict())(moved) == pytest.approx(at_label(moved), abs=1e-6)


def test_a_file_of_before_places_could_be_chosen_is_read_as_the_token_before_the_label():
    data = record()
    kept = ResidualCosine(4).fit(data).to_dict()
    del kept["place"]
    assert Similarity.from_dict(kept)(data) == pytest.approx(ResidualCosine(4).fit(data)(data), abs=1e-6)


def test_a_blind_pass_has_no_residual_stream_at_labels():
    with pytest.raises(FitError, match="keeps no residual stream at labels"):
        ResidualCosine(4, blind=True, place="label")
    with pytest.raises(FitError, match="place: expected one of demonstration, label, got 'query'"):
        ResidualCosine(4, place="query")


@pytest.mark.parametrize(
    ("similarity", "message"),
    [
        (ResidualCosine(3), "entering layer 3 is needed and the record keeps layers 4; .* --residual-layers 3"),
        (ResidualCosine(4, blind=True), "lacks blind_demonstration_residual, blind_query_residual; .* --blind"),
    ],
)
def test_a_residual_stream_that_is_not_kept_is_asked_for(similarity, message):
    with pytest.raises(FitError, match=message):
        similarity.fit(record())


def test_a_similarity_without_means_wants_to_be_fitted():
    with pytest.raises(FitError, match="fit it to the fitting record first"):
        ResidualCosine(4)(record())


def test_demonstrations_of_one_class_teach_no_similarity():
    data = record().assign(query_class=("prompt", np.full(CONTEXTS * QUERIES, 9)))
    with pytest.raises(FitError, match="expected both matching and other demonstrations"):
        ResidualCosine(4).fit(data)


def test_cross_validation_takes_the_graded_match_where_attention_follows_it():
    data = record(noise=0.6)
    observed = Observations.from_record(data)
    choice = choose_match(data, observed, observed.heads)
    assert choice.similarity.describe() == "residual cosine entering layer 4, logistic map"
    kl = {one.match: one.kl.value for one in choice.candidates}
    assert min(kl, key=kl.__getitem__) == choice.similarity.describe()
    ordered = [float(line.split("KL ")[1].split(" ")[0]) for line in choice.summary().splitlines()[1:]]
    assert all(one <= after for one, after in pairwise(ordered))


def test_a_graded_match_that_was_asked_for_says_so_and_is_taken_though_binary_errs_less():
    data = record()
    observed = Observations.from_record(data)
    rng = np.random.default_rng(0)
    noise = data.assign(query_residual=rng.normal(size=data["query_residual"].shape) + 0 * data["query_residual"])
    choice = choose_match(noise, observed, observed.heads, "graded")
    kl = {one.match: one.kl.value for one in choice.candidates}
    assert kl["binary (same class)"] < kl[choice.similarity.describe()]
    assert choice.rule.startswith("as asked, the graded one of the smallest error, ")
    assert choose_match(noise, observed, observed.heads, "binary").rule == "as asked"


def test_a_similarity_that_is_the_same_everywhere_is_no_candidate():
    data = record()
    flat = data.assign(
        demonstration_residual=data["demonstration_residual"] * 0 + 1, query_residual=data["query_residual"] * 0
    )
    observed = Observations.from_record(flat)
    assert isinstance(choose_match(flat, observed, observed.heads).similarity, Binary)
    with pytest.raises(FitError, match="nothing to grade by"):
        choose_match(flat, observed, observed.heads, "graded")


def test_layers_that_a_reader_has_written_to_are_not_tried():
    data = record().assign_coords(residual_layer=[6])
    observed = Observations.from_record(data)
    choice = choose_match(data, observed, observed.heads)
    assert isinstance(choice.similarity, Binary)
    assert not choice.candidates
