"""Records: what they hold equals a plain pass over each prompt, and a stopped extraction ends with the same bytes."""

import dataclasses
import hashlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
import xarray as xr

from readout.errors import RecordError
from readout.models import LanguageModel
from readout.prompts import PromptDistribution, tokenize
from readout.records import ExtractionOptions, extract, head_names, middle_layers, open_record, provenance
from readout.records.store import RecordStore

MIXED = PromptDistribution(task="words", classes=2, shots=((1, 2), (3, 1)), queries=3, size=30, seed=5)


@pytest.fixture(scope="module")
def record(tiny_model: LanguageModel) -> xr.Dataset:
    return extract(tiny_model, MIXED, options=ExtractionOptions(residual_layers=(1,)))


def bytes_of(folder: Path) -> dict[str, str]:
    """Digest of every file below a folder."""
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    return {str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def test_attention_and_label_probabilities_equal_a_plain_pass_over_each_prompt(
    tiny_model: LanguageModel, record: xr.Dataset
) -> None:
    model = tiny_model.model
    model.set_attn_implementation("eager")
    try:
        for number, one in enumerate(tokenize(MIXED.prompts(), tiny_model.tokenizer)[:20]):
            with torch.no_grad():
                plain = model(torch.from_numpy(one.token_ids)[None], output_attentions=True, output_hidden_states=True)
            row = torch.cat([layer[0, :, -1] for layer in plain.attentions]).numpy()
            k = len(one.label_positions)
            np.testing.assert_allclose(record.attention[number, :, :k], row[:, one.label_positions], atol=1e-6)
            np.testing.assert_allclose(record.sink[number], row[:, 0], atol=1e-6)
            expected = plain.logits[0, -1].log_softmax(-1)[one.label_ids].numpy()
            np.testing.assert_allclose(record.label_logprob[number], expected, atol=1e-5)
            hidden = plain.hidden_states[1][0].numpy()
            np.testing.assert_allclose(record.query_residual[number, 0], hidden[-1], atol=1e-5)
            before_label = record.demonstration_residual[one.prompt.context, 0, :k]
            np.testing.assert_allclose(before_label, hidden[one.label_positions - 1], atol=1e-5)
    finally:
        model.set_attn_implementation("readout")


def test_prompts_shorter_than_the_longest_are_padded_with_nothing(record: xr.Dataset) -> None:
    shown = record.demonstration_label.values >= 0
    assert set(shown.sum(1)) == {3, 4}
    assert (np.isfinite(record.attention.values) == shown[:, None]).all()


def test_the_record_describes_its_prompts(record: xr.Dataset) -> None:
    for number, prompt in enumerate(MIXED.prompts()):
        names, words = record.attrs["class_names"], record.attrs["label_words"]
        assert names[int(record.query_class[number])] == prompt.query_class
        shown = record.demonstration_class.values[number]
        assert [names[c] for c in shown if c >= 0] == [d.class_name for d in prompt.demonstrations]
        assert words[int(record.label_word[number, int(record.query_label[number])])] == prompt.correct_label
        labels = record.demonstration_label.values[number]
        assert [prompt.labels[label] for label in labels if label >= 0] == [d.label for d in prompt.demonstrations]


def test_sharing_a_context_changes_nothing(tiny_model: LanguageModel, record: xr.Dataset) -> None:
    options = ExtractionOptions(residual_layers=(1,), share_contexts=False)
    apart = extract(tiny_model, MIXED, options=options)
    for name in ("attention", "sink", "label_logprob", "label_effect", "query_residual", "demonstration_residual"):
        np.testing.assert_allclose(apart[name], record[name], atol=2e-5, err_msg=name)


def test_heads_are_named_by_layer_and_query_head(record: xr.Dataset) -> None:
    assert head_names(record)[:5] == ["L0H0", "L0H1", "L0H2", "L0H3", "L1H0"]


def test_provenance_says_model_precision_and_versions(record: xr.Dataset) -> None:
    found = provenance(record)
    assert found["model"]["dtype"] == "float32"
    assert found["model"]["architecture"] == "Qwen3ForCausalLM"
    assert found["versions"]["torch"] == torch.__version__


class Stopped(Exception):
    pass


def test_an_extraction_stopped_between_chunks_ends_with_the_same_bytes(
    tiny_model: LanguageModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    extract(tiny_model, MIXED, tmp_path / "whole.zarr")
    write = RecordStore.write
    calls = 0

    def write_every_other_time(self: RecordStore, chunk: int, values: Mapping[str, np.ndarray]) -> None:
        nonlocal calls
        calls += 1
        if calls % 2 == 0:
            raise Stopped
        write(self, chunk, values)

    monkeypatch.setattr(RecordStore, "write", write_every_other_time)
    for _ in range(2):
        with pytest.raises(Stopped):
            extract(tiny_model, MIXED, tmp_path / "stopped.zarr")
    with pytest.raises(RecordError, match="unfinished: 1 of 3 chunks"):
        open_record(tmp_path / "stopped.zarr")
    monkeypatch.setattr(RecordStore, "write", write)
    extract(tiny_model, MIXED, tmp_path / "stopped.zarr")
    assert bytes_of(tmp_path / "stopped.zarr") == bytes_of(tmp_path / "whole.zarr")


@pytest.mark.slow
def test_a_process_killed_twice_at_random_ends_with_the_same_bytes(tiny_folder: Path, tmp_path: Path) -> None:
    distribution = dataclasses.replace(MIXED, size=300)
    (tmp_path / "spec.json").write_text(distribution.to_json())
    program = (
        "import sys\nfrom readout.models import load_model\nfrom readout.prompts import PromptDistribution\n"
        "from readout.records import extract\nfolder, spec, out = sys.argv[1:]\n"
        "extract(load_model(folder, device='cpu', self_test=False),"
        " PromptDistribution.from_json(open(spec).read()), out)\n"
    )
    rng = np.random.default_rng(time.time_ns())

    def run(out: str) -> subprocess.Popen[bytes]:
        arguments = [sys.executable, "-c", program, str(tiny_folder), str(tmp_path / "spec.json"), str(tmp_path / out)]
        return subprocess.Popen(arguments, env=os.environ | {"OMP_NUM_THREADS": "1"})

    assert run("whole.zarr").wait() == 0
    written = tmp_path / "killed.zarr" / "chunk_written" / "c"
    killed = 0
    for goal in (1, 12):
        process = run("killed.zarr")
        while process.poll() is None and (not written.exists() or len(list(written.iterdir())) < goal):
            time.sleep(0.005)
        time.sleep(float(rng.uniform(0, 0.1)))
        process.send_signal(signal.SIGKILL)
        killed += process.wait() == -signal.SIGKILL
    assert killed == 2
    assert run("killed.zarr").wait() == 0
    assert bytes_of(tmp_path / "killed.zarr") == bytes_of(tmp_path / "whole.zarr")


def test_a_record_of_another_specification_is_refused(tiny_model: LanguageModel, tmp_path: Path) -> None:
    extract(tiny_model, MIXED, tmp_path / "record.zarr")
    other = dataclasses.replace(MIXED, seed=6)
    with pytest.raises(RecordError, match=r'another specification.*"seed": 5.* there'):
        extract(tiny_model, other, tmp_path / "record.zarr")


def test_a_store_stopped_while_it_was_created_is_begun_anew(
    tiny_model: LanguageModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from readout.records import store

    extract(tiny_model, MIXED, tmp_path / "whole.zarr")
    make, calls = store._array, 0

    def stop_at_the_sixth(*args: object, **kwargs: object) -> object:
        nonlocal calls
        calls += 1
        if calls == 6:
            raise Stopped
        return make(*args, **kwargs)

    monkeypatch.setattr(store, "_array", stop_at_the_sixth)
    with pytest.raises(Stopped):
        extract(tiny_model, MIXED, tmp_path / "stopped.zarr")
    extract(tiny_model, MIXED, tmp_path / "stopped.zarr")
    assert bytes_of(tmp_path / "stopped.zarr") == bytes_of(tmp_path / "whole.zarr")


def test_a_folder_with_other_things_in_it_is_left_alone(tiny_model: LanguageModel, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(RecordError, match="not a record"):
        extract(tiny_model, MIXED, tmp_path)
    assert (tmp_path / "thesis.txt").read_text() == "years of work"


@pytest.mark.parametrize("damage", ["truncated", "missing", "garbage metadata", "impossible values"])
def test_a_corrupt_record_is_refused(tiny_model: LanguageModel, tmp_path: Path, damage: str) -> None:
    folder = tmp_path / "record.zarr"
    extract(tiny_model, MIXED, folder)
    chunk = folder / "attention" / "c" / "0" / "0" / "0"
    match damage:
        case "truncated":
            chunk.write_bytes(chunk.read_bytes()[:40])
        case "missing":
            chunk.unlink()
        case "garbage metadata":
            (folder / "zarr.json").write_text("{")
        case "impossible values":
            import zarr

            zarr.open_group(str(folder), mode="r+")["attention"][0] = 3.0
    with pytest.raises(RecordError, match="record"):
        open_record(folder)


def test_a_missing_record_is_named(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="does not exist"):
        open_record(tmp_path / "nowhere.zarr")


def test_residual_streams_at_labels_and_of_a_pass_blind_to_labels_equal_masked_plain_passes(
    tiny_model: LanguageModel,
) -> None:
    options = ExtractionOptions(residual_layers=(0, 1), label_residuals=True, blind=True)
    record = extract(tiny_model, MIXED, options=options)
    model = tiny_model.model
    model.set_attn_implementation("eager")
    try:
        for number, one in enumerate(tokenize(MIXED.prompts(), tiny_model.tokenizer)[:6]):
            labels, k, context = one.label_positions, len(one.label_positions), one.prompt.context
            seen = torch.ones(len(one.token_ids), len(one.token_ids), dtype=torch.bool).tril()
            ids = torch.from_numpy(one.token_ids)[None]
            with torch.no_grad():
                plain = model(ids, output_hidden_states=True).hidden_states[1][0].numpy()
                seen[:, labels] = False
                seen[range(len(seen)), range(len(seen))] = True
                mask = torch.where(seen, 0.0, torch.finfo(torch.float32).min)[None, None]
                blind = model(ids, attention_mask=mask, output_hidden_states=True).hidden_states[1][0].numpy()
            np.testing.assert_allclose(record.label_residual[context, 1, :k], plain[labels], atol=1e-5)
            np.testing.assert_allclose(record.blind_query_residual[number, 1], blind[-1], atol=1e-5)
            before_label = record.blind_demonstration_residual[context, 1, :k]
            np.testing.assert_allclose(before_label, blind[labels - 1], atol=1e-5)
            assert np.abs(plain[-1] - blind[-1]).max() > 1e-3
    finally:
        model.set_attn_implementation("readout")


def test_a_blind_pass_without_layers_to_keep_is_refused(tiny_model: LanguageModel) -> None:
    with pytest.raises(RecordError, match="name residual_layers too"):
        extract(tiny_model, MIXED, options=ExtractionOptions(blind=True))


def test_the_middle_layers_are_those_from_half_to_two_thirds_of_the_depth() -> None:
    assert middle_layers(30) == (15, 16, 17, 18, 19, 20)
    assert middle_layers(12) == (6, 7, 8)
    assert middle_layers(4) == (0, 1, 2, 3)


def test_options_that_are_not_used_do_not_change_what_a_record_is_of() -> None:
    assert "blind" not in ExtractionOptions().specified()
    assert ExtractionOptions(residual_layers=(1,), blind=True).specified()["blind"] is True
