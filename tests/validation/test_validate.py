"""Validation on a held-out target, whose truth is known."""

import json
from dataclasses import replace

import numpy as np
import pytest
import xarray as xr

from readout.errors import FitError
from readout.fitting import Observations, SoftmaxReadout, draw_observations, label_mass
from readout.validation import (
    METRICS,
    Behaviour,
    Choice,
    ValidationReport,
    choose,
    measure_behaviour,
    prompt_errors,
    validate,
)
from readout.validation.controls import layer_of, random_head_predictions, random_head_sets

NAMES = [f"L{layer}H{head}" for layer in (3, 7) for head in range(5)]
READERS = ("L3H0", "L7H0")


def world(seed, counts, contexts=40):
    """Two readers that alone decide the labels, among ten heads of two layers."""
    match = np.array([2.0 if name in READERS else 0.0 for name in NAMES])
    drawn = draw_observations(
        np.full(10, -1.5), match, contexts=contexts, counts=counts, heads=NAMES, concentration=30, seed=seed
    )
    deciding = draw_observations(
        -1.5, 2.0, contexts=contexts, counts=counts, label_noise=0.3, concentration=30, seed=seed
    )
    assert (deciding.match == drawn.match).all()
    return replace(drawn, label_probability=deciding.label_probability)


@pytest.fixture(scope="module")
def fit():
    return world(1, ((2, 6), (4, 4), (1, 3)))


@pytest.fixture(scope="module")
def target():
    return world(2, ((1, 2, 4),))


@pytest.fixture(scope="module")
def readout(fit):
    return SoftmaxReadout(heads=READERS).fit(fit)


@pytest.fixture(scope="module")
def report(readout, fit, target):
    return validate(readout, fit, target, replicate=world(3, ((1, 2, 4),)), draws=500)


def test_the_readout_beats_what_knows_nothing_of_its_heads(report):
    own = report.links["share"]["kl"]
    for other in (
        report.baselines["uniform"],
        report.baselines["label_frequency"],
        report.baselines["match"],
        report.controls["random_heads"],
        report.controls["permuted_match"],
    ):
        assert own.high < other["kl"].low
    for name in ("uniform", "label_frequency", "match", "random_heads", "permuted_match"):
        assert report.differences[name].high < 0


def test_permuted_matches_fall_to_label_frequency(report):
    frequency = report.baselines["label_frequency"]["kl"].value
    assert report.controls["permuted_match"]["kl"].value == pytest.approx(frequency, rel=0.1)


def test_skill_and_share_of_the_ceiling_are_ratios_of_mean_errors(report):
    own, frequency = report.links["share"]["kl"].value, report.baselines["label_frequency"]["kl"].value
    ceiling = report.ceiling["share"]["kl"].value
    assert report.skill.value == pytest.approx(1 - own / frequency)
    assert report.ceiling_share.value == pytest.approx((frequency - own) / (frequency - ceiling))
    assert report.skill.low < report.skill.value < report.skill.high


def test_the_ceiling_is_the_observed_attention_through_the_link(report, target):
    mass = label_mass(target.select_heads(READERS).attention, target.label, 3).sum(axis=1)
    share = mass / mass.sum(axis=1, keepdims=True)
    kl = prompt_errors(target.label_probability, share, target.label_mask)["kl"].mean()
    assert report.ceiling["share"]["kl"].value == pytest.approx(kl, rel=1e-4)


def test_nothing_that_is_fitted_depends_on_the_targets_answers_or_attention(readout, fit, target, report):
    other = replace(
        target, label_probability=target.label_probability[:, ::-1], attention=target.attention[:, ::-1] / 2
    )
    again = validate(readout, fit, other, draws=50)
    assert again.constants == report.constants
    before, after = (readout.predict_proba(o) for o in (target, other))
    assert np.array_equal(before, after)


def test_label_masses_of_readers_are_predicted_and_named(report):
    assert set(report.attention) == {*READERS, "pooled"}
    for head in READERS:
        assert report.attention[head]["r2"].value > 0.6
        assert abs(report.attention[head]["bias"].value) < 0.02


def test_the_noise_floor_compares_two_draws_of_the_target(report):
    assert set(report.noise_floor) == set(METRICS)
    assert report.noise_floor["kl"].low < 0 < report.noise_floor["kl"].high


def test_the_report_has_the_agreed_shape_and_comes_back(report, tmp_path):
    data = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert set(data["links"]) == {"share", "power", "gain", "gain_per_head"}
    assert set(data["ceiling"]) == set(data["links"])
    assert set(data["baselines"]) == {"uniform", "label_frequency", "match", "match_log_count"}
    for table in ("links", "baselines", "controls", "ceiling"):
        for row in data[table].values():
            assert set(row) == set(METRICS)
            assert all({"value", "low", "high"} <= set(cell) for cell in row.values())
    assert {"value", "low", "high"} <= set(data["skill"])
    assert {"value", "low", "high"} <= set(data["ceiling_share"])
    assert "value" in data["attention"]["L3H0"]["r2"]
    report.save(tmp_path / "validation.json")
    assert ValidationReport.load(tmp_path / "validation.json") == report


def test_the_summary_shows_every_comparison_on_one_screen(report):
    text = report.summary()
    for words in ("label_frequency", "random_heads", "permuted_match", "* link share", "ceiling", "skill", "noise"):
        assert words in text
    assert len(text.splitlines()) < 40


def test_the_same_seed_gives_the_same_report(readout, fit, target):
    one, two = (validate(readout, fit, target, random_draws=3, draws=50, seed=4) for _ in range(2))
    assert one == two


def test_without_other_heads_the_report_says_that_a_control_is_missing(readout, fit, target):
    report = validate(readout, fit.select_heads(READERS), target.select_heads(READERS), draws=50)
    assert "random_heads" not in report.controls
    assert any("random_heads" in note for note in report.notes)


def test_a_degenerate_head_is_left_out_and_noted(fit, target):
    def silenced(observations):
        attention = observations.attention.copy()
        attention[:, 0] = 0
        return replace(observations, attention=attention)

    dead = silenced(fit)
    report = validate(SoftmaxReadout(heads=READERS).fit(dead), dead, silenced(target), draws=50)
    assert report.heads == ("L7H0",)
    assert any("L3H0 (no attention on labels)" in note for note in report.notes)


def test_random_heads_come_from_the_same_layers():
    pool = tuple(name for name in NAMES if name not in READERS)
    for chosen in random_head_sets(READERS, pool, 20, np.random.default_rng(0)):
        assert [layer_of(name) for name in chosen] == ["3", "7"]
        assert not set(chosen) & set(READERS)
    assert random_head_sets(READERS, ("L3H1",), 5, np.random.default_rng(0)) == []


def test_random_heads_are_fitted_like_readers(readout, fit, target):
    prediction = random_head_predictions(readout, fit, target, 1, seed=0)[0]
    pool = tuple(name for name in NAMES if name not in READERS)
    chosen = random_head_sets(READERS, pool, 1, np.random.Generator(np.random.PCG64(0)))[0]
    expected = SoftmaxReadout(heads=chosen).fit(fit).predict_proba(target)
    assert prediction == pytest.approx(expected, abs=1e-9)


def test_a_target_that_cannot_be_judged_is_refused(readout, fit, target):
    with pytest.raises(FitError, match="no demonstration matches its query's class in any prompt"):
        validate(readout, fit, target.with_match(np.zeros(target.match.shape)))
    with pytest.raises(FitError, match="target: the readout's heads L3H0, L7H0 are not among its 1 head"):
        validate(readout, fit, target.select_heads(["L3H1"]))
    bare = Observations.from_arrays(target.attention, target.match, target.label, target.context, heads=target.heads)
    with pytest.raises(FitError, match="target: label_probability is not known"):
        validate(readout, fit, bare)


def test_cross_validation_takes_the_readers_that_decide_and_the_simplest_link(fit):
    choice = choose(fit, [*READERS, "L3H1", "L3H2", "L7H1"])
    assert set(choice.heads) <= set(READERS)
    assert choice.link == "share"
    assert len(choice.candidates) == 4 * 5
    assert "cross-validation" in choice.summary()
    assert Choice.from_json(choice.to_json()) == choice


def test_the_smallest_error_can_be_asked_for(fit):
    choice = choose(fit, READERS, rule="minimum")
    best = min(choice.candidates, key=lambda c: c.kl.value)
    assert (len(choice.heads), choice.link) == (best.n_heads, best.link)


def test_cross_validation_finds_a_power_where_there_is_one(fit):
    sharper = fit.label_probability**3
    made = replace(fit, label_probability=sharper / sharper.sum(axis=1, keepdims=True))
    assert choose(made, READERS, links=("share", "power")).link == "power"


def test_an_error_of_cross_validation_is_that_of_a_fold_left_out(fit):
    small = fit.select_prompts(fit.context < 5)
    choice = choose(small, ["L3H0"], links=("share",), folds=5)
    errors = []
    for context in range(5):
        rest, left = small.select_prompts(small.context != context), small.select_prompts(small.context == context)
        prediction = SoftmaxReadout(heads=["L3H0"]).fit(rest).predict_proba(left)
        errors.append(prompt_errors(left.label_probability, prediction, left.label_mask)["kl"].mean())
    assert choice.candidates[0].kl.value == pytest.approx(np.mean(errors))


def test_a_choice_among_nothing_is_refused(fit):
    with pytest.raises(FitError, match="no candidate heads"):
        choose(fit, [])
    with pytest.raises(FitError, match="got 5 folds and 2 contexts"):
        choose(fit.select_prompts(fit.context < 2), READERS)
    with pytest.raises(FitError, match="'simplest' or 'minimum'"):
        choose(fit, READERS, rule="best")


def test_folds_by_counts_leave_out_one_list_of_label_counts_at_a_time() -> None:
    rng = np.random.default_rng(0)
    lists = [(2, 4), (3, 3), (1, 5)]
    labels = np.stack([rng.permutation(np.repeat([0, 1], lists[number % 3])) for number in range(60)])
    query = rng.integers(0, 2, 60)
    match = (labels == query[:, None]).astype(float)
    score = np.exp(-1.0 + 1.5 * match)
    attention = (score / (1 + score.sum(1, keepdims=True)))[:, None]
    mass = np.stack([(attention[:, 0] * (labels == label)).sum(1) for label in (0, 1)], 1)
    observations = Observations.from_arrays(
        attention, match=match, label=labels, context=np.arange(60), label_probability=mass / mass.sum(1, keepdims=True)
    )
    choice = choose(observations, observations.heads, folds="counts")
    assert choice.folds == 3
    assert "each of 3 lists of label counts" in choice.rule
    assert choice.link == "share"  # the world that the data were drawn from


def as_record(observations):
    """The record that these observations could have come from."""
    attention = np.where(observations.mask[:, None], observations.attention, np.nan)
    logprob = np.log(np.where(observations.label_mask, observations.label_probability, 1.0))
    layer, head = zip(*(name[1:].split("H") for name in observations.heads), strict=True)
    return xr.Dataset(
        {
            "attention": (("prompt", "head", "demonstration"), attention),
            "label_logprob": (("prompt", "label"), np.where(observations.label_mask, logprob, np.nan)),
            "demonstration_class": (("prompt", "demonstration"), observations.label),
            "demonstration_label": (("prompt", "demonstration"), observations.label),
            "query_class": (("prompt",), observations.query_label),
            "query_label": (("prompt",), observations.query_label),
            "context": (("prompt",), observations.context),
            "likeness": (("prompt", "demonstration"), observations.match),
        },
        coords={"layer": ("head", [int(v) for v in layer]), "head_in_layer": ("head", [int(v) for v in head])},
    )


def test_records_are_validated_like_their_observations(readout, fit, target):
    options = {"draws": 50, "random_draws": 2, "permuted_draws": 1}
    by_record = validate(readout, as_record(fit), as_record(target), replicate=as_record(target), **options)
    by_hand = validate(readout, fit, target, replicate=target, **options)
    assert by_record.links["share"]["kl"].value == pytest.approx(by_hand.links["share"]["kl"].value)
    named = SoftmaxReadout(heads=READERS, match="likeness").fit(fit)
    graded = validate(named, as_record(fit), as_record(target), **options)
    assert graded.skill.value == pytest.approx(by_hand.skill.value)


def test_a_match_array_holds_for_the_fit_record_only(fit, target):
    record = as_record(fit)
    given = SoftmaxReadout(heads=READERS, match=fit.match).fit(record)
    with pytest.raises(FitError, match="cannot be another record's"):
        validate(given, record, as_record(target), draws=50)
    assert validate(given, record, target, draws=50, random_draws=1).heads == READERS


def test_a_target_that_is_the_fit_data_is_noted(readout, fit, report):
    again = validate(readout, fit, fit.select_heads(READERS), draws=50, random_draws=1)
    assert "the target is the fit data: this is not a held-out error" in again.notes
    assert not any("held-out error" in note for note in report.notes)


def test_a_ceiling_that_does_not_beat_label_frequency_is_noted(readout, fit, target, report):
    attention = target.attention.copy()
    attention[:, :, 1:] = 0  # all observed attention is on one demonstration
    worse = validate(readout, fit, replace(target, attention=attention), draws=50, random_draws=1)
    note = "the observed attention does not beat label frequency here: the ceiling share means nothing"
    assert note in worse.notes
    assert note not in report.notes
    assert f"note: {note}" in worse.summary()


def test_the_summary_says_what_its_rows_and_intervals_are(report):
    lines = report.summary().splitlines()
    controls = [line for line in lines if line[2:].startswith("control ")]
    assert len(controls) == 2
    assert all(line.endswith("range over draws") for line in controls)
    assert any("observed attention (ceiling), share" in line for line in lines)
    assert any(line.startswith("noise floor: target drawn again, difference in KL: ") for line in lines)
    assert max(map(len, lines)) <= 130


def test_a_control_without_draws_is_left_out_and_noted(readout, fit, target):
    report = validate(readout, fit, target, draws=50, random_draws=0, permuted_draws=1)
    assert list(report.controls) == ["permuted_match"]
    assert "control random_heads: not asked for (0 draws)" in report.notes


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seed": -1}, "seed: expected a whole number of at least 0, got -1"),
        ({"draws": 1}, "draws: expected a whole number of at least 2"),
        ({"level": 0.0}, "level: expected a number between 0 and 1"),
        ({"random_draws": -1}, "random_draws: expected a whole number of at least 0"),
    ],
)
def test_options_out_of_range_are_refused(readout, fit, target, options, message):
    with pytest.raises(FitError, match=message):
        validate(readout, fit, target, **options)


def test_a_readout_that_is_not_fitted_is_refused(fit, target):
    with pytest.raises(FitError, match="not fitted yet"):
        validate(SoftmaxReadout(), fit, target)


def test_settings_of_cross_validation_out_of_range_are_refused(fit):
    for options, message in (
        ({"seed": -1}, "seed"),
        ({"max_heads": 0}, "max_heads: expected a whole number of at least 1"),
        ({"links": ()}, "links: expected at least one of share"),
    ):
        with pytest.raises(FitError, match=message):
            choose(fit, READERS, **options)


def test_damaged_reports_choices_and_behaviours_are_refused(report, fit, tmp_path):
    for kind, whole, name in (
        (ValidationReport, report.to_dict(), "skill"),
        (Choice, choose(fit, READERS, links=("share",)).to_dict(), "candidates"),
        (Behaviour, measure_behaviour(fit).to_dict(), "chance"),
    ):
        with pytest.raises(FitError, match=f"{name} missing"):
            kind.from_dict({key: value for key, value in whole.items() if key != name})
        with pytest.raises(FitError, match="expected a JSON object, got list"):
            kind.from_dict([])
        with pytest.raises(FitError, match=r"expected a JSON object|not of its kind"):
            kind.from_dict({**whole, name: "x"})
    (tmp_path / "validation.json").write_text("{")
    with pytest.raises(FitError, match="cannot be read as JSON"):
        ValidationReport.load(tmp_path / "validation.json")
