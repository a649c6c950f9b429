"""Training resumes exactly, repeats exactly, and refuses another run's folder."""

import dataclasses
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from readout.errors import ReadoutError
from readout.training import trainer as trainer_module
from readout.training.batches import FIRST_LABEL, draw_batch, step_generator
from readout.training.model import build_model
from readout.training.presets import PRESETS, TINY, Phase, Preset
from readout.training.run import TrainingRun, find_preset, train
from readout.training.trainer import Progress, Trainer, learning_rate, step_loss

STEPS = PRESETS["test"]


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    train(folder, 5, "test", measure=False, quiet=True)
    return folder


def test_the_same_seed_gives_the_same_weights_and_another_seed_others(whole, tmp_path):
    train(tmp_path / "again", 5, "test", measure=False, quiet=True)
    train(tmp_path / "other", 6, "test", measure=False, quiet=True)
    assert same(weights(whole / "model"), weights(tmp_path / "again" / "model"))
    assert not same(weights(whole / "model"), weights(tmp_path / "other" / "model"))


@pytest.mark.parametrize("killed_at", [1, 4, 5])
def test_a_run_that_was_killed_ends_with_the_same_weights(whole, tmp_path, killed_at):
    Trainer(tmp_path, 5, STEPS).run(stop_at=killed_at, quiet=True)
    train(tmp_path, 5, "test", measure=False, quiet=True)
    assert same(weights(whole / "model"), weights(tmp_path / "model"))
    assert TrainingRun.load(tmp_path).checkpoints == TrainingRun.load(whole).checkpoints


def test_checkpoints_are_written_at_the_schedule_and_at_the_end(whole):
    names = sorted(folder.name for folder in (whole / "checkpoints").iterdir())
    assert names == [f"step-{step:06d}" for step in (0, 2, 4, 6, 8)]
    assert same(weights(whole / "checkpoints" / names[-1]), weights(whole / "model"))


def test_the_bar_counts_to_the_last_step_and_less_where_a_phase_ends_early(tmp_path, capsys):
    easy = dataclasses.replace(STEPS.phases[0], steps=50, until_accuracy=1e-9)
    Trainer(tmp_path, 0, dataclasses.replace(STEPS, phases=(easy, STEPS.phases[1]))).run()
    shown = capsys.readouterr().err.split("\r")
    assert "/55" in shown[1]
    steps = int(json.loads((tmp_path / "history.json").read_text())["phases"][-1]["end"])
    assert steps < 55
    assert f"{steps}/{steps}" in shown[-1]


def test_a_finished_run_is_not_trained_again(whole):
    before = (whole / "history.json").read_text()
    train(whole, 5, "test", measure=False, quiet=True)
    assert (whole / "history.json").read_text() == before


def test_no_file_of_a_run_is_a_pickle(whole):
    suffixes = {path.suffix for path in whole.rglob("*") if path.is_file()}
    assert suffixes <= {".json", ".safetensors"}


def test_the_folder_of_another_run_is_refused(whole):
    with pytest.raises(ReadoutError, match="seed 5"):
        train(whole, 4, "test", measure=False, quiet=True)


def test_an_unknown_preset_is_refused_with_the_known_ones_named():
    with pytest.raises(ReadoutError, match="tiny"):
        find_preset("huge")


@pytest.mark.parametrize("preset", PRESETS.values(), ids=lambda preset: preset.name)
def test_a_recipe_survives_json(preset):
    assert Preset.from_json(preset.to_json()) == preset


def test_an_unknown_key_of_a_recipe_is_refused():
    data = json.loads(TINY.to_json())
    data["phases"][0]["speed"] = 1
    with pytest.raises(ReadoutError, match="speed"):
        Preset.from_json(json.dumps(data))


def test_a_phase_ends_when_it_is_learned(tmp_path):
    easy = dataclasses.replace(STEPS, phases=(dataclasses.replace(STEPS.phases[0], steps=9, until_accuracy=-1.0),))
    trainer = Trainer(tmp_path, 0, easy)
    trainer.run(quiet=True)
    assert trainer.progress.phases[0]["reason"] == "learned"
    assert trainer.progress.step == 1


def test_a_phase_draws_as_many_sequences_as_it_says(tmp_path, monkeypatch):
    drawn = []

    def draw(phase, size, rng):
        drawn.append((phase.name, size))
        return draw_batch(phase, size, rng)

    monkeypatch.setattr(trainer_module, "draw_batch", draw)
    copy, noise = STEPS.phases
    phases = (dataclasses.replace(copy, steps=1), dataclasses.replace(noise, steps=1, batch=3))
    Trainer(tmp_path, 0, dataclasses.replace(STEPS, phases=phases)).run(quiet=True)
    assert drawn == [("copy", STEPS.batch), ("noise", 3)]


@pytest.mark.parametrize(("pool", "distinct"), [(5, 0.0), (9, 0.5)])
def test_a_phase_with_too_few_labels_is_refused(pool, distinct):
    with pytest.raises(ReadoutError, match="label_pool"):
        Phase("few", 1, demonstrations=10, label_pool=pool, distinct=distinct)


def test_an_ablation_differs_from_the_recipe_in_what_it_says():
    by_name = {name: {phase.name: phase for phase in PRESETS[name].phases} for name in PRESETS}
    tiny = by_name["tiny"]
    assert by_name["no-echo"] == tiny | {"copy": dataclasses.replace(tiny["copy"], echo=0)}
    for name, phase in by_name["no-gate"].items():
        assert not phase.distinct
        assert not phase.masked_until_repeat
        kept = {key: getattr(tiny[name], key) for key in ("distinct", "masked_until_repeat", "until_leak")}
        assert dataclasses.replace(phase, **kept) == tiny[name]
    assert list(by_name["no-curriculum"]) == ["noise"]
    assert by_name["no-curriculum"]["noise"].echo


def test_the_learning_rate_rises_stays_and_falls_over_the_second_half_of_the_last_phase():
    last = len(TINY.phases) - 1
    steps = TINY.phases[-1].steps
    rates = [
        learning_rate(TINY, Progress(step=step, phase=phase, step_in_phase=within))
        for step, phase, within in [(0, 0, 0), (49, 0, 49), (900, last, steps // 2), (1200, last, steps)]
    ]
    assert rates == pytest.approx([3e-3 / 50, 3e-3, 3e-3, 3e-3 * 0.03])


def test_the_loss_is_cross_entropy_with_fresh_labels_in_expectation():
    gate = next(phase for phase in TINY.phases if phase.name == "gate")
    phase = dataclasses.replace(gate, demonstrations=5)
    assert phase.distinct
    batch = draw_batch(phase, 6, step_generator(0, 0))
    model = build_model(STEPS, 0)
    with torch.no_grad():
        loss = float(step_loss(model, batch, phase, None).loss)
        logprob = model(input_ids=torch.from_numpy(batch.tokens)).logits[:, batch.predict_at].log_softmax(-1).numpy()
    total, count = 0.0, 0
    for row, labels in enumerate(batch.labels.tolist()):
        for i, label in enumerate(labels):
            if batch.weight[row, i]:
                unused = [FIRST_LABEL + n for n in range(78) if FIRST_LABEL + n not in labels[:i]]
                total -= logprob[row, i, unused].mean() if batch.fresh[row, i] else logprob[row, i, label]
                count += 1
    assert loss == pytest.approx(total / count, rel=1e-5)
