"""`readout icr` on the built-in model: folders, JSON, tables, figures, resume, bad input."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from readout.cli import commands
from readout.figures.icr import FIGURES
from readout.icr.bases import make_basis
from readout.icr.importance import importance
from readout.icr.latency import measure_latency
from readout.icr.methods.routed import Variant
from readout.icr.registry import CONTROLS, is_other, known_methods, make_method, variant_of
from readout.icr.routing import Routing, Weights
from readout.icr.run import default_variant
from readout.icr.study import Study

SMALL = [
    "--model", "tiny", "--train", "30", "--test", "12", "--prompts", "6", "--epochs", "1", "--seeds", "0",
    "--out-of-domain", "synthetic4",
]  # fmt: skip


def call(*arguments: str) -> str:
    result = CliRunner().invoke(commands, ["icr", *arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("icr")
    methods = "few-shot;label bias, fitted;encoder only;icr"
    call("evaluate", *SMALL, "--out", str(out), "--methods", methods, "--latency", "16,32")
    return out


def test_evaluating_writes_accuracies_collapses_and_recovery(folder: Path) -> None:
    result = json.loads((folder / "icr.json").read_text())
    assert set(result["methods"]) == {"zero-shot", "few-shot", "label bias, fitted", "encoder only", "icr"}
    own = result["methods"]["icr"]
    assert {"collapse_raw", "collapse_significant"} <= set(own)
    assert {"value", "low", "high"} <= set(own["sets"]["synthetic0"]["accuracy"])
    assert own["sets"]["synthetic0"]["recovery"] is not None
    assert "synthetic4" in own["sets"]
    assert "synthetic4" not in result["methods"]["encoder only"]["sets"]
    assert result["provenance"]["fingerprint"]
    assert result["training"]["icr"]["0"]["loss"]
    assert [one["tokens"] for one in result["latency"]] == [16, 32]
    assert "collapses" in (folder / "icr.txt").read_text()


def test_every_figure_is_drawn_from_the_result_alone(folder: Path) -> None:
    for name in FIGURES:
        assert (folder / "figures" / f"icr-{name}.png").stat().st_size > 5000
    assert FIGURES["layers"]({"methods": {}}) is None
    assert FIGURES["latency"]({"methods": {}}) is None


def test_a_second_call_finds_everything_and_gives_the_same(folder: Path) -> None:
    before = json.loads((folder / "icr.json").read_text())
    stamps = {path: path.stat().st_mtime_ns for path in (folder / "answers").iterdir()}
    told = call("evaluate", *SMALL, "--out", str(folder), "--methods", "few-shot;icr", "--json")
    again = json.loads(told)
    assert again["methods"]["icr"] == before["methods"]["icr"]
    assert {path: path.stat().st_mtime_ns for path in stamps} == stamps


def test_directions_and_training_are_commands_of_their_own_in_the_same_folder(folder: Path) -> None:
    assert "between domains" in call("directions", *SMALL, "--out", str(folder))
    report = json.loads((folder / "directions.json").read_text())
    assert report["layers"] == [0, 1, 2, 3]
    told = json.loads(call("train", *SMALL, "--out", str(folder), "--json"))
    assert told["steps"] == len(told["epochs"]) * 12


def test_ablations_train_each_control_alike(folder: Path) -> None:
    told = call("ablate", *SMALL, "--out", str(folder), "--controls", "icr;residual stream")
    assert "residual stream" in told
    result = json.loads((folder / "ablations.json").read_text())
    assert set(result["methods"]) == {"zero-shot", "icr", "residual stream"}
    assert (folder / "figures" / "ablations-differences.png").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["evaluate", *SMALL, "--methods", "magic"], "no method magic"),
        (["ablate", *SMALL, "--controls", "icr, no noise"], "no control icr, no noise"),
        (["train", *SMALL[:-2], "--out-of-domain", "imdb"], "no data set imdb"),
        (["evaluate", *SMALL[:2], "--seeds", "-1"], "not negative"),
        (["train", *SMALL, "--train", "31"], "other settings"),
    ],
)
def test_bad_input_says_what_is_known(folder: Path, arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(commands, ["icr", *arguments, "--out", str(folder)])
    assert result.exit_code != 0
    assert message in str(result.exception)


def test_every_control_changes_one_thing_of_icr() -> None:
    base = default_variant("tiny")
    assert variant_of("icr", base) == base
    for name in CONTROLS:
        own = variant_of(name, base)
        changed = [field for field in base.__dict__ if getattr(own, field) != getattr(base, field)]
        allowed = {"bias trained directly": 2, "icr, unmatched random basis": 2, "icr, rank 4": 0, "icr, all layers": 0}
        assert len(changed) == allowed.get(name, 0 if name == "icr" else 1), name
    assert all(make_method(name, base)().name == name for name in known_methods())


def test_importance_is_the_product_of_ranges_as_in_the_paper() -> None:
    alpha = np.array([[[0.2, -0.2], [0.6, 0.2], [0.0, 0.0]]])
    gamma = np.array([[[0.2, 0.6], [0.8, 0.8], [0.1, 0.1]]])
    found = importance(alpha, gamma)
    # alpha means .2 .4 0 -> ranges .5 1 0; gates .4 .8 .1 -> 3/7 1 0; products 3/14 1 0
    np.testing.assert_allclose(found.layers, np.array([3 / 14, 1, 0]) / (17 / 14))
    assert found.top_heads == [1, 0, 0]
    np.testing.assert_allclose(found.directions, [(0.2 * 0.4 + 0.6 * 0.8) / 3, (0.2 * 0.4 + 0.2 * 0.8) / 3])
    even = importance(np.zeros((1, 2, 2)), gamma[:, :2])
    np.testing.assert_allclose(even.layers, [0.5, 0.5])


def test_latency_is_of_passes_that_are_really_routed(study: Study) -> None:
    routing = Routing(study.model, make_basis(study.vectors(0), 2, layers=(2, 3)))
    weights = Weights(torch.full((1, 2, 2), 0.5), torch.full((1, 2, 4), 0.5))
    calls: list[int] = []
    (found,) = measure_latency(study.model, routing, weights, [24], 2, calls.append)
    assert found.tokens == 24
    assert min(found.plain, found.routed, found.ratio) > 0
    assert calls == [24] * 3
    assert "24 tokens" in found.summary()


def test_a_control_that_changes_nothing_is_not_tried_as_one() -> None:
    base = Variant(layers="all", rank=4)
    same = {name for name in known_methods() if not is_other(name, base, "own")}
    assert same == {"icr, all layers", "icr, rank 4", "icr, own encoder"}
