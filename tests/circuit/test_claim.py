"""Claims: the rule of the verdict on made-up intervals, and JSON there and back."""

import json

import numpy as np
import pytest

from readout.circuit.claim import Claim, Part, rule, verdict
from readout.circuit.evidence import (
    Component,
    flip_p_values,
    joint,
    joint_p,
    joint_rule,
    lack_of_behaviour,
    paired_shares,
    rank_p,
)
from readout.errors import FitError, InterventionError
from readout.statistics import Estimate

NAN = float("nan")


def interval(low: float, high: float) -> Estimate:
    return Estimate((low + high) / 2, low, high, 0.1, 10, 10, "made up")


ABOVE, WIDE, SMALL, NOTHING = interval(0.3, 0.9), interval(-0.1, 0.9), interval(-0.02, 0.05), interval(NAN, NAN)


@pytest.mark.parametrize(
    ("effect", "difference", "p", "expected"),
    [
        (ABOVE, ABOVE, 0.01, "true"),
        (ABOVE, WIDE, 0.01, "undecided"),
        (ABOVE, ABOVE, 0.05, "undecided"),
        (ABOVE, ABOVE, NAN, "undecided"),
        (WIDE, ABOVE, 0.01, "undecided"),
        (SMALL, SMALL, 0.9, "false"),
        (interval(0.02, 0.05), ABOVE, 0.01, "true"),
        (NOTHING, NOTHING, NAN, "undecided"),
    ],
)
def test_the_verdict_follows_its_rule(effect: Estimate, difference: Estimate, p: float, expected: str) -> None:
    assert verdict(effect, difference, p, 0.1) == expected


def test_the_rule_says_the_bound_that_it_uses() -> None:
    assert "below 0.25 nats" in rule(0.25, "nats")


def made_up_claim(supported: str = "true") -> Claim:
    part = Part("reader", "L1H2", 1, 2, "reads", ABOVE, None, 0.01, "holm", {"gap": 0.5, "missing": NAN})
    place = Part("gate", "query entering L1", 1, -1, "opens", ABOVE, SMALL, NAN)
    return Claim(
        4, "title", "measure", ABOVE, SMALL, WIDE, 0.01, "rank", 12, 10, supported, "the rule",  # type: ignore[arg-type]
        (part, place), {"layers": [0, 1], "nothing": None}, ("a note",),
    )  # fmt: skip


@pytest.mark.parametrize(("supported", "written"), [("true", True), ("false", False), ("undecided", "undecided")])
def test_a_claim_comes_back_from_json_with_its_verdict(supported: str, written: object) -> None:
    claim = made_up_claim(supported)
    text = json.dumps(claim.to_dict(), allow_nan=False)
    assert json.loads(text)["supported"] is written or json.loads(text)["supported"] == written
    back = Claim.from_dict(json.loads(text))
    assert back.to_dict() == claim.to_dict()
    assert back.supported == supported


def test_a_claim_in_json_has_its_numbers_at_the_top() -> None:
    told = made_up_claim().to_dict()
    assert {"effect", "low", "high", "control", "p", "n", "supported", "rule", "parts"} <= told.keys()
    assert (told["effect"], told["low"], told["high"], told["n"]) == (0.6, 0.3, 0.9, 12)


def test_a_damaged_claim_is_refused_with_what_is_missing() -> None:
    told = made_up_claim().to_dict()
    del told["estimates"]
    with pytest.raises(FitError, match="estimates missing"):
        Claim.from_dict(told)


def test_an_unknown_verdict_is_refused() -> None:
    with pytest.raises(InterventionError, match="supported must be one of"):
        made_up_claim("perhaps")


def component(name: str, effect: Estimate, p: float) -> Component:
    return Component(name, "", effect, SMALL, effect, p, 0.1)


def test_a_claim_of_several_components_is_true_only_if_all_are_and_false_if_one_is() -> None:
    yes, no, open_ = component("a", ABOVE, 0.01), component("b", SMALL, 0.9), component("c", WIDE, 0.2)
    assert joint([yes, yes]) == "true"
    assert joint([yes, open_]) == "undecided"
    assert joint([yes, open_, no]) == "false"
    assert joint_p([yes, open_]) == 0.2
    assert "0.1 (a), 0.1 (b)" in joint_rule([yes, no])


def test_the_rank_counts_draws_that_reach_the_value_and_the_value_itself() -> None:
    assert rank_p(3.0, np.array([1.0, 2.0, 3.0, 4.0])) == 3 / 5


def test_shares_are_ratios_of_sums() -> None:
    effect, control, difference = paired_shares(
        np.array([1.0, 3.0]), np.array([0.0, 1.0]), np.array([2.0, 6.0]), np.array([0, 1])
    )
    assert [effect.value, control.value, difference.value] == [0.5, 0.125, 0.375]


def test_sign_flips_of_eight_equal_contexts_give_one_in_two_to_the_eight() -> None:
    values = np.ones((8, 1)) + 0.01 * np.arange(8)[:, None]
    p = flip_p_values(values, np.arange(8), seed=0, flips=20000)
    assert abs(p[0] - 1 / 256) < 0.002


def test_sign_flips_reject_noise_no_more_often_than_they_say() -> None:
    rng = np.random.default_rng(99)
    rejected = [
        flip_p_values(rng.standard_normal((16, 10)), np.arange(16), seed=seed, flips=500).min() < 0.05
        for seed in range(100)
    ]
    # Four standard errors above .05.
    assert np.mean(rejected) < 0.05 + 4 * np.sqrt(0.05 * 0.95 / 100)


def test_a_model_that_does_not_do_the_task_lacks_the_behaviour() -> None:
    contexts = np.arange(20)
    assert lack_of_behaviour(np.full(20, 0.05) + 0.001 * contexts, contexts).startswith("no behaviour to explain")
    assert lack_of_behaviour(np.full(20, 2.0) + 0.1 * contexts, contexts) == ""
