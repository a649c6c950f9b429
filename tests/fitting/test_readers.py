"""Readers: found where they are, none where there are none."""

import json
from dataclasses import replace

import numpy as np
import pytest

from readout.errors import FitError
from readout.fitting import (
    FEWEST_CONTEXTS,
    ReaderTable,
    choose_readers,
    draw_observations,
    permuted_match,
    split_contexts,
)
from readout.fitting.permutations import permutation_draws
from readout.fitting.readers import attention_effects, copying, gap_p_values, gap_weights


@pytest.fixture(scope="module")
def model():
    """Sixteen heads: two readers (the second stronger), one anti-copier, one that only attends, the rest idle."""
    base = np.full(16, -3.0)
    match = np.array([1.5, 2.5, 2.0, 1.5] + [0.0] * 12)
    slope = np.array([2.0, 2.0, -2.0, 0.0] + [2.0] * 12)
    return draw_observations(base, match, contexts=40, copy_slope=slope, seed=1)


@pytest.fixture(scope="module")
def table(model):
    return choose_readers(model, permutations=500)


def test_heads_are_sorted_into_their_kinds(table):
    assert table.readers == ("L0H1", "L0H0")
    assert table.of_kind("anti-copying") == ("L0H2",)
    assert table.of_kind("attends") == ("L0H3",)
    assert len(table.of_kind("other")) == 12


def test_effects_are_those_of_the_half_that_was_not_chosen_on(model, table):
    rest = model.select_prompts(~split_contexts(model.context, 0))
    by_hand = []
    for prompt in range(rest.n_prompts):
        weights, m = rest.attention[prompt, 1], rest.match[prompt] == 1
        by_hand.append(weights[m].mean() - weights[~m].mean())
    row = table["L0H1"]
    assert row.gap.value == pytest.approx(np.mean(by_hand))
    assert row.gap.clusters == 20
    assert row.matching.value - row.others.value == pytest.approx(row.gap.value)
    assert row.copy_slope.value == pytest.approx(2.0, abs=0.1)


def test_the_copy_slope_is_least_squares_on_centred_labels(model):
    slopes, correlations = copying(model)
    mass = np.stack([(model.attention[:, 0] * (model.label == j)).sum(axis=1) for j in (0, 1)], axis=1)
    x, y = (v - v.mean(axis=1, keepdims=True) for v in (mass, model.label_effect[:, 0]))
    assert slopes[0].value == pytest.approx(np.linalg.lstsq(x.reshape(-1, 1), y.ravel(), rcond=None)[0][0])
    assert correlations[0] == pytest.approx(np.corrcoef(x.ravel(), y.ravel())[0, 1])


def test_a_single_head_has_the_p_value_of_a_loop_over_permutations():
    drawn = draw_observations(-2.0, 0.2, contexts=6, queries=3, counts=((2, 3),), concentration=8, seed=4)
    rng = np.random.default_rng(0)

    def t(match):
        gaps = []
        for a, m in zip(drawn.attention[:, 0], match, strict=True):
            gaps.append(a[m == 1].mean() - a[m == 0].mean())
        means = np.array(gaps).reshape(6, 3).mean(axis=1)
        return means.mean() / means.std(ddof=1)

    reach = 0
    for _ in range(2000):
        orders = np.repeat([rng.permutation(5) for _ in range(6)], 3, axis=0)
        reach += t(np.take_along_axis(drawn.match, orders, axis=1)) >= t(drawn.match)
    assert gap_p_values(drawn, permutations=4000)[0] == pytest.approx(reach / 2000, abs=0.035)


def test_dead_and_unmeasured_heads_are_no_obstacle(model):
    attention = model.attention.copy()
    attention[:, 5], attention[:, 6] = 0, np.nan
    table = choose_readers(replace(model, attention=attention), permutations=200)
    assert table.readers == ("L0H1", "L0H0")
    assert np.isnan(table["L0H5"].p_value)
    assert {table["L0H5"].kind, table["L0H6"].kind} == {"other"}


@pytest.mark.slow
def test_null_data_give_no_reader_in_at_least_95_of_100_draws():
    found = 0
    for seed in range(100):
        drawn = draw_observations(
            np.linspace(-5, 0, 30), np.full(30, 2.0), contexts=32, copy_slope=2.0, concentration=10, seed=seed
        )
        null = drawn.with_match(permuted_match(drawn, seed))
        found += bool(choose_readers(null, permutations=300, seed=seed).readers)
    assert found <= 5


@pytest.mark.slow
def test_heads_that_prefer_a_label_word_are_no_readers():
    # Attention that follows labels, not classes: both of a label's demonstrations move together.
    found = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        drawn = draw_observations(np.full(20, -2.0), 0 * np.arange(20.0), contexts=32, copy_slope=2.0, seed=seed)
        liked = np.exp(rng.normal(0, 1, (32, 20, 2)))[np.repeat(np.arange(32), 4)]
        attention = drawn.attention * np.take_along_axis(liked, drawn.label[:, None, :].repeat(20, 1), axis=2)
        attention /= np.maximum(attention.sum(axis=2, keepdims=True), 1)
        found += bool(choose_readers(replace(drawn, attention=attention), permutations=300, seed=seed).readers)
    assert found <= 3


def test_a_permutation_is_shared_by_a_contexts_prompts_and_keeps_counts():
    drawn = draw_observations(-1.0, 1.0, contexts=10, queries=3, counts=((2, 3), (1, 2)), seed=1)
    same = replace(drawn, match=np.repeat(drawn.match[::3], 3, axis=0))
    shuffled = permuted_match(same, seed=2)
    assert (shuffled.sum(axis=1) == same.match.sum(axis=1)).all()
    assert (shuffled[::3] == shuffled[1::3]).all()
    assert (shuffled != same.match).any()
    assert (shuffled[~same.mask] == 0).all()


def test_every_order_of_a_contexts_demonstrations_is_drawn_equally_often():
    mask = np.array([[True, False, True, True]])
    orders = permutation_draws(mask, np.zeros(1, dtype=int), 6000, np.random.default_rng(0))[:, 0]
    assert (orders[:, 1] == 1).all()
    _, counts = np.unique(orders, axis=0, return_counts=True)
    assert len(counts) == 6
    assert counts.min() > 850


def test_halves_split_contexts_not_prompts():
    context = np.repeat(np.arange(9), 4)
    first = split_contexts(context, seed=3)
    assert len(np.unique(context[first])) == 4
    assert not set(context[first]) & set(context[~first])
    assert (first == split_contexts(context, seed=3)).all()


def test_gap_weights_skip_prompts_with_one_kind_only():
    drawn = draw_observations(-1.0, 1.0, contexts=3, counts=((2, 2),))
    one = drawn.with_match(np.ones(drawn.match.shape))
    assert (gap_weights(one) == 0).all()
    assert np.isnan(attention_effects(one)[0][0].value)


def test_a_table_comes_back_from_json_and_prints_one_screen(table):
    again = ReaderTable.from_json(table.to_json())
    assert again.to_json() == table.to_json()
    assert again.readers == table.readers
    text = table.summary()
    assert "2 reader, 1 anti-copying, 1 attends, 12 other" in text
    assert "family-wise error by max-T over 500 permutations" in text
    assert json.loads(table.to_json())["contexts"] == [20, 20]
    with pytest.raises(KeyError):
        table["L9H9"]


def test_too_few_contexts_or_no_effects_are_refused(model):
    with pytest.raises(FitError, match="label_effect is needed"):
        choose_readers(replace(model, label_effect=None), permutations=10)
    with pytest.raises(FitError, match=f"at least {FEWEST_CONTEXTS} contexts, got 4"):
        choose_readers(model.select_prompts(model.context < 4), permutations=10)
    with pytest.raises(FitError, match="at least 6 contexts, got 1"):
        choose_readers(model.select_prompts(model.context < 1), permutations=10)
    with pytest.raises(FitError, match="no prompt has both"):
        choose_readers(model.with_match(np.zeros(model.match.shape)), permutations=10)
    few = model.with_match(np.where((model.context < 2)[:, None], model.match, 0.0))
    with pytest.raises(
        FitError, match="at least 3 contexts with both matching and other demonstrations in a half, got 2"
    ):
        gap_p_values(few, permutations=10)


def test_the_fewest_contexts_are_enough(model):
    table = choose_readers(model.select_prompts(model.context < FEWEST_CONTEXTS), permutations=20)
    assert table.contexts == (3, 3)


def test_a_damaged_reader_table_is_refused(table):
    for data, message in (
        ([], "reader table: expected a JSON object, got list"),
        ({}, "reader table: rows, alpha"),
        ({**table.to_dict(), "rows": [{"head": "L0H0"}]}, "reader table: gap missing"),
        ({**table.to_dict(), "contexts": [20]}, "reader table: a value is not of its kind"),
    ):
        with pytest.raises(FitError, match=message):
            ReaderTable.from_dict(data)
    with pytest.raises(FitError, match="reader table: cannot be read as JSON"):
        ReaderTable.from_json("{")


def test_settings_of_the_choice_out_of_range_are_refused(model):
    with pytest.raises(FitError, match="seed: expected a whole number of at least 0, got -1"):
        choose_readers(model, seed=-1)
    with pytest.raises(FitError, match="alpha: expected a number between 0 and 1"):
        choose_readers(model, alpha=1.5)
    with pytest.raises(FitError, match="permutations: expected a whole number of at least 1"):
        choose_readers(model, permutations=0)
