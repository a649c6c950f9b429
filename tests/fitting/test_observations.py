"""Observations: what is taken in, and every refusal with what came."""

import subprocess
import sys

import numpy as np
import pytest
import xarray as xr

from readout.errors import FitError, RecordError
from readout.fitting import Observations, draw_observations


def arrays(**changed):
    values = {
        "attention": np.array([[[0.2, 0.3, 0.1]], [[0.1, 0.2, 0.0]]]),
        "match": np.array([[1, 0, 1], [0, 1, 0]]),
        "label": np.array([[0, 1, 0], [0, 1, -1]]),
        "context": np.array(["b", "a"]),
        "label_probability": np.array([[0.2, 0.2], [0.1, 0.3]]),
    }
    return values | changed


def record():
    nan = np.nan
    return xr.Dataset(
        {
            "attention": (
                ("prompt", "head", "demonstration"),
                np.array([[[0.2, 0.3], [0.1, 0.1]], [[0.4, nan], [0.2, nan]]], dtype=np.float32),
            ),
            "label_logprob": (("prompt", "label"), np.log(np.array([[0.2, 0.4], [0.5, nan]]))),
            "demonstration_class": (("prompt", "demonstration"), np.array([[3, 4], [4, -1]], dtype=np.int32)),
            "demonstration_label": (("prompt", "demonstration"), np.array([[1, 0], [0, -1]], dtype=np.int32)),
            "query_class": (("prompt",), np.array([3, 4], dtype=np.int32)),
            "query_label": (("prompt",), np.array([1, 0], dtype=np.int32)),
            "context": (("prompt",), np.array([0, 1], dtype=np.int32)),
            "similarity": (("prompt", "demonstration"), np.array([[0.9, 0.2], [0.7, nan]])),
        },
        coords={"layer": ("head", np.array([0, 5])), "head_in_layer": ("head", np.array([2, 1]))},
    )


def test_arrays_give_names_masks_and_probabilities_that_sum_to_one():
    observations = Observations.from_arrays(**arrays())
    assert observations.heads == ("H0",)
    assert observations.mask.tolist() == [[True, True, True], [True, True, False]]
    assert observations.context.tolist() == [1, 0]
    assert observations.label_probability == pytest.approx(np.array([[0.5, 0.5], [0.25, 0.75]]))
    assert (observations.n_prompts, observations.n_contexts) == (2, 2)
    assert "2 prompts in 2 contexts, 1 head\n2 to 3 demonstrations, 2 labels a prompt" in observations.summary()


def test_a_record_gives_binary_matches_head_names_and_vocabulary_mass():
    observations = Observations.from_record(record())
    assert observations.heads == ("L0H2", "L5H1")
    assert observations.match.tolist() == [[1, 0], [1, 0]]
    assert observations.mask.tolist() == [[True, True], [True, False]]
    assert observations.attention[1, :, 1].tolist() == [0, 0]
    assert observations.label_mask.tolist() == [[True, True], [True, False]]
    assert observations.label_probability == pytest.approx(np.array([[1 / 3, 2 / 3], [1, 0]]))
    assert observations.vocabulary_mass == pytest.approx([0.6, 0.5])


@pytest.mark.parametrize("match", ["similarity", record()["similarity"].values, lambda data: data["similarity"].values])
def test_a_graded_match_comes_by_name_as_an_array_or_from_a_function(match):
    observations = Observations.from_record(record(), match=match)
    assert observations.match.tolist() == [[0.9, 0.2], [0.7, 0.0]]


def test_heads_and_prompts_can_be_selected():
    observations = Observations.from_record(record()).select_heads(["L5H1"]).select_prompts(np.array([False, True]))
    assert observations.attention.tolist() == [[[pytest.approx(0.2), 0.0]]]
    assert observations.heads == ("L5H1",)


def test_prompts_without_attention_can_be_given_for_prediction():
    assert Observations.from_arrays(**arrays(attention=None)).heads == ()


def test_a_head_that_is_missing_throughout_counts_as_not_measured():
    attention = np.concatenate([arrays()["attention"], np.full((2, 1, 3), np.nan)], axis=1)
    assert Observations.from_arrays(**arrays(attention=attention)).measured.tolist() == [True, False]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"attention": np.zeros((2, 3))}, r"attention: expected 3 axes .* got shape \(2, 3\)"),
        ({"attention": np.zeros((2, 1, 4))}, r"attention \(2, 1, 4\), match \(2, 3\)"),
        ({"match": np.zeros(3)}, "match: expected 2 axes"),
        ({"attention": -arrays()["attention"]}, "at least 0, got -0.3"),
        ({"attention": 3 * arrays()["attention"]}, "sum to at most 1 .* got 1.8"),
        (
            {"attention": np.where(arrays()["attention"] == 0.3, np.nan, arrays()["attention"])},
            "NaN at prompt 0, head H0, demonstration 1",
        ),
        ({"match": 2 * arrays()["match"]}, r"match: expected numbers in \[0, 1\]"),
        ({"label": np.array([[0, 1, 2], [0, 1, -1]])}, r"index in 0..1 .* got 0..2"),
        ({"label": np.full((2, 3), -1)}, "prompt 0 has no demonstration"),
        ({"context": np.zeros(3)}, r"context: expected shape \(2,\)"),
        ({"heads": ["a", "b"]}, "expected 1 different name,"),
        ({"label_probability": np.array([[0.0, 0.0], [1, 1]])}, "not all 0"),
        ({"label_probability": np.array([[-0.1, 0.2], [1, 1]])}, "at least 0"),
        ({"label_probability": np.ones((3, 2))}, r"label_probability \(3, 2\)"),
        ({"label_mask": np.array([[True, False], [True, True]])}, "not among its prompt's labels"),
        ({"label": np.array([[0, 1, 0.5], [0, 1, -1]])}, "label: expected whole numbers .* got 0.5"),
        ({"label": np.array([["a", "b", "a"]] * 2)}, "label: expected whole numbers .* got 'a'"),
        ({"query_label": np.array([0, np.nan])}, "query_label: expected whole numbers .* got nan"),
        ({"query_label": np.array([0, 2])}, r"query_label: expected an index in 0..1, or -1 where unknown, got 2"),
        ({"query_label": np.array([-2, 0])}, "query_label: .* got -2"),
        (
            {"label": np.array([[0, 0, 0], [0, 1, -1]]), "query_label": np.array([1, 0]), "label_probability": None},
            "query_label: a right answer is not among its prompt's labels",
        ),
        ({"context": np.array([0, np.nan])}, "context: expected a name for every prompt, got NaN"),
        ({"context": np.array(["a", None], dtype=object)}, "context: expected a name for every prompt"),
        ({"context": np.array(["a", 1], dtype=object)}, "context: expected names of one kind"),
        ({"label_effect": np.full((2, 1, 2), np.nan)}, "label_effect: NaN at a prompt's label"),
        ({"label_effect": np.zeros((2, 2, 2))}, r"label_effect: expected shape \(2, 1, 2\)"),
    ],
)
def test_bad_arrays_are_refused_with_what_came(changed, message):
    with pytest.raises(FitError, match=message):
        Observations.from_arrays(**arrays(**changed))


def test_a_record_without_a_variable_is_refused_by_name():
    with pytest.raises(FitError, match="query_class"):
        Observations.from_record(record().drop_vars("query_class"))
    with pytest.raises(FitError, match="no variable 'likeness'"):
        Observations.from_record(record(), match="likeness")


@pytest.mark.parametrize(
    ("name", "place", "value"),
    [
        ("query_class", (1,), -1),
        ("demonstration_class", (0, 1), -1),
        ("label_logprob", (0, 1), np.nan),
        ("label_logprob", (1, 0), -np.inf),
        ("label_effect", (0, 1, 1), np.nan),
        ("label_effect", slice(None), np.nan),
    ],
)
def test_a_record_without_a_value_where_it_must_have_one_is_called_damaged(name, place, value):
    damaged = record().assign(label_effect=(("prompt", "head", "label"), np.zeros((2, 2, 2), dtype=np.float32)))
    Observations.from_record(damaged)
    damaged[name].values[place] = value
    with pytest.raises(RecordError, match=f"{name} has no value .* damaged: extract it again"):
        Observations.from_record(damaged)


def test_a_label_that_is_never_shown_must_have_a_probability_too():
    damaged = record().assign(label_id=(("prompt", "label"), np.array([[5, 6], [7, 8]])))
    with pytest.raises(RecordError, match=r"label_logprob has no value .* \(prompt 1, 1 of 2 prompts\)"):
        Observations.from_record(damaged)


def test_what_is_no_record_is_refused():
    with pytest.raises(FitError, match=r"expected an xarray.Dataset .* got str"):
        Observations.from_record("words.zarr")
    with pytest.raises(FitError, match="variables context, layer are missing"):
        Observations.from_record(record().drop_vars(["context", "layer"]))


def test_an_unknown_head_is_refused_by_name():
    with pytest.raises(FitError, match="L9H9 not among the 1 head here"):
        draw_observations(-1.0, 1.0, contexts=3).select_heads(["L9H9"])


def test_fitting_and_validation_import_without_torch():
    code = (
        "import sys, readout.statistics, readout.fitting, readout.fitting.lmfit_bridge, readout.validation; "
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
