"""Extraction: run a model over a prompt distribution and write the record, chunk by chunk."""

from __future__ import annotations

from pathlib import Path

import xarray as xr
from tqdm import tqdm

from readout.models.language_model import LanguageModel
from readout.prompts import PromptDistribution
from readout.records.chunks import Chunks
from readout.records.options import ExtractionOptions
from readout.records.places import writable_place


def extract(
    model: LanguageModel,
    distribution: PromptDistribution,
    out: str | Path | None = None,
    options: ExtractionOptions | None = None,
    progress: bool = False,
) -> xr.Dataset:
    """Record what ``model`` does on the prompts of ``distribution``.

    Parameters
    ----------
    model : a loaded model with its tokenizer
    distribution : the prompts
    out : folder of the zarr store, or a URL that fsspec knows (s3://, gs://, memory://, file://); None keeps the
        record in memory. A store of the same specification is gone on with, and ends with the same bytes as one that
        was never stopped.
    options : what to read
    progress : show a bar with rate and time left

    Returns
    -------
    xarray.Dataset (`readout.records.schema`)

    Raises
    ------
    PromptError
        If a label is not one distinct token, or a prompt is longer than the model's context.
    RecordError
        If ``out`` holds something else, cannot be reached, or needs a package that is not installed.
    """
    chunks = Chunks(model, distribution, options or ExtractionOptions())
    store = chunks.store(None if out is None else writable_place(out))
    missing = set(store.missing())
    total, left = len(chunks.prompts), sum(chunks.size_of(chunk) for chunk in missing)
    with tqdm(total=total, initial=total - left, unit="prompt", desc="extract", disable=not progress) as bar:
        for group in chunks.groups():
            if missing.isdisjoint(group):
                continue
            for chunk, values in chunks.read(group):
                if chunk in missing:
                    store.write(chunk, values)
                    bar.update(chunks.size_of(chunk))
    return store.dataset()
