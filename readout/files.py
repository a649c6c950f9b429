"""Writing results: whole or not at all, and with an error that names the place."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

from readout.errors import ReadoutError


def writable_folder(path: str | Path) -> Path:
    """The folder, made if need be.

    Raises
    ------
    ReadoutError
        If it is a file or a URL, or cannot be made or written to.
    """
    path = _local(path)
    if path.exists() and not path.is_dir():
        raise ReadoutError(f"{path} is a file: give a folder to write to")
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ReadoutError(f"{path} cannot be made ({error.strerror}): give a folder that can be written to") from error
    if not os.access(path, os.W_OK):
        raise ReadoutError(f"{path} cannot be written to: give another folder")
    return path


def writable_file(path: str | Path) -> Path:
    """The file's path, its folder made if need be.

    Raises
    ------
    ReadoutError
        If it is a folder or a URL, or its folder cannot be written to.
    """
    path = _local(path)
    if path.is_dir():
        raise ReadoutError(f"{path} is a folder: give a file to write")
    writable_folder(path.parent)
    return path


def _local(path: str | Path) -> Path:
    # A Path has made one slash of a URL's two.
    if re.match(r"[a-z][a-z0-9+.-]+:/", str(path)):
        raise ReadoutError(
            f"{path} is a URL: results and figures are written to a local folder, only records are kept at URLs "
            "(readout extract)"
        )
    return Path(path)


def write_text(path: str | Path, text: str) -> None:
    """Write text beside its place and move it there, so that a stopped run leaves no half file."""
    path = writable_file(path)
    scratch = path.with_name(f".{path.name}.partial")
    scratch.write_text(text, encoding="utf-8")
    scratch.replace(path)


def write_json(path: str | Path, data: Any) -> None:
    """Write a result as JSON, whole or not at all; NaN is refused."""
    write_text(path, json.dumps(data, indent=1, allow_nan=False) + "\n")
