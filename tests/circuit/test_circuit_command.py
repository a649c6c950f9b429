"""The command readout circuit: what it writes and prints, and bad input in one line."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import readout.cli

Cli = Callable[..., tuple[int, str, str]]
SMALL = ("--model", "tiny", "--device", "cpu", "--contexts", "10", "--draws", "20")


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """Run a command in this process: exit code, what it printed, what it complained of."""

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["readout", "circuit", *map(str, arguments)])
        code = 0
        try:
            readout.cli.main()
        except SystemExit as stop:
            code = int(stop.code or 0)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def test_one_claim_is_tested_printed_and_written(cli: Cli, tmp_path: Path) -> None:
    code, out, _ = cli(*SMALL, "--claims", "1", "--out", tmp_path, "--json")
    assert code == 0
    told = json.loads(out)
    assert told == json.loads((tmp_path / "circuit.json").read_text())
    assert list(told["claims"]) == ["1"]
    assert (tmp_path / "figures" / "patching.pdf").exists()


def test_permuted_labels_have_no_ground_and_strict_says_so(cli: Cli, tmp_path: Path) -> None:
    code, out, _ = cli(*SMALL, "--claims", "1", "--permuted", "--strict", "--out", tmp_path)
    assert code == 3
    assert "WITHOUT GROUND" in out
    assert "LABELS PERMUTED" in out


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--claims", "9"), "numbered 1 to 8"),
        (("--claims", "three"), "give numbers such as 3,4"),
        (("--contexts", "4"), "at least 10 contexts"),
        (("--task", "nothing.csv"), "nothing.csv"),
        (("--main-job", "nowhere", "--claims", "8"), "nowhere"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    cli: Cli, tmp_path: Path, arguments: tuple[str, ...], complaint: str
) -> None:
    code, out, err = cli(*SMALL, "--out", tmp_path / "run", *arguments)
    assert (code, out) == (2, "")
    told = [line for line in err.splitlines() if line.startswith("readout: ")]
    assert len(told) == 1
    assert complaint in told[0]


def test_a_main_job_that_is_not_there_is_named_before_the_model_is_loaded(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("readout.models.load_model", lambda *_: pytest.fail("the model was loaded"))
    (tmp_path / "report.json").write_text("{}")
    for folder, complaint in ((tmp_path / "none", "none/report.json"), (tmp_path, "expected format")):
        code, _, err = cli(*SMALL, "--main-job", folder, "--out", tmp_path / "run")
        assert code == 2
        assert err.count("\n") == 1
        assert complaint in err


def test_a_folder_of_other_settings_is_refused(cli: Cli, tmp_path: Path) -> None:
    cli(*SMALL, "--claims", "1", "--out", tmp_path, "--json")
    code, _, err = cli(*SMALL, "--claims", "1", "--out", tmp_path, "--seed", "3", "--json")
    assert code == 2
    assert "holds claims of other settings" in err
