"""How far a lower precision moves what is read: the same prompts recorded in each, beside float32."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import xarray as xr

from readout.models import LanguageModel, load_model
from readout.prompts import PromptDistribution
from readout.records.extraction import extract
from readout.records.options import ExtractionOptions
from readout.records.schema import head_names

REFERENCE = "float32"
LOWER = ("bfloat16", "float16")


@dataclass(frozen=True)
class Precision:
    """What one precision reads, and how far that is from float32 (zeros for float32 itself).

    Attributes
    ----------
    dtype : as the record's provenance says it
    attention : mean attention weight from the query to a label's position, over prompts, heads and demonstrations
    attention_moved, attention_moved_most : mean and largest absolute deviation of such a weight
    head_moved_most : the head of the largest one
    label_mass : mean probability of a prompt's labels together
    probability_moved, probability_moved_most : mean and largest absolute deviation of a label's probability
    accuracy : share of prompts whose likeliest label is the right one
    answers_changed : share of prompts whose likeliest label is another one than in float32
    """

    dtype: str
    attention: float
    attention_moved: float
    attention_moved_most: float
    head_moved_most: str
    label_mass: float
    probability_moved: float
    probability_moved_most: float
    accuracy: float
    answers_changed: float


@dataclass(frozen=True)
class PrecisionReport:
    """All precisions, float32 first, with the model and the prompts that they were measured on."""

    model: dict[str, Any]
    distribution: dict[str, Any]
    prompts: int
    rows: tuple[Precision, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return asdict(self)

    def summary(self) -> str:
        """A table with one column a precision."""
        task, contexts = self.distribution["task"], self.distribution["size"]
        lines = [f"{self.model['name']}: {self.prompts} prompts of {task} ({contexts} contexts), beside float32", ""]
        for title, cell in _LINES.items():
            lines.append(f"{title:<44}" + "".join(f"{cell(row):>18}" for row in self.rows))
        return "\n".join(lines)


def _moved(show: Callable[[Precision], str]) -> Callable[[Precision], str]:
    return lambda row: "-" if row.dtype == REFERENCE else show(row)


_LINES: dict[str, Callable[[Precision], str]] = {
    "": lambda row: row.dtype,
    "attention to a label, mean": lambda row: f"{row.attention:.5f}",
    "  moved, mean": _moved(lambda row: f"{row.attention_moved:.1e}"),
    "  moved, at most": _moved(lambda row: f"{row.attention_moved_most:.1e} ({row.head_moved_most})"),
    "probability of the labels together, mean": lambda row: f"{row.label_mass:.4f}",
    "  a label's probability moved, mean": _moved(lambda row: f"{row.probability_moved:.1e}"),
    "  a label's probability moved, at most": _moved(lambda row: f"{row.probability_moved_most:.1e}"),
    "accuracy": lambda row: f"{row.accuracy:.3f}",
    "  answers changed": _moved(lambda row: f"{row.answers_changed:.3f}"),
}


def measure_precision(
    name: str,
    distribution: PromptDistribution,
    dtypes: Sequence[str] = LOWER,
    device: str = "auto",
) -> PrecisionReport:
    """Record ``distribution`` in float32 and in each of ``dtypes``, one model in memory at a time.

    Parameters
    ----------
    name : a model (`readout.models.load_model`)
    distribution : the prompts
    dtypes : precisions to compare with float32
    device : where to compute

    Returns
    -------
    PrecisionReport

    Raises
    ------
    UnsupportedModelError
        If the model fails its self-test in one of the precisions.
    """
    model = load_model(name, dtype=REFERENCE, device=device)
    provenance = {"name": name, **model.provenance}
    reference = _record(model, distribution)
    rows = [_compare(reference, reference, model.provenance["dtype"])]
    for dtype in dtypes:
        del model
        model = load_model(name, dtype=dtype, device=device)
        rows.append(_compare(_record(model, distribution), reference, model.provenance["dtype"]))
    return PrecisionReport(provenance, distribution.to_dict(), reference.sizes["prompt"], tuple(rows))


def _record(model: LanguageModel, distribution: PromptDistribution) -> xr.Dataset:
    return extract(model, distribution, options=ExtractionOptions(effects=False))


def _compare(record: xr.Dataset, reference: xr.Dataset, dtype: str) -> Precision:
    attention, probability = record.attention.values, np.exp(record.label_logprob.values)
    moved = np.abs(attention - reference.attention.values)
    shifted = np.abs(probability - np.exp(reference.label_logprob.values))
    answers = np.nanargmax(probability, 1)
    return Precision(
        dtype=dtype,
        attention=float(np.nanmean(attention)),
        attention_moved=float(np.nanmean(moved)),
        attention_moved_most=float(np.nanmax(moved)),
        head_moved_most=head_names(record)[int(np.nanmax(moved, (0, 2)).argmax())],
        label_mass=float(np.nansum(probability, 1).mean()),
        probability_moved=float(np.nanmean(shifted)),
        probability_moved_most=float(np.nanmax(shifted)),
        accuracy=float((answers == record.query_label.values).mean()),
        answers_changed=float((answers != np.nanargmax(reference.label_logprob.values, 1)).mean()),
    )
