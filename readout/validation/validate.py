"""Predict a held-out distribution with everything frozen, next to everything it must be compared with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from readout.errors import FitError
from readout.fitting import LINKS, Observations, SoftmaxReadout, make_link
from readout.statistics import Estimate, bootstrap_difference, check_level, check_seed, cluster_bootstrap
from readout.statistics.checks import check_count, check_draws
from readout.validation.baselines import baseline_predictions
from readout.validation.calibration import calibrate
from readout.validation.controls import (
    ceiling_prediction,
    observed_mass,
    permuted_predictions,
    random_head_predictions,
)
from readout.validation.metrics import METRICS, attention_errors, bootstrap_mean, mean_errors, prompt_errors
from readout.validation.report import ValidationReport
from readout.wording import counted

if TYPE_CHECKING:
    import xarray

Errors = dict[str, Float[np.ndarray, " n"]]


def check_target(readout: SoftmaxReadout, fit: Observations, target: Observations) -> None:
    """Refuse a target that the readout cannot be judged on.

    Raises
    ------
    FitError
        When the target has no matching demonstrations, lacks the readout's heads, or has no label probabilities.
    """
    readout.check_fitted()
    for name, observations in (("fit", fit), ("target", target)):
        missing = [head for head in readout.heads_ if head not in observations.heads]
        if missing:
            raise FitError(
                f"{name}: the readout's heads {', '.join(missing[:4])} are not among its "
                f"{counted(len(observations.heads), 'head')}; extract both records from the same model"
            )
        if not observations.has_probabilities:
            raise FitError(f"{name}: label_probability is not known; a validation needs it")
    if not (target.match[target.mask] > 0).any():
        raise FitError(
            "target: no demonstration matches its query's class in any prompt, so there is nothing to read out; "
            "take a target whose queries are of the demonstrations' classes"
        )


def same_attention(fit: Observations, target: Observations, heads: tuple[str, ...]) -> bool:
    """Whether these heads attend exactly alike in both: the prompts are then the same."""
    one, two = (o.select_heads(heads).attention for o in (fit, target))
    return np.array_equal(one, two, equal_nan=True)


def validate(
    readout: SoftmaxReadout,
    fit_observations: Observations | xarray.Dataset,
    target_observations: Observations | xarray.Dataset,
    *,
    links: Sequence[str] = tuple(LINKS),
    replicate: Observations | xarray.Dataset | None = None,
    random_draws: int = 20,
    permuted_draws: int = 5,
    draws: int = 2000,
    level: float = 0.95,
    seed: int = 0,
) -> ValidationReport:
    """Score a fitted readout on a target that nothing was fitted to.

    Parameters
    ----------
    readout
        Fitted; its heads, constants and link stay as they are.
    fit_observations
        What it was fitted to, as observations or as a record (read with the readout's match); give all heads of the
        model, so that random heads can be drawn. Constants of the other links, of baselines and of controls are
        fitted to these only.
    target_observations
        The held-out distribution, observations or a record, with the readout's heads.
    links
        Links to report beside the readout's own.
    replicate
        The same target drawn again with another seed, for the noise floor.
    random_draws, permuted_draws
        Draws of random heads and of permuted matches; 0 leaves a control out.
    draws, level, seed
        Of the cluster bootstrap: at least 2 draws, a level in (0, 1), a seed of at least 0.

    Returns
    -------
    ValidationReport

    Raises
    ------
    FitError
        When the readout is not fitted, fit and target cannot be compared (see `check_target`), or an option is out of
        range.
    """
    check_seed(seed)
    check_draws(draws)
    check_level(level)
    for name, number in (("random_draws", random_draws), ("permuted_draws", permuted_draws)):
        check_count(number, name, 0)
    fit = readout.observations(fit_observations, fitted_to=True)
    target = readout.observations(target_observations)
    check_target(readout, fit, target)
    options: dict[str, Any] = {"draws": draws, "level": level, "seed": seed}
    heads, chosen = readout.usable_heads_, readout.link_.name
    fit_mass, target_mass = readout.predict_mass(fit), readout.predict_mass(target)
    fitted = {
        name: readout.link_ if name == chosen else make_link(name).fit(fit_mass, fit.label_probability, fit.label_mask)
        for name in dict.fromkeys([chosen, *links])
    }

    def errors(prediction: np.ndarray) -> Errors:
        return prompt_errors(target.label_probability, prediction, target.label_mask)

    predicted = {name: link.predict(target_mass, target.label_mask) for name, link in fitted.items()}
    by_link = {name: errors(prediction) for name, prediction in predicted.items()}
    simple, constants = baseline_predictions(fit, target)
    by_baseline = {name: errors(prediction) for name, prediction in simple.items()}
    by_ceiling = {name: errors(ceiling_prediction(make_link(name), fit, target, heads)) for name in fitted}
    asked = {"random_heads": random_draws, "permuted_match": permuted_draws}
    control_draws = {
        "random_heads": random_head_predictions(readout, fit, target, random_draws, seed),
        "permuted_match": permuted_predictions(readout, fit, target, permuted_draws, seed),
    }
    by_control = {name: [errors(p) for p in made] for name, made in control_draws.items() if made}
    notes = [
        f"control {name}: could not be made (no other heads to draw, or none that can be fitted)"
        for name, made in control_draws.items()
        if not made and asked[name]
    ]
    notes += [f"control {name}: not asked for (0 draws)" for name, number in asked.items() if not number]
    left_out = [f"{head} ({status})" for head, status in readout.status_.items() if status != "ok"]
    if left_out:
        notes.append(f"heads without constants take no part: {', '.join(left_out)}")

    if same_attention(fit, target, readout.heads_):
        notes.append("the target is the fit data: this is not a held-out error")
    own = by_link[chosen]["kl"]
    rivals = {name: row["kl"] for name, row in by_baseline.items()}
    rivals |= {name: np.mean([row["kl"] for row in made], axis=0) for name, made in by_control.items()}
    rivals["ceiling"] = by_ceiling[chosen]["kl"]
    if rivals["ceiling"].mean() >= rivals["label_frequency"].mean():
        notes.append("the observed attention does not beat label frequency here: the ceiling share means nothing")
    floor = None
    if replicate is not None:
        other = readout.observations(replicate)
        check_target(readout, fit, other)
        again = prompt_errors(other.label_probability, readout.predict_proba(other), other.label_mask)
        floor = {
            name: bootstrap_difference(by_link[chosen][name], target.context, again[name], other.context, **options)
            for name in METRICS
        }
    columns = np.column_stack([own, rivals["label_frequency"], rivals["ceiling"]])
    return ValidationReport(
        chosen_link=chosen,
        heads=heads,
        links={name: mean_errors(row, target.context, **options) for name, row in by_link.items()},
        baselines={name: mean_errors(row, target.context, **options) for name, row in by_baseline.items()},
        controls={name: _over_draws(made, target, level) for name, made in by_control.items()},
        ceiling={name: mean_errors(row, target.context, **options) for name, row in by_ceiling.items()},
        skill=cluster_bootstrap(columns, target.context, lambda s: 1 - s[:, 0] / s[:, 1], **options),
        ceiling_share=cluster_bootstrap(
            columns, target.context, lambda s: (s[:, 1] - s[:, 0]) / (s[:, 1] - s[:, 2]), **options
        ),
        differences={name: bootstrap_mean(own - values, target.context, **options) for name, values in rivals.items()},
        attention=attention_errors(
            observed_mass(target, heads), target_mass, target.label_mask, target.context, heads, **options
        ),
        calibration=calibrate(
            target.label_probability, predicted[chosen], target.label_mask, target.context, level=level
        ),
        noise_floor=floor,
        constants={name: list(link.constants) for name, link in fitted.items()}
        | {f"baseline {name}": [value] for name, value in constants.items()},
        n_prompts=target.n_prompts,
        n_contexts=target.n_contexts,
        notes=tuple(notes),
    )


def _over_draws(made: list[Errors], target: Observations, level: float) -> dict[str, Estimate]:
    """Mean of each metric over draws of a control; the interval is the range of the draws' means."""
    table = {}
    for name in METRICS:
        means = np.array([row[name].mean() for row in made])
        low, high = np.quantile(means, [0.5 - level / 2, 0.5 + level / 2])
        se = float(means.std(ddof=1)) if len(means) > 1 else float("nan")
        method = f"middle {100 * level:g} % of {len(means)} draws of the control"
        table[name] = Estimate(
            float(means.mean()), float(low), float(high), se, target.n_prompts, target.n_contexts, method
        )
    return table
