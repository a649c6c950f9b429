"""The record: what a model did at the query of every prompt of a distribution.

An `xarray.Dataset` with the dimensions prompt, head, demonstration (padded to the longest prompt) and label (padded
likewise):

=============================================  =====================================================================
``attention[prompt, head, demonstration]``     A[n, h, i], attention weight from q to p_i; NaN: no demonstration
``sink[prompt, head]``                         attention weight from q to the prompt's first token
``label_logprob[prompt, label]``               log-probability at q over the whole vocabulary; NaN: no label
``label_effect[prompt, head, label]``          direct effect of the head's output on the label's logit
``demonstration_class[prompt, demonstration]`` index into ``attrs["class_names"]``, -1: none
``demonstration_label[prompt, demonstration]`` index along ``label``, -1: none
``query_class[prompt]``                        index into ``attrs["class_names"]``
``query_label[prompt]``                        index along ``label`` of the right label, -1: none
``label_class[prompt, label]``                 class that the label stands for, -1: none
``label_id[prompt, label]``                    token id, -1: no label
``label_word[prompt, label]``                  index into ``attrs["label_words"]``, -1: no label
``context[prompt]``                            context of the prompt: the cluster of all statistics
``n_tokens[prompt]``                           length of the prompt
``label_position[prompt, demonstration]``      p_i, -1: no demonstration
``similarity[prompt, demonstration]``          optional: a graded match in [0, 1]
``query_residual[prompt, layer, width]``       optional: residual stream that enters the layer at q
``demonstration_residual[context_row, ...]``   optional: the same at the token before each label (layer, demonstration)
``label_residual[context_row, ...]``           optional: the same at each label
``blind_query_residual``, ``blind_...``        optional: both of a pass in which no token attends to a label before it
=============================================  =====================================================================

Heads carry the coordinates ``layer`` and ``head_in_layer``, both from 0 and counted on the query side. The attributes
``distribution`` (a `PromptDistribution`) and ``provenance`` (model, precision, versions, options) are JSON.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from readout.errors import RecordError

DIMS = {
    "attention": ("prompt", "head", "demonstration"),
    "sink": ("prompt", "head"),
    "label_logprob": ("prompt", "label"),
    "label_effect": ("prompt", "head", "label"),
    "demonstration_class": ("prompt", "demonstration"),
    "demonstration_label": ("prompt", "demonstration"),
    "query_class": ("prompt",),
    "query_label": ("prompt",),
    "label_class": ("prompt", "label"),
    "label_id": ("prompt", "label"),
    "label_word": ("prompt", "label"),
    "context": ("prompt",),
    "n_tokens": ("prompt",),
    "label_position": ("prompt", "demonstration"),
    "query_residual": ("prompt", "residual_layer", "width"),
    "demonstration_residual": ("context_row", "residual_layer", "demonstration", "width"),
    "label_residual": ("context_row", "residual_layer", "demonstration", "width"),
    "blind_query_residual": ("prompt", "residual_layer", "width"),
    "blind_demonstration_residual": ("context_row", "residual_layer", "demonstration", "width"),
}
RESIDUALS = tuple(name for name in DIMS if name.endswith("residual"))
FLOATS = {"attention", "sink", "label_logprob", "label_effect", *RESIDUALS}
ATTRIBUTES = ("class_names", "label_words", "distribution", "provenance", "specification")
OPTIONAL = {"label_effect", *RESIDUALS}


def head_name(layer: int, head: int) -> str:
    """ "L18H6" for head 6 of layer 18."""
    return f"L{layer}H{head}"


def head_names(record: xr.Dataset) -> list[str]:
    """Names of the record's heads, in its order."""
    pairs = zip(record["layer"].values.tolist(), record["head_in_layer"].values.tolist(), strict=True)
    return [head_name(layer, head) for layer, head in pairs]


def provenance(record: xr.Dataset) -> dict[str, Any]:
    """Model, precision, versions and options that made the record."""
    found: dict[str, Any] = json.loads(record.attrs["provenance"])
    return found


@dataclass(frozen=True)
class Identity:
    """What a record is of: the model (as JSON) and the prompts (by digest)."""

    model: str
    prompts: str

    @classmethod
    def of(cls, record: xr.Dataset) -> Identity:
        """Read it off a record's specification."""
        specification = json.loads(record.attrs["specification"])
        return cls(json.dumps(specification["model"], sort_keys=True), specification["digest"])


def select_contexts(record: xr.Dataset, keep: np.ndarray) -> xr.Dataset:
    """The record of these prompts only.

    Parameters
    ----------
    record
        A record.
    keep
        [prompt] True for prompts to keep: all of a context, or none.

    Raises
    ------
    RecordError
        When a context is cut.
    """
    rows = np.flatnonzero(keep)
    if "context_row" not in record.dims:
        return record.isel(prompt=rows)
    count = record.sizes["context_row"]
    by_context = np.asarray(keep, dtype=bool).reshape(count, -1)
    whole = by_context.all(axis=1)
    if (by_context.any(axis=1) != whole).any():
        raise RecordError("select_contexts: expected all prompts of a context or none; select by the record's context")
    return record.isel(prompt=rows, context_row=np.flatnonzero(whole))


def check_record(record: xr.Dataset, where: str = "record") -> xr.Dataset:
    """Return ``record`` if it is whole, else raise `RecordError` naming what is wrong."""
    missing = [name for name in DIMS if name not in record and name not in OPTIONAL]
    if missing:
        raise RecordError(f"{where} is not a record: it lacks {', '.join(missing)}; make it with readout extract")
    for name, dims in DIMS.items():
        if name in record and record[name].dims != dims:
            raise RecordError(f"{where} is corrupt: {name} has dimensions {record[name].dims}, expected {dims}")
    lacking = [name for name in ATTRIBUTES if name not in record.attrs]
    if not lacking and "model" not in json.loads(record.attrs["provenance"]):
        lacking = ["provenance.model"]
    if lacking:
        raise RecordError(f"{where} is corrupt: it lacks the attributes {', '.join(lacking)}; extract it again")
    shown = record["demonstration_label"].values >= 0
    attention = record["attention"].values
    wrong = (
        ~np.isfinite(attention).all(1)[shown].all() or (attention < 0).any() or (np.nansum(attention, 2) > 1.01).any()
    )
    if wrong:
        raise RecordError(
            f"{where} is corrupt: attention must be finite at every demonstration, not negative, and at most 1 in sum; "
            "extract it again"
        )
    return record
