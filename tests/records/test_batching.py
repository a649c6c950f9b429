"""Batches: what is read does not depend on them, and one that does not fit is halved."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import xarray as xr
import zarr

from readout.errors import RecordError
from readout.models import LanguageModel, PackedBatch
from readout.models.language_model import Reading
from readout.prompts import PromptDistribution
from readout.records import ExtractionOptions, extract, open_record, provenance
from readout.records.batching import Batches

MIXED = PromptDistribution(task="words", classes=2, shots=((1, 2), (5, 3)), queries=3, size=30, seed=5)
KEPT = {"residual_layers": (1,), "blind": True}


@pytest.fixture(scope="module")
def record(tiny_model: LanguageModel) -> xr.Dataset:
    return extract(tiny_model, MIXED, options=ExtractionOptions(**KEPT))


def assert_equal(one: xr.Dataset, other: xr.Dataset) -> None:
    assert set(one.data_vars) == set(other.data_vars)
    for name in one.data_vars:
        np.testing.assert_allclose(one[name], other[name], atol=2e-5, err_msg=str(name))


def limited(model: LanguageModel, monkeypatch: pytest.MonkeyPatch, tokens: int) -> list[tuple[int, bool]]:
    """Let the model run out of memory beyond so many tokens; returns the sizes that are tried, and whether they fit."""
    run, tried = LanguageModel.run, []

    def run_in_memory(self: LanguageModel, batch: PackedBatch, *args: object, **kwargs: object) -> Reading:
        fits = batch.token_ids.numel() <= tokens
        tried.append((batch.token_ids.numel(), fits))
        if not fits:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return run(self, batch, *args, **kwargs)

    monkeypatch.setattr(LanguageModel, "run", run_in_memory)
    return tried


@pytest.mark.parametrize("tokens", [1, 150, 400, 100_000])
def test_what_is_read_does_not_depend_on_the_batch(tiny_model: LanguageModel, record: xr.Dataset, tokens: int) -> None:
    assert_equal(extract(tiny_model, MIXED, options=ExtractionOptions(**KEPT, batch_tokens=tokens)), record)


def test_rows_of_alike_lengths_go_together_and_fill_the_batch() -> None:
    length = {0: 10, 1: 50, 2: 12, 3: 49, 4: 11}
    batches = Batches(100).run([[one] for one in length], lambda row: length[row[0]], lambda batch: None)
    assert [batch for batch, _ in batches] == [[[1], [3]], [[2], [4], [0]]]


def test_a_batch_that_does_not_fit_is_halved_and_so_are_those_after_it(
    tiny_model: LanguageModel, record: xr.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = limited(tiny_model, monkeypatch, 500)
    assert_equal(extract(tiny_model, MIXED, options=ExtractionOptions(**KEPT, batch_tokens=100_000)), record)
    sizes, fitted = zip(*tried, strict=True)
    first = fitted.index(True)
    assert all(sizes[number + 1] <= sizes[number] * 0.6 for number in range(first))
    assert all(fitted[first:])
    assert max(sizes[first:]) > 250


def test_a_context_that_does_not_fit_is_split_into_its_prompts(
    tiny_model: LanguageModel, record: xr.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    longest_prompt = int(record.n_tokens.max())
    limited(tiny_model, monkeypatch, longest_prompt)
    assert_equal(extract(tiny_model, MIXED, options=ExtractionOptions(**KEPT)), record)


def test_a_prompt_that_does_not_fit_by_itself_is_refused_with_what_to_do(
    tiny_model: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    limited(tiny_model, monkeypatch, 5)
    with pytest.raises(RecordError, match=r"tokens does not fit into memory by itself: use shorter prompts"):
        extract(tiny_model, MIXED)


def test_another_error_of_the_model_is_not_taken_for_a_lack_of_memory(
    tiny_model: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: object, **kwargs: object) -> None:
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    monkeypatch.setattr(LanguageModel, "run", broken)
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        extract(tiny_model, MIXED)


def test_a_stopped_record_may_go_on_with_other_batches_and_so_may_an_older_one_that_names_them(
    tiny_model: LanguageModel, tmp_path: Path
) -> None:
    extract(tiny_model, MIXED, tmp_path / "record.zarr", ExtractionOptions(batch_tokens=200))
    group = zarr.open_group(str(tmp_path / "record.zarr"), mode="r+")
    group["chunk_written"][1] = 0
    older = json.loads(group.attrs["specification"])
    older["options"]["batch_tokens"] = 2048
    group.attrs["specification"] = json.dumps(older, sort_keys=True)
    extract(tiny_model, MIXED, tmp_path / "record.zarr", ExtractionOptions(batch_tokens=300))
    found = open_record(tmp_path / "record.zarr")
    assert provenance(found)["options"]["batch_tokens"] == 200
    assert_equal(found, extract(tiny_model, MIXED))
