"""Behaviour first: whether the model does the task at all, before any constant."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np

from readout.errors import FitError
from readout.fitting import Observations
from readout.statistics import Estimate, cluster_mean
from readout.statistics.checks import fields_of, parse_json, reading

RULE = "does the task when the interval of accuracy minus chance lies above 0"


@dataclass(frozen=True)
class Behaviour:
    """What the model answers.

    Parameters
    ----------
    accuracy
        Share of prompts whose likeliest label, among the prompt's own, is the right one.
    above_chance
        Accuracy minus chance, prompt by prompt.
    chance
        Mean of 1 / number of labels.
    label_mass
        Probability of all the prompt's labels together, over the whole vocabulary; None where it is not known.
    """

    accuracy: Estimate
    above_chance: Estimate
    chance: float
    label_mass: Estimate | None

    @property
    def does_task(self) -> bool:
        """Whether accuracy is above chance by its interval (False where there is no interval)."""
        return bool(self.above_chance.low > 0)

    def summary(self) -> str:
        """Accuracy against chance, mass on the labels and the verdict."""
        mass = "not known" if self.label_mass is None else self.label_mass.summary()
        verdict = "does the task" if self.does_task else "does NOT do the task: a fit has no ground"
        return f"accuracy {self.accuracy} (chance {self.chance:.3f}), vocabulary mass on the labels {mass}: {verdict}"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {
            "accuracy": self.accuracy.to_dict(),
            "above_chance": self.above_chance.to_dict(),
            "chance": self.chance,
            "label_mass": None if self.label_mass is None else self.label_mass.to_dict(),
            "does_task": self.does_task,
            "rule": RULE,
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Behaviour:
        """Read what `to_dict` wrote."""
        fields_of(data, cls.__dataclass_fields__, "behaviour")
        mass = data["label_mass"]
        with reading("behaviour"):
            return cls(
                Estimate.from_dict(data["accuracy"]),
                Estimate.from_dict(data["above_chance"]),
                float(data["chance"]),
                None if mass is None else Estimate.from_dict(mass),
            )

    def to_json(self) -> str:
        """One JSON object."""
        return json.dumps(self.to_dict(), allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Behaviour:
        """Read what `to_json` wrote."""
        return cls.from_dict(parse_json(text, "behaviour"))


def measure_behaviour(observations: Observations, level: float = 0.95) -> Behaviour:
    """Accuracy among the prompt's labels and mass on the labels, with intervals clustered by context.

    Parameters
    ----------
    observations
        Prompts with label probabilities and right answers.
    level
        Coverage of the intervals.

    Returns
    -------
    Behaviour

    Raises
    ------
    FitError
        When label probabilities or right answers are not known.
    """
    known = observations.query_label >= 0
    if not observations.has_probabilities or not known.all():
        raise FitError("behaviour: label_probability and query_label are needed for every prompt; give both")
    guess = np.where(observations.label_mask, observations.label_probability, -1.0).argmax(axis=1)
    right = (guess == observations.query_label).astype(np.float64)
    chance = 1.0 / observations.label_mask.sum(axis=1)
    mass = observations.vocabulary_mass
    return Behaviour(
        cluster_mean(right, observations.context, level).share(),
        cluster_mean(right - chance, observations.context, level),
        float(chance.mean()),
        None if mass is None else cluster_mean(mass, observations.context, level).share(),
    )
