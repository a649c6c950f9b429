"""Claim 8: a softmax readout with two constants a head, fitted on one distribution, predicts another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace

from scipy import stats

from readout.circuit.claim import TITLES, Claim, rule, verdict
from readout.circuit.setting import Setting, without_task
from readout.errors import InterventionError
from readout.pipeline import RunReport, default_pair, fit_stage, report_on
from readout.prompts import Prompt, PromptDistribution
from readout.records import extract
from readout.statistics import Estimate

CONTEXTS, QUERIES = 64, 2
"""Of each of the two distributions, smaller than those of `readout run`."""
_TAKEN_OVER = ("task", "template", "label_pieces", "max_words", "text_column", "label_column", "data_split")


def claim_8(setting: Setting, known: Mapping[int, Claim], progress: bool = False) -> Claim:
    """Fit the readout on the default fit distribution of the setting's task and predict the default target.

    Parameters
    ----------
    setting
        Its model and task.
    known
        Not used: the readout chooses its own heads, on its fit distribution.
    progress
        Show a bar for each extraction.

    Returns
    -------
    Claim
        See `claim_from_report`.
    """
    own = {name: getattr(setting.distribution, name) for name in _TAKEN_OVER}
    pair = [replace(one, **own, size=CONTEXTS, queries=QUERIES) for one in default_pair(own["task"])]
    if setting.seed:
        pair = [replace(one, seed=one.seed + 100 * setting.seed) for one in pair]
    if setting.permuted:
        pair = [WithoutTask(**{field.name: getattr(one, field.name) for field in fields(one)}) for one in pair]
    fit, target = (extract(setting.model, one, progress=progress) for one in pair)
    return claim_from_report(report_on(fit_stage(fit, seed=setting.seed), fit, target, seed=setting.seed))


def claim_from_report(report: RunReport) -> Claim:
    """The claim, out of a finished main job.

    Parameters
    ----------
    report
        Of `readout.pipeline.run`, with the control of permuted matches.

    Returns
    -------
    Claim
        Effect: KL of label frequency minus KL of the readout on the held-out target, nats; control: the same of a
        readout whose constants are fitted to permuted matches.

    Raises
    ------
    InterventionError
        If the report has no such control.
    """
    validation = report.validation
    if "permuted_match" not in validation.controls:
        raise InterventionError("the main job has no control of permuted matches: run it again with permuted_draws > 0")
    frequency = validation.baselines["label_frequency"]["kl"]
    readout = validation.links[validation.chosen_link]["kl"]
    effect = _turned(validation.differences["label_frequency"])
    difference = _turned(validation.differences["permuted_match"])
    permuted = validation.controls["permuted_match"]["kl"]
    control = replace(
        permuted,
        value=frequency.value - permuted.value,
        low=frequency.value - permuted.high,
        high=frequency.value - permuted.low,
    )
    p = max(_p_value(effect), _p_value(difference))
    negligible = frequency.value / 10
    notes = [f"no behaviour to explain: {note}; undecided" for note in report.notes]
    beside = validation.differences["match_log_count"]
    notes += [
        f"held-out KL {readout.summary()} nats with {validation.chosen_link} link and {', '.join(validation.heads)}; "
        f"label frequency {frequency.summary()}",
        f"match + log count, which needs no attention: KL "
        f"{validation.baselines['match_log_count']['kl'].summary()}, the readout's minus it {beside.summary()}",
    ]
    return Claim(
        number=8,
        title=TITLES[8],
        measure="KL(model, label frequency) minus KL(model, readout) on a held-out distribution, nats",
        effect=effect,
        control=control,
        difference=difference,
        p=p,
        p_method="larger of two one-sided t tests by context: against label frequency, against the permuted fit",
        n_prompts=validation.n_prompts,
        n_contexts=validation.n_contexts,
        supported="undecided" if report.notes else verdict(effect, difference, p, negligible),
        rule=rule(negligible, "nats"),
        curves={
            "kl": {
                "readout": readout.to_dict(),
                "label frequency": frequency.to_dict(),
                "match + log count": validation.baselines["match_log_count"]["kl"].to_dict(),
                "uniform": validation.baselines["uniform"]["kl"].to_dict(),
                "permuted fit": permuted.to_dict(),
                "observed attention": validation.ceiling[validation.chosen_link]["kl"].to_dict(),
            },
            "heads": list(validation.heads),
        },
        notes=tuple(notes),
    )


class WithoutTask(PromptDistribution):
    """A distribution whose labels are dealt out whatever the class: the null."""

    def prompts(self) -> list[Prompt]:
        return [without_task(one, self.seed) for one in super().prompts()]


def _turned(estimate: Estimate) -> Estimate:
    """Minus the estimate."""
    return replace(estimate, value=-estimate.value, low=-estimate.high, high=-estimate.low)


def _p_value(estimate: Estimate) -> float:
    """One-sided, that the estimate is above 0."""
    if not estimate.se > 0 or estimate.clusters < 2:
        return 0.0 if estimate.value > 0 and estimate.se == 0 else 1.0
    return float(stats.t.sf(estimate.value / estimate.se, estimate.clusters - 1))
