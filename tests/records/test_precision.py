"""Precision: deviations are those of the records themselves, and a record says in which precision it was made."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

import readout.cli
from readout.models import load_model
from readout.prompts import PromptDistribution
from readout.records import extract, provenance
from readout.records.precision import measure_precision

FEW = PromptDistribution(task="words", classes=2, shots=2, queries=2, size=6, seed=3)


def test_deviations_are_those_between_two_records(tiny_folder: Path) -> None:
    report = measure_precision(str(tiny_folder), FEW, ("bfloat16",), device="cpu")
    exact, low = (extract(load_model(str(tiny_folder), dtype, "cpu"), FEW) for dtype in ("float32", "bfloat16"))
    assert provenance(low)["model"]["dtype"] == "bfloat16"
    moved = np.abs(low.attention.values - exact.attention.values)
    own, lower = report.rows
    assert (own.dtype, lower.dtype) == ("float32", "bfloat16")
    assert lower.attention_moved_most == moved.max() > own.attention_moved_most == 0
    layer, head = low.layer.values, low.head_in_layer.values
    worst = int(moved.max((0, 2)).argmax())
    assert lower.head_moved_most == f"L{layer[worst]}H{head[worst]}"
    shifted = np.abs(np.exp(low.label_logprob.values) - np.exp(exact.label_logprob.values))
    assert lower.probability_moved == pytest.approx(shifted.mean())
    assert lower.label_mass == pytest.approx(np.exp(low.label_logprob.values).sum(1).mean())


def test_float16_moves_less_than_bfloat16(tiny_folder: Path) -> None:
    _, bfloat16, float16 = measure_precision(str(tiny_folder), FEW, device="cpu").rows
    assert float16.attention_moved < bfloat16.attention_moved / 3
    assert float16.probability_moved < bfloat16.probability_moved / 3


def test_the_command_prints_all_precisions_as_a_table_or_as_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    printed = []
    for more in ([], ["--json"]):
        arguments = ["readout", "models", "--precision", "tiny", "--contexts", "2", "--device", "cpu", *more]
        monkeypatch.setattr(sys, "argv", arguments)
        with pytest.raises(SystemExit):
            readout.cli.main()
        printed.append(capsys.readouterr().out)
    assert printed[0].splitlines()[2].split() == ["float32", "bfloat16", "float16"]
    found = json.loads(printed[1])
    assert [row["dtype"] for row in found["rows"]] == ["float32", "bfloat16", "float16"]
    assert found["prompts"] == 8
