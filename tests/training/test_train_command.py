"""readout train is a thin shell over the library function."""

import json

from click.testing import CliRunner

from readout.cli.train import command
from readout.training import run as library


def test_the_command_trains_and_prints_the_history(tmp_path, monkeypatch):
    train = library.train
    monkeypatch.setattr(library, "train", lambda *given, **options: train(*given, measure=False, **options))
    result = CliRunner().invoke(command, ["--preset", "test", "--seed", "2", "--out", str(tmp_path / "run"), "--json"])
    assert result.exit_code == 0, result.output
    history = json.loads(result.output)
    assert history["seed"] == 2
    assert history["done"]
    assert [row["step"] for row in history["checkpoints"]] == [0, 2, 4, 6, 8]
    assert (tmp_path / "run" / "model" / "model.safetensors").exists()


def test_the_summary_of_a_run_fits_a_screen(tmp_path):
    run = library.train(tmp_path, 0, "test", measure=False, quiet=True)
    assert "ends at step 8" in run.summary()
    assert len(run.summary().splitlines()) < 30
