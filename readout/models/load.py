"""Loading a causal language model, ready to be read: in float32 unless asked, checked before it is used."""

from __future__ import annotations

import hashlib
from typing import Any

import torch

from readout.errors import ReadoutError
from readout.models.check import check
from readout.models.language_model import LanguageModel
from readout.models.sources import ModelSource, resolve, unpacked

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def load_model(
    name: str,
    dtype: str = "float32",
    device: str = "auto",
    revision: str | None = None,
    self_test: bool = True,
    **options: Any,
) -> LanguageModel:
    """Load a model and its tokenizer and make its attention readable.

    Parameters
    ----------
    name : short name, hub id, local folder or GGUF file (`readout.models.sources.resolve`)
    dtype : "float32", "bfloat16" or "float16": the precision of weights and computation
    device : "auto" (CUDA, then MPS, then CPU), or a torch device
    revision : hub revision
    self_test : check that reading and editing work on this model (`readout.models.check`)
    options : passed to transformers' ``from_pretrained`` (for instance ``device_map`` or ``quantization_config``)

    Returns
    -------
    LanguageModel

    Raises
    ------
    ReadoutError
        If the model cannot be found or loaded, or has no fast tokenizer.
    UnsupportedModelError
        If it can be loaded but not read rightly.
    """
    from transformers import AutoModelForCausalLM

    if dtype not in DTYPES:
        raise ReadoutError(f"unknown dtype {dtype!r}: expected one of {', '.join(DTYPES)}")
    source = resolve(name, revision)
    path = _folder(name, source)
    try:
        # Eager is the one implementation that every family has; the package's own replaces it right after.
        model: Any = AutoModelForCausalLM.from_pretrained(
            path, revision=revision, dtype=DTYPES[dtype], attn_implementation="eager", **options
        )
    except Exception as error:  # every format raises its own on a damaged file
        raise _not_loaded(name, path, error) from error
    tokenizer = load_tokenizer(name, revision)
    if "device_map" not in options:
        place = best_device() if device == "auto" else device
        try:
            model.to(place)
        except (RuntimeError, AssertionError) as error:
            reason = (str(error) or type(error).__name__).splitlines()[0]
            raise ReadoutError(
                f"device {place!r} cannot be used here ({reason}): expected auto, cpu, cuda or mps"
            ) from error
    loaded = LanguageModel(model, tokenizer, name, source.provenance | _details(model, dtype))
    if loaded.wiring.without_attention:
        loaded.provenance["layers_without_attention"] = list(loaded.wiring.without_attention)
    if self_test:
        report = check(loaded)
        loaded.can_share = report.can_share
        loaded.provenance["shares_contexts"] = report.can_share
    return loaded


def _folder(name: str, source: ModelSource) -> str:
    try:
        return str(unpacked(source)) if source.gguf_file else source.path
    except Exception as error:
        raise _not_loaded(name, str(source.gguf_file), error) from error


def load_tokenizer(name: str, revision: str | None = None) -> Any:
    """Load the tokenizer of a model without its weights; ``name`` as in `load_model`."""
    from transformers import AutoTokenizer

    source = resolve(name, revision)
    path = _folder(name, source)
    try:
        return AutoTokenizer.from_pretrained(path, revision=revision)
    except Exception as error:
        raise _not_loaded(name, path, error) from error


def _not_loaded(name: str, path: str, error: Exception) -> ReadoutError:
    first_line = (str(error).strip() or type(error).__name__).splitlines()[0]
    return ReadoutError(f"model {name!r} could not be loaded from {path}: {first_line} (offline, give a local folder)")


def quiet_transformers() -> None:
    """Turn off transformers' own progress bars and advice, where the package reports for itself."""
    from transformers.utils import logging

    silent: Any = logging
    silent.disable_progress_bar()
    silent.set_verbosity_error()


def best_device() -> str:
    """CUDA, then Apple's MPS, then the CPU."""
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def _details(model: Any, dtype: str) -> dict[str, Any]:
    config = model.config
    return {
        "architecture": type(model).__name__,
        "dtype": dtype,
        "device": str(model.device),
        "commit": getattr(config, "_commit_hash", None),
        "fingerprint": fingerprint(model),
    }


def fingerprint(model: torch.nn.Module) -> str:
    """Short digest of a model's weights: names, shapes, and a sample of values of every parameter."""
    digest = hashlib.sha256()
    for name, parameter in model.state_dict().items():
        flat = parameter.detach().flatten()
        sample = flat[:: max(1, flat.numel() // 16)][:16].float().cpu().numpy()
        digest.update(f"{name}{tuple(parameter.shape)}".encode() + sample.tobytes())
    return digest.hexdigest()[:16]
