"""The main job: what it writes, that it goes on where it stopped, and what it finds on a real model."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from readout.errors import RecordError
from readout.figures import FIGURES, save
from readout.models import LanguageModel, load_model
from readout.pipeline import RunReport, default_pair, run, target_for
from readout.prompts import PromptDistribution

FIT = PromptDistribution(shots=((3, 3), (1, 5)), class_half="a", label_half="a", queries=2, size=40, seed=1)
TARGET = PromptDistribution(classes=3, shots=(1, 2, 3), class_half="b", label_half="b", queries=2, size=40, seed=2)

BESIDE = {"reseeded": dataclasses.replace(TARGET, seed=8)}


@pytest.fixture(scope="module")
def finished(tiny_model: LanguageModel, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, RunReport]:
    folder = tmp_path_factory.mktemp("run")
    return folder, run(tiny_model, FIT, TARGET, folder, beside=BESIDE)


def test_the_folder_holds_records_fit_and_report(finished: tuple[Path, RunReport]) -> None:
    folder, _ = finished
    for name in ("fit", "target", "replicate"):
        assert (folder / name / "record.zarr" / "zarr.json").exists()
    assert (folder / "fit.json").exists()
    assert (folder / "report.json").exists()


def test_the_report_has_what_a_reader_of_the_json_needs(finished: tuple[Path, RunReport]) -> None:
    report = json.loads((finished[0] / "report.json").read_text())
    assert report["model"]["architecture"] == "Qwen3ForCausalLM"
    assert report["fit_distribution"]["class_half"] == "a"
    assert report["target_distribution"]["classes"] == 3
    assert {"value", "low", "high"} <= report["behaviour"]["accuracy"].keys()
    assert {"value", "low", "high"} <= report["behaviour"]["label_mass"].keys()
    for head, row in report["constants"].items():
        assert {"value", "low", "high"} <= row["base"].keys(), head
        assert {"value", "low", "high"} <= row["match"].keys(), head
    validation = report["validation"]
    metrics = {"kl", "tv", "mae", "brier", "agreement"}
    assert validation["links"].keys() == validation["ceiling"].keys() == {"share", "power", "gain", "gain_per_head"}
    assert validation["baselines"].keys() == {"uniform", "label_frequency", "match", "match_log_count"}
    for table in ("links", "baselines", "ceiling"):
        for row in validation[table].values():
            assert metrics <= row.keys()
    assert {"value", "low", "high"} <= validation["skill"].keys()
    assert {"value", "low", "high"} <= validation["ceiling_share"].keys()
    assert all("r2" in row for row in validation["attention"].values())
    assert report["shared"] == {"classes": [], "labels": []}


def test_a_further_target_is_predicted_by_the_same_readout(finished: tuple[Path, RunReport]) -> None:
    _, report = finished
    beside = report.beside["reseeded"]
    assert beside.distribution.seed == 8
    assert beside.validation.heads == report.validation.heads
    assert beside.validation.constants == report.validation.constants
    assert "beside it, reseeded" in report.summary()


def test_a_random_model_is_said_to_have_no_ground(finished: tuple[Path, RunReport]) -> None:
    _, report = finished
    assert any("not above chance" in note or "no head is a reader" in note for note in report.notes)
    assert "WITHOUT GROUND" in report.summary()


def test_a_report_comes_back_from_its_file(finished: tuple[Path, RunReport]) -> None:
    folder, report = finished
    assert RunReport.load(folder / "report.json").to_dict() == report.to_dict()


def test_running_again_reads_the_records_that_are_there(
    finished: tuple[Path, RunReport], tiny_model: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, report = finished

    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("the model was run again")

    monkeypatch.setattr(LanguageModel, "run", refuse)
    assert run(tiny_model, FIT, TARGET, folder, beside=BESIDE).to_dict() == report.to_dict()


def test_another_specification_in_the_same_folder_is_refused(
    finished: tuple[Path, RunReport], tiny_model: LanguageModel
) -> None:
    with pytest.raises(RecordError, match="another specification"):
        run(tiny_model, dataclasses.replace(FIT, seed=77), TARGET, finished[0])


def test_a_folder_made_with_another_match_is_refused_by_the_options_name(
    finished: tuple[Path, RunReport], tiny_model: LanguageModel
) -> None:
    with pytest.raises(RecordError, match=r"residual_layers.* readout run sets residual_layers by --match\)"):
        run(tiny_model, FIT, TARGET, finished[0], match="binary")


def test_the_default_target_shares_no_class_and_no_label_with_the_default_fit() -> None:
    fit, target = default_pair("words")
    seen, held_out = (
        {(d.class_name, d.label) for prompt in one.prompts() for d in prompt.demonstrations} for one in (fit, target)
    )
    assert not {name for name, _ in seen} & {name for name, _ in held_out}
    assert not {label for _, label in seen} & {label for _, label in held_out}


def test_the_default_target_of_a_users_task_takes_its_options_and_other_texts() -> None:
    fit = PromptDistribution(task="trec", template="{text} => {label}\n", size=7, text_half="a", label_half="a")
    target = target_for(fit)
    assert (target.task, target.template, target.size) == ("trec", fit.template, 7)
    assert (target.text_half, target.label_half) == ("b", "b")


@pytest.mark.parametrize("name", FIGURES)
def test_figures_show_the_reports_numbers(finished: tuple[Path, RunReport], tmp_path: Path, name: str) -> None:
    report = finished[1].to_dict()
    figure = FIGURES[name](report)
    drawn = {
        round(float(number), 6)
        for axes in figure.axes
        for line in axes.lines
        for number in (*np.atleast_1d(line.get_xdata()), *np.atleast_1d(line.get_ydata()))
        if isinstance(number, int | float | np.number)
    }
    validation = report["validation"]
    expected = {
        "validation_table": [row["kl"]["value"] for row in validation["links"].values()],
        "reliability": [point["predicted"] for point in validation["calibration"]["curve"]],
        "observed_against_predicted_mass": [p["predicted"] for p in next(iter(report["mass_points"].values()))],
        "attention_by_match": [],
    }[name]
    assert all(round(number, 6) in drawn for number in expected)
    written = save(figure, tmp_path / name)
    assert all(file.stat().st_size > 2000 for file in written)


@pytest.mark.real
@pytest.mark.xdist_group("smollm2")
def test_on_smollm2_a_known_reader_is_found_and_the_held_out_error_is_below_label_frequency(tmp_path: Path) -> None:
    model = load_model("smollm2-135m", device="cpu")
    fit, target = (dataclasses.replace(one, size=40, seed=one.seed + 50) for one in default_pair("words"))
    report = run(model, fit, target, tmp_path, replicate=False)
    assert report.stage.behaviour.does_task
    assert "L18H6" in report.stage.readers.readers
    assert report.validation.differences["label_frequency"].high < 0
    record = xr.open_zarr(tmp_path / "fit" / "record.zarr", consolidated=False)
    assert record.sizes["head"] == 270
