"""What a record must hold before it is fitted: values that are missing are never taken for answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool

from readout.errors import FitError, RecordError

if TYPE_CHECKING:
    import xarray

NEEDED = ("attention", "label_logprob", "demonstration_class", "demonstration_label", "query_class", "context")


def check_variables(record: Any) -> None:
    """Refuse what is no record.

    Raises
    ------
    FitError
        When it is no xarray.Dataset, or lacks a variable.
    """
    if not hasattr(record, "data_vars"):
        raise FitError(
            f"record: expected an xarray.Dataset as the extraction writes it, got {type(record).__name__}; open it "
            "with readout.records.open_record"
        )
    missing = [name for name in (*NEEDED, "layer", "head_in_layer") if name not in record]
    if missing:
        raise FitError(f"record: variables {', '.join(missing)} are missing; extract it again")


def check_values(record: xarray.Dataset) -> Bool[np.ndarray, "n l"]:
    """Refuse a record that has no value where there must be one.

    Parameters
    ----------
    record
        With the variables that `check_variables` asks for.

    Returns
    -------
    [n, l] labels that exist.

    Raises
    ------
    RecordError
        Naming the variable and the prompt.
    """
    shown = record["demonstration_label"].values
    here = shown >= 0
    logprob = record["label_logprob"].values
    n, count = logprob.shape
    labels: np.ndarray = (shown[:, :, None] == np.arange(count)).any(axis=1)
    for name in ("label_id", "label_class", "label_word"):
        if name in record:
            labels |= record[name].values >= 0
    labels |= np.isfinite(logprob)
    measured = ~np.isnan(record["attention"].values).all(axis=(0, 2))
    wrong = {
        "query_class": record["query_class"].values < 0,
        "demonstration_class": (here & (record["demonstration_class"].values < 0)).any(axis=1),
        "demonstration_label": (shown >= count).any(axis=1),
        "label_logprob": (labels & ~np.isfinite(logprob)).any(axis=1),
    }
    if "label_effect" in record:
        effect = np.isfinite(record["label_effect"].values) | ~measured[None, :, None]
        wrong["label_effect"] = (labels[:, None] & ~effect).any(axis=(1, 2))
    for name, rows in wrong.items():
        if rows.any():
            raise RecordError(
                f"record: {name} has no value where it must have one (prompt {int(rows.argmax())}, "
                f"{int(rows.sum())} of {n} prompts); the record is damaged: extract it again"
            )
    return labels
