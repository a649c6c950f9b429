"""Places of records: a URL holds the same bytes as a folder, is gone on with, and is refused in one line."""

import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
import xarray as xr
from fsspec.implementations.local import LocalFileSystem

import readout.cli
from readout.errors import ReadoutError, RecordError
from readout.files import writable_file, writable_folder
from readout.models import LanguageModel
from readout.prompts import PromptDistribution
from readout.records import extract, open_record
from readout.records.places import place_of
from readout.records.store import RecordStore

FEW = PromptDistribution(task="words", classes=2, shots=2, queries=3, size=30, seed=5)


class Disk(LocalFileSystem):
    """The local file system under a name of its own, so that zarr reaches it as it reaches a remote one."""

    protocol = "disk"

    def __init__(self, **options: Any) -> None:
        super().__init__(**options | {"auto_mkdir": True})


@pytest.fixture(params=["file", "disk", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[str], str]]:
    """URL of a record by its name, on each file system in turn."""
    fsspec.register_implementation("disk", Disk, clobber=True)
    yield lambda name: f"{request.param}://{tmp_path}/a place/{name}"
    fsspec.filesystem("memory").store.clear()


def bytes_at(url: str) -> dict[str, bytes]:
    """Every file below a URL."""
    files, path = fsspec.url_to_fs(url)
    return {file.removeprefix(path).lstrip("/"): files.cat_file(file) for file in files.find(path)}


def stop_at_second_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    write, calls = RecordStore.write, []

    def write_once(self: RecordStore, chunk: int, values: Mapping[str, np.ndarray]) -> None:
        calls.append(chunk)
        if len(calls) == 2:
            raise InterruptedError
        write(self, chunk, values)

    monkeypatch.setattr(RecordStore, "write", write_once)


def test_a_url_holds_the_same_bytes_as_a_folder_and_reads_as_the_same_record(
    tiny_model: LanguageModel, tmp_path: Path, place: Callable[[str], str]
) -> None:
    local = extract(tiny_model, FEW, tmp_path / "local.zarr")
    remote = extract(tiny_model, FEW, place("record.zarr"))
    assert len(bytes_at(str(tmp_path / "local.zarr"))) > 30
    assert bytes_at(place("record.zarr")) == bytes_at(str(tmp_path / "local.zarr"))
    xr.testing.assert_identical(remote, local)
    xr.testing.assert_identical(open_record(place("record.zarr")), local)


def test_an_extraction_to_a_url_that_was_stopped_goes_on_and_ends_with_the_same_bytes(
    tiny_model: LanguageModel, tmp_path: Path, place: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    extract(tiny_model, FEW, tmp_path / "whole.zarr")
    with monkeypatch.context() as patch:
        stop_at_second_chunk(patch)
        with pytest.raises(InterruptedError):
            extract(tiny_model, FEW, place("record.zarr"))
    with pytest.raises(RecordError, match="unfinished: 2 of 3 chunks"):
        open_record(place("record.zarr"))
    written: list[int] = []
    write = RecordStore.write
    monkeypatch.setattr(
        RecordStore, "write", lambda self, chunk, values: (written.append(chunk), write(self, chunk, values))
    )
    extract(tiny_model, FEW, place("record.zarr"))
    assert written == [1, 2]
    assert bytes_at(place("record.zarr")) == bytes_at(str(tmp_path / "whole.zarr"))


def test_what_else_is_at_a_url_is_left_alone(tiny_model: LanguageModel, place: Callable[[str], str]) -> None:
    with fsspec.open(place("mine/thesis.txt"), "w", auto_mkdir=True) as file:
        file.write("years of work")
    with pytest.raises(RecordError, match="not a record"):
        extract(tiny_model, FEW, place("mine"))
    with pytest.raises(ReadoutError, match=r"thesis\.txt is a file"):
        extract(tiny_model, FEW, place("mine/thesis.txt"))
    assert list(bytes_at(place("mine")).values()) == [b"years of work"]


def test_a_record_of_another_specification_at_a_url_is_refused(
    tiny_model: LanguageModel, place: Callable[[str], str]
) -> None:
    extract(tiny_model, FEW, place("record.zarr"))
    with pytest.raises(RecordError, match=r"another specification.*\"shots\": 2.* there.*\"shots\": 1.* wanted"):
        extract(tiny_model, PromptDistribution.from_dict(FEW.to_dict() | {"shots": 1}), place("record.zarr"))


def test_a_missing_record_at_a_url_is_named(place: Callable[[str], str]) -> None:
    with pytest.raises(RecordError, match="nowhere does not exist"):
        open_record(place("nowhere"))


def test_a_file_url_is_the_local_folder(tmp_path: Path) -> None:
    assert place_of(f"file://{tmp_path}/record.zarr") == tmp_path / "record.zarr"


@pytest.mark.parametrize(("url", "package"), [("s3://bucket/record", "s3fs"), ("gs://bucket/record", "gcsfs")])
def test_a_file_system_whose_package_is_absent_is_refused_with_the_package_to_install(
    url: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(RecordError, match=f"needs the package {package}, which is not installed: run pip install"):
        open_record(url)


def test_an_unknown_file_system_is_refused() -> None:
    with pytest.raises(RecordError, match=r"nope://x cannot be used.*Protocol not known.*such as s3://"):
        open_record("nope://x")


def test_a_place_that_is_not_reached_is_named() -> None:
    class Locked(LocalFileSystem):
        protocol = "locked"

        def exists(self, path: str, **kwargs: object) -> bool:
            raise PermissionError("Access Denied\nrequest 7")

    fsspec.register_implementation("locked", Locked, clobber=True)
    with pytest.raises(RecordError, match=r"^locked://bucket/record cannot be reached \(Access Denied\): check"):
        open_record("locked://bucket/record")


@pytest.mark.parametrize("url", ["s3://bucket/run", "memory://run"])
def test_what_is_not_a_record_is_not_written_to_a_url(url: str) -> None:
    for writable in (writable_folder, writable_file):
        with pytest.raises(ReadoutError, match="is a URL: results and figures are written to a local folder"):
            writable(Path(url))


def test_the_main_job_step_by_step_takes_records_at_urls(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def cli(*arguments: object) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["readout", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            readout.cli.main()
        return int(stop.value.code or 0), capsys.readouterr().err

    few = ("--model", tiny_folder, "--quiet", "--classes", "2", "--shots", "2", "--queries", "2", "--size", "30")
    fit, target = "memory://step/fit.zarr", f"file://{tmp_path}/target.zarr"
    assert cli("extract", "--out", fit, *few) == (0, "")
    assert cli("extract", "--out", target, "--seed", "9", *few) == (0, "")
    assert cli("fit", fit, "--out", tmp_path / "fit.json") == (0, "")
    report = ("--record", fit, "--target", target, "--out", tmp_path / "report")
    assert cli("validate", tmp_path / "fit.json", *report) == (0, "")
    assert (tmp_path / "report" / "report.json").exists()
    code, error = cli("fit", fit, "--out", "s3://bucket/fit.json")
    assert code == 2
    assert "is a URL" in error
    code, error = cli("extract", "--out", "nope://x", *few)
    assert (code, error.count("\n")) == (2, 1)
    fsspec.filesystem("memory").store.clear()
