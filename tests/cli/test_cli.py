"""The command line: quick help, one clear line and exit code 2 for bad input, and the main job step by step."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tokenizers import Tokenizer

import readout.cli
from readout.prompts import PromptDistribution

Cli = Callable[..., tuple[int, str, str]]
SMALL = ("--classes", "2", "--shots", "2", "--queries", "2", "--size", "30")


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """Run a command in this process: exit code, what it printed, what it complained of."""

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["readout", *map(str, arguments)])
        code = 0
        try:
            readout.cli.main()
        except SystemExit as stop:
            code = int(stop.code or 0)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def test_help_takes_less_than_a_second_and_loads_no_torch() -> None:
    program = "import sys; sys.argv = ['readout', '--help']\nimport readout.cli\n"
    program += "try:\n    readout.cli.main()\nexcept SystemExit:\n    pass\nassert 'torch' not in sys.modules\n"
    start = time.process_time()
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert time.process_time() - start < 1
    assert all(name in done.stdout for name in readout.cli.COMMANDS)


@pytest.mark.parametrize("name", readout.cli.COMMANDS)
def test_every_command_explains_itself(cli: Cli, name: str) -> None:
    code, out, _ = cli(name, "--help")
    assert code == 0
    assert out.startswith("Usage")


def test_prompts_are_shown_with_their_label_tokens_marked(cli: Cli, tiny_folder: Path) -> None:
    code, out, _ = cli("prompts", "--shots", "1", "--model", tiny_folder, "--show", "1")
    assert code == 0
    assert "⟦" in out


def test_a_specification_file_gives_the_same_prompts_as_its_options(cli: Cli, tmp_path: Path) -> None:
    _, by_options, _ = cli("prompts", "--task", "words", "--classes", "3", "--shots", "1,2,3", "--json")
    (tmp_path / "spec.json").write_text(by_options)
    _, by_file, _ = cli("prompts", "--spec", tmp_path / "spec.json", "--json")
    assert PromptDistribution.from_json(by_file) == PromptDistribution.from_json(by_options)
    assert PromptDistribution.from_json(by_file).shots == (1, 2, 3)


def test_models_lists_names_and_prints_a_self_test(cli: Cli, tiny_folder: Path) -> None:
    assert "smollm2-135m" in cli("models")[1]
    code, out, _ = cli("models", "--check", tiny_folder)
    assert code == 0
    assert out.count(" ok") == 6


def rows(count: int, classes: tuple[str, ...]) -> str:
    lines = (json.dumps({"text": f"text {number}", "label": classes[number % len(classes)]}) for number in range(count))
    return "\n".join(lines) + "\n"


def written(tmp_path: Path, name: str, content: str) -> Path:
    file = tmp_path / name
    file.write_text(content)
    return file


def missing_column(tmp_path: Path) -> list[object]:
    return ["--task", written(tmp_path, "a.csv", "words,label\nhello,x\n")]


def empty_file(tmp_path: Path) -> list[object]:
    return ["--task", written(tmp_path, "a.jsonl", "")]


def one_class_only(tmp_path: Path) -> list[object]:
    return ["--task", written(tmp_path, "a.jsonl", rows(90, ("only",))), *SMALL]


def too_many_classes(tmp_path: Path) -> list[object]:
    return ["--task", "words", "--classes", "40"]


def label_of_two_tokens(tmp_path: Path) -> list[object]:
    return ["--task", written(tmp_path, "a.jsonl", rows(90, ("quixotic", "zephyr"))), "--labels", "own", *SMALL]


def same_first_token(tmp_path: Path) -> list[object]:
    file = written(tmp_path, "a.jsonl", rows(90, ("zz one", "zz two")))
    return ["--task", file, "--labels", "own", "--label-pieces", "first", *SMALL]


def latin_specification(tmp_path: Path) -> list[object]:
    (tmp_path / "spec.json").write_bytes('{"task": "w\u00f6rds"}'.encode("latin-1"))
    return ["--spec", tmp_path / "spec.json"]


def words_for_layers(tmp_path: Path) -> list[object]:
    return [*SMALL, "--residual-layers", "abc"]


def absent_layer(tmp_path: Path) -> list[object]:
    return [*SMALL, "--residual-layers", "99"]


def too_long(tmp_path: Path) -> list[object]:
    texts = [{"text": "long " * 1500 + str(number), "label": "ab"[number % 2]} for number in range(40)]
    file = written(tmp_path, "a.jsonl", "".join(json.dumps(text) + "\n" for text in texts))
    return ["--task", file, "--classes", "2", "--shots", "8", "--queries", "1", "--size", "6"]


def unknown_device(tmp_path: Path) -> list[object]:
    return [*SMALL, "--device", "abacus"]


def unknown_shots(tmp_path: Path) -> list[object]:
    return ["--shots", "many"]


def missing_specification(tmp_path: Path) -> list[object]:
    return ["--spec", tmp_path / "none.json"]


BAD_PROMPTS = {
    missing_column: "text",
    empty_file: "empty",
    one_class_only: "only one class",
    too_many_classes: "classes",
    label_of_two_tokens: "token",
    same_first_token: "first token",
    unknown_shots: "shots",
    latin_specification: "not UTF-8",
    words_for_layers: "whole numbers",
    absent_layer: "has the layers 0 to 2",
    too_long: "reads at most",
    unknown_device: "cannot be used here",
    missing_specification: "does not exist",
}


@pytest.mark.parametrize("case", BAD_PROMPTS, ids=lambda case: case.__name__)
def test_bad_prompts_are_one_clear_line_and_exit_code_2(
    cli: Cli, tiny_folder: Path, tmp_path: Path, case: Callable[[Path], list[object]]
) -> None:
    code, out, err = cli("extract", "--model", tiny_folder, "--out", tmp_path / "r.zarr", "--quiet", *case(tmp_path))
    assert code == 2
    assert out == ""
    assert err.startswith("readout: ")
    assert err.count("\n") == 1
    assert BAD_PROMPTS[case] in err


def test_an_unsupported_architecture_is_refused_by_name(cli: Cli, tmp_path: Path, tiny_folder: Path) -> None:
    from transformers import BloomConfig, BloomForCausalLM

    BloomForCausalLM(BloomConfig(vocab_size=64, hidden_size=16, n_layer=2, n_head=2)).save_pretrained(tmp_path / "m")
    Tokenizer.from_file(str(tiny_folder / "tokenizer.json")).save(str(tmp_path / "m" / "tokenizer.json"))
    (tmp_path / "m" / "tokenizer_config.json").write_text((tiny_folder / "tokenizer_config.json").read_text())
    code, _, err = cli("extract", "--model", tmp_path / "m", "--out", tmp_path / "r.zarr", *SMALL)
    assert code == 2
    assert "BloomForCausalLM is not supported" in err
    assert "Llama" in err


@pytest.mark.parametrize("name", ["no-such-model", "./nowhere", "missing.gguf"])
def test_a_model_that_cannot_be_found_is_named(cli: Cli, tmp_path: Path, name: str) -> None:
    code, _, err = cli("extract", "--model", name, "--out", tmp_path / "r.zarr")
    assert code == 2
    assert name in err


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory, tiny_folder: Path) -> Path:
    """The main job, step by step, on the tiny random model."""
    folder = tmp_path_factory.mktemp("steps")
    base = [sys.executable, "-m", "readout"]
    common = ["--model", str(tiny_folder), "--quiet", *SMALL]
    subprocess.run([*base, "extract", "--out", str(folder / "fit.zarr"), *common], check=True)
    subprocess.run([*base, "extract", "--out", str(folder / "target.zarr"), "--seed", "9", *common], check=True)
    return folder


def test_fit_and_validate_go_on_from_records(cli: Cli, done: Path) -> None:
    code, out, _ = cli("fit", done / "fit.zarr", "--out", done / "fit.json")
    assert code == 0
    assert "accuracy" in out
    code, out, _ = cli(
        "validate", done / "fit.json", "--record", done / "fit.zarr", "--target", done / "target.zarr",
        "--out", done / "validated", "--json",
    )  # fmt: skip
    assert code == 0
    report = json.loads(out)
    assert {"kl", "tv", "mae", "brier", "agreement"} <= report["validation"]["links"]["share"].keys()
    assert (done / "validated" / "figures" / "validation_table.pdf").exists()


def test_links_are_given_by_commas_or_one_by_one(cli: Cli, done: Path) -> None:
    told = []
    for links in (("--link", "power,share"), ("--link", "power", "--link", "share", "--link", "power")):
        code, out, _ = cli("fit", done / "fit.zarr", "--out", done / "fit.json", "--json", *links)
        assert code == 0
        told.append(json.loads(out)["choice"]["candidates"])
    assert told[0] == told[1]
    assert {candidate["link"] for candidate in told[0]} == {"share", "power"}
    code, _, err = cli("fit", done / "fit.zarr", "--out", done / "fit.json", "--link", "share,pow")
    assert code == 2
    assert "expected one of share, power, gain, gain_per_head, got 'pow'" in err


def test_strict_exits_with_its_own_code_when_a_random_model_does_not_do_the_task(cli: Cli, done: Path) -> None:
    code, out, _ = cli("fit", done / "fit.zarr", "--out", done / "fit.json", "--strict")
    assert code == readout.cli.NO_GROUND == 3
    assert "WITHOUT GROUND" in out


def test_a_place_that_cannot_be_written_is_named_before_anything_is_computed(
    cli: Cli, done: Path, tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = written(tmp_path, "taken.txt", "mine")
    monkeypatch.setattr("readout.models.load_model", lambda *_: pytest.fail("the model was loaded"))
    for arguments in (
        ("extract", "--model", tiny_folder, "--out", taken),
        ("run", "--model", tiny_folder, "--out", taken),
        ("run", "--model", tiny_folder, "--out", "/proc/nowhere"),
        ("fit", done / "fit.zarr", "--out", tmp_path),
        ("validate", done / "fit.json", "--record", done / "fit.zarr", "--target", done / "fit.zarr", "--out", taken),
        ("fit", taken, "--out", tmp_path / "fit.json"),
        ("fit", done / "fit.zarr", "--out", tmp_path / "fit.json", "--seed", "-1"),
    ):
        code, _, err = cli(*arguments)
        assert code == 2, arguments
        assert err.count("\n") == 1, arguments
    assert taken.read_text() == "mine"


def test_records_that_would_make_the_report_false_are_refused(
    cli: Cli, done: Path, tiny_folder: Path, tmp_path: Path
) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    cli("fit", done / "fit.zarr", "--out", done / "fit.json")
    other = AutoModelForCausalLM.from_pretrained(tiny_folder)
    with torch.no_grad():
        other.get_input_embeddings().weight[:] += 0.1
    other.save_pretrained(tmp_path / "other")
    AutoTokenizer.from_pretrained(tiny_folder).save_pretrained(tmp_path / "other")
    cli("extract", "--model", tmp_path / "other", "--out", tmp_path / "other.zarr", "--quiet", *SMALL, "--seed", "9")
    fit, target = ("--record", done / "fit.zarr"), ("--target", done / "target.zarr")
    for arguments, complaint in (
        ((*fit, "--target", tmp_path / "other.zarr"), "of another model"),
        ((*fit, "--target", done / "fit.zarr"), "nothing would be held out"),
        (("--record", done / "target.zarr", *target), "fitted to another record"),
        ((*fit, *target, "--replicate", done / "target.zarr"), "another seed"),
    ):
        code, _, err = cli("validate", done / "fit.json", *arguments)
        assert code == 2, complaint
        assert complaint in err


def test_too_few_contexts_are_refused_before_anything_is_computed(cli: Cli, tiny_folder: Path, tmp_path: Path) -> None:
    code, _, err = cli("run", "--model", tiny_folder, "--out", tmp_path / "run", *SMALL[:-1], "5")
    assert code == 2
    assert "5 contexts, readers need at least 6" in err
    assert not (tmp_path / "run" / "fit").exists()


def test_a_file_that_is_no_fit_is_named(cli: Cli, done: Path, tmp_path: Path) -> None:
    file = written(tmp_path, "a.json", "[]")
    code, _, err = cli("validate", file, "--record", done / "fit.zarr", "--target", done / "target.zarr")
    assert code == 2
    assert "fit.json" in err


def test_a_corrupt_record_is_one_clear_line(cli: Cli, done: Path, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(done / "fit.zarr", tmp_path / "fit.zarr")
    (tmp_path / "fit.zarr" / "attention" / "zarr.json").write_text("{")
    code, _, err = cli("fit", tmp_path / "fit.zarr", "--out", tmp_path / "fit.json")
    assert code == 2
    assert err.count("\n") == 1
    assert "extract it again" in err


def test_a_target_without_matching_demonstrations_is_refused(cli: Cli, done: Path, tiny_folder: Path) -> None:
    cli("fit", done / "fit.zarr", "--out", done / "fit.json")
    code, _, _ = cli("extract", "--model", tiny_folder, "--out", done / "none.zarr", "--quiet", *SMALL, "--shots", "0")
    assert code == 0
    code, _, err = cli("validate", done / "fit.json", "--record", done / "fit.zarr", "--target", done / "none.zarr")
    assert code == 2
    assert err.count("\n") == 1
    assert "without demonstrations" in err
