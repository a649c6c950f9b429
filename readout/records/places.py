"""Where a record is kept: a local folder, or any file system that fsspec knows by a URL (s3://, gs://, memory://)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import fsspec
import zarr

from readout.errors import RecordError
from readout.files import writable_folder

Place = Path | str
"""A local folder, or the URL of a remote one."""


def place_of(where: str | Path) -> Place:
    """The folder that ``where`` names, ``file://`` being one too, or else the URL itself.

    Raises
    ------
    RecordError
        If no file system goes by that URL, or the package that it needs is not installed.
    """
    if isinstance(where, Path) or "://" not in where:
        return Path(where)
    files, path = _files(where)
    return Path(path) if "file" in _protocols(files) else where


def open_store(place: Place, read_only: bool = False) -> Any:
    """The zarr store at a place."""
    if isinstance(place, Path):
        return zarr.storage.LocalStore(place, read_only=read_only)
    return zarr.storage.FsspecStore.from_url(place, read_only=read_only)


def is_there(place: Place) -> bool:
    """Whether there is anything at the place.

    Raises
    ------
    RecordError
        If it is a file, or a remote one that cannot be reached.
    """
    if isinstance(place, Path):
        found, is_file = place.exists(), place.is_file()
    else:
        files, path = _files(place)
        files.invalidate_cache()
        try:
            found, is_file = files.exists(path), files.isfile(path)
        except Exception as error:  # every file system raises its own where it is not reached or not let in
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise RecordError(f"{place} cannot be reached ({reason}): check the URL and the credentials") from error
    if is_file:
        raise RecordError(f"{place} is a file: a record is a folder, written by readout extract")
    return bool(found)


def writable_place(where: str | Path) -> Place:
    """The place that ``where`` names: a local folder is made if need be, a remote one is reached.

    Raises
    ------
    ReadoutError
        If it is a file, or cannot be made, written to or reached.
    """
    place = place_of(where)
    if isinstance(place, Path):
        return writable_folder(place)
    is_there(place)
    return place


def is_empty(place: Place) -> bool:
    """Whether there is nothing at the place but what a killed writer may leave."""
    if isinstance(place, Path):
        return not place.exists() or all(file.name.endswith(".partial") for file in place.iterdir())
    files, path = _files(place)
    files.invalidate_cache()
    return not files.exists(path) or not files.ls(path, detail=False)


def _files(url: str) -> tuple[Any, str]:
    try:
        files, path = fsspec.url_to_fs(url)
    except ImportError as error:
        package = getattr(error.__cause__, "name", None) or error.name
        raise RecordError(
            f"{url} needs the package {package}, which is not installed: run pip install {package}"
        ) from error
    except ValueError as error:
        raise RecordError(
            f"{url} cannot be used ({error}): give a folder, or a URL that fsspec knows, such as s3://BUCKET/NAME"
        ) from error
    return files, path


def _protocols(files: Any) -> tuple[str, ...]:
    return (files.protocol,) if isinstance(files.protocol, str) else tuple(files.protocol)
