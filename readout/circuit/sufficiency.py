"""Claim 7: the named heads are enough."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from readout.circuit.claim import TITLES, Claim, Verdict
from readout.circuit.edits import Heads, Intervention, Mean
from readout.circuit.engine import intervene
from readout.circuit.evidence import lack_of_behaviour, paired_shares, rank_p, shares
from readout.circuit.outcome import Outcome
from readout.circuit.positions import LABELS, QUERY, Positions
from readout.circuit.random_heads import Head
from readout.circuit.setting import Setting
from readout.models import LanguageModel
from readout.statistics import Estimate, cluster_means, cluster_ratios, generator
from readout.wording import counted, p_value

NAMED_BY = (1, 2, 3, 4, 5)
ENOUGH = 0.5
"""Share of the logit difference that "enough" must keep."""
STRICT_DRAWS = 20
"""Most random draws of the stricter form, whose edits at the labels cost a pass over most of the prompt each."""
CURVE_DRAWS = 20


def claim_7(setting: Setting, known: Mapping[int, Claim], progress: bool = False) -> Claim:
    """Test whether the heads that claims 1 to 5 name are enough, all others replaced by their mean.

    Parameters
    ----------
    setting
        Model and prompts; means are taken over the choosing half, effects on the other.
    known
        Claims 1 to 5; one that is missing is tested first.
    progress
        Show bars.

    Returns
    -------
    Claim
        The effect is the share of the logit difference that stays when every other head is replaced at the query; the
        stricter form, with the labels too, stands in the curves.
    """
    named = named_heads(_with_parts(setting, known))
    if not named:
        return _nothing_named(setting)
    model = setting.model
    random = _random_sets(model.heads, len(named), setting.draws, setting.seed)
    order = _ranked(setting)
    counts = _counts(len(model.heads))
    curve = [keep_only(model, order[:count], (QUERY,)) for count in counts]
    few = [_random_sets(model.heads, count, CURVE_DRAWS, setting.seed + 1) for count in counts]
    curve += [keep_only(model, one, (QUERY,)) for sets in few for one in sets]
    at_query = [keep_only(model, one, (QUERY,)) for one in (named, *random)]
    strict_sets = [named, *random[:STRICT_DRAWS]]
    strict = [keep_only(model, one, (QUERY, LABELS)) for one in strict_sets]
    outcome = intervene(model, setting.testing, [*at_query, *curve], reference=setting.choosing, progress=progress)
    stricter = intervene(model, setting.testing, strict, reference=setting.choosing, progress=progress)
    whole = outcome.logit_difference(outcome.unedited).astype(np.float64)
    kept = outcome.logit_difference().astype(np.float64)
    loose = _kept(outcome, kept[: len(at_query)], whole)
    tight = _kept(stricter, stricter.logit_difference().astype(np.float64), whole)
    effect, control, difference = (loose[name] for name in ("effect", "control", "difference"))
    lack = lack_of_behaviour(whole, outcome.contexts)
    notes = [lack] if lack else []
    notes += [
        f"{counted(len(named), 'named head')} of {len(model.heads)}: {', '.join(_names(named))}",
        f"accuracy kept {_told(loose['accuracy'])}, random heads {_told(loose['accuracy of random heads'])}",
        f"stricter form, the labels too: logit difference kept {tight['effect'].summary()}, random heads "
        f"({len(strict_sets) - 1} draws) {tight['control'].summary()}, {p_value(tight['p'])}; accuracy kept "
        f"{_told(tight['accuracy'])}",
    ]
    return Claim(
        number=7,
        title=TITLES[7],
        measure="share of the logit difference kept with the named heads alone at the query; control: as many random",
        effect=effect,
        control=control,
        difference=difference,
        p=loose["p"],
        p_method=f"rank among {len(random)} draws of equally many random heads, named ones not excluded",
        n_prompts=len(setting.testing),
        n_contexts=effect.clusters,
        supported="undecided" if lack else enough(effect, difference, loose["p"]),
        rule=(
            f"true: the 95 % interval of the effect lies above {ENOUGH} and that of its difference from the control "
            f"above 0, and p < .05; false: the effect's interval lies below {ENOUGH}; otherwise undecided"
        ),
        curves={
            "named": _names(named),
            "query": _plain(loose),
            "strict": _plain(tight),
            "order": _names(order),
            **_curve(outcome, kept[len(at_query) :], whole, counts),
        },
        notes=tuple(notes),
    )


def named_heads(claims: Mapping[int, Claim]) -> list[Head]:
    """Heads that claims 1 to 5 name, each once, in the order of the claims."""
    parts = [part for number in NAMED_BY if number in claims for part in claims[number].parts if part.head >= 0]
    return list(dict.fromkeys((part.layer, part.head) for part in parts))


def keep_only(
    model: LanguageModel, heads: Sequence[Head], at: Sequence[Positions] = (QUERY,), name: str = ""
) -> Intervention:
    """Replace every other head by its mean, at some positions.

    Parameters
    ----------
    model
        The model.
    heads
        (layer, head) to keep.
    at
        Positions by role, each with a mean of its own.
    name
        Of the intervention.

    Returns
    -------
    Intervention
    """
    kept = set(heads)
    pairs = []
    for part in model.wiring.attentions:
        others = tuple(head for head in range(part.n_heads) if (part.layer, head) not in kept)
        if others:
            pairs += [(Heads(part.layer, others, positions), Mean()) for positions in at]
    return Intervention.of(name or f"only {counted(len(kept), 'head')}", *pairs)


def enough(effect: Estimate, difference: Estimate, p: float) -> Verdict:
    """The rule of this claim: "enough" is an amount, so the interval is held against `ENOUGH`."""
    if effect.low > ENOUGH and difference.low > 0 and p < 0.05:
        return "true"
    return "false" if effect.high < ENOUGH else "undecided"


def _with_parts(setting: Setting, known: Mapping[int, Claim]) -> dict[int, Claim]:
    """Known claims and those of 1 to 5 that were not."""
    from readout.circuit.run import run_claim

    claims = dict(known)
    for number in (3, 1, 2, 4, 5):
        if number not in claims:
            claims[number] = run_claim(number, setting, claims)
    return claims


def _random_sets(heads: Sequence[Head], size: int, draws: int, seed: int) -> list[list[Head]]:
    """Sets of random heads out of all, named ones among them: small models have too few others."""
    rng = generator(seed)
    return [[heads[int(one)] for one in rng.choice(len(heads), size, replace=False)] for _ in range(draws)]


def _ranked(setting: Setting) -> list[Head]:
    """All heads by how much their own ablation at the query lowers the logit difference on the choosing half."""
    heads = setting.model.heads
    edits = [Intervention.of("", (Heads(layer, (head,)), Mean())) for layer, head in heads]
    effect = intervene(setting.model, setting.choosing, edits).effect().mean(1)
    return [heads[int(one)] for one in np.argsort(effect, kind="stable")]


def _counts(number: int) -> list[int]:
    """0, powers of two, and all."""
    return [0, *(2**power for power in range(number.bit_length()) if 2**power < number), number]


def _kept(outcome: Outcome, kept: Float[np.ndarray, "sets n"], whole: Float[np.ndarray, " n"]) -> dict[str, Any]:
    """What the first set keeps, beside the others."""
    contexts = outcome.contexts
    n = len(kept)
    effect, control, difference = paired_shares(kept[0], kept[1:].mean(0), whole, contexts)
    right = _right(outcome, outcome.edited.logits[:n])
    before = _right(outcome, outcome.unedited.logits)
    accuracy = cluster_ratios(np.column_stack([right[0], right[1:].mean(0)]), np.column_stack([before] * 2), contexts)
    means = kept[1:].mean(1)
    return {
        "effect": effect,
        "control": control,
        "difference": difference,
        "p": rank_p(float(kept[0].mean()), means),
        "accuracy": accuracy[0],
        "accuracy of random heads": accuracy[1],
        "accuracies": cluster_means(np.column_stack([before, right[0]]), contexts),
        "random": [float(one) for one in means / whole.mean()],
    }


def _right(outcome: Outcome, logits: Float[np.ndarray, "*sets n labels"]) -> Float[np.ndarray, "*sets n"]:
    """Whether the right label is the likeliest of the prompt's."""
    best = np.where(np.isfinite(logits), logits, -np.inf).argmax(-1)
    return np.asarray(best == outcome.answers, np.float64)


def _curve(
    outcome: Outcome, kept: Float[np.ndarray, "sets n"], whole: Float[np.ndarray, " n"], counts: Sequence[int]
) -> dict[str, Any]:
    own, others = kept[: len(counts)], kept[len(counts) :].reshape(len(counts), -1, len(whole))
    return {
        "counts": list(counts),
        "kept": [one.to_dict() for one in shares(own.T, whole, outcome.contexts)],
        "random kept": [[float(one) for one in row] for row in others.mean(-1) / whole.mean()],
    }


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    """Estimates as plain values."""
    plain: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, Estimate):
            plain[name] = value.to_dict()
        elif name == "accuracies":
            plain["accuracy before"], plain["accuracy with named heads"] = (one.to_dict() for one in value)
        else:
            plain[name] = value
    return plain


def _names(heads: Sequence[Head]) -> list[str]:
    return [f"L{layer}H{head}" for layer, head in heads]


def _told(share: Estimate) -> str:
    return share.summary(2)


def _nothing_named(setting: Setting) -> Claim:
    """No head was named: there is nothing to keep."""
    contexts = np.array([one.prompt.context for one in setting.testing])
    none = cluster_means(np.full((len(contexts), 1), np.nan), contexts)[0]
    return Claim(
        number=7,
        title=TITLES[7],
        measure="share of the logit difference kept with the named heads alone at the query",
        effect=none,
        control=none,
        difference=none,
        p=float("nan"),
        p_method="none",
        n_prompts=len(contexts),
        n_contexts=len(set(contexts.tolist())),
        supported="undecided",
        rule="undecided where no head is named",
        notes=("claims 1 to 5 name no head: there is nothing to keep",),
    )
