"""What lmfit would fit without complaint: heads without constants, parameters without effect."""

from __future__ import annotations

import ast
from collections.abc import Sequence

import lmfit
import numpy as np

from readout.errors import FitError
from readout.fitting import newton
from readout.fitting.constants import head_status, identified
from readout.fitting.observations import Observations
from readout.fitting.patterns import Patterns


def is_free(parameter: lmfit.Parameter) -> bool:
    return bool(parameter.vary and not parameter.expr)


def idle_parameters(parameters: lmfit.Parameters, used: set[str]) -> list[str]:
    """Free parameters that no constant depends on, directly or through expressions."""
    reached, new = set(), used
    while new:
        reached |= new
        texts = [parameters[name].expr for name in new if name in parameters and parameters[name].expr]
        seen = {node.id for text in texts for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}
        new = seen - reached
    return [name for name, p in parameters.items() if is_free(p) and name not in reached]


def refuse_degenerate(
    observations: Observations,
    patterns: Patterns,
    terms: Sequence[str],
    given: lmfit.Parameters,
    names: list[list[str]],
) -> None:
    """Refuse heads that Newton's fit has no constants for either, and say why in the same words."""
    weights = np.where(observations.mask[:, None, :], observations.attention, 0.0).astype(np.float64)
    status = head_status(weights.sum(axis=(0, 2)) / observations.n_prompts, observations.measured)
    design = identified(patterns, terms)
    bad = []
    for head, row, why in zip(observations.heads, names, status, strict=True):
        free = [is_free(given[name]) for name in row]
        if why == newton.NOT_MEASURED or (why != newton.OK and any(free)):
            bad.append(f"{head} ({why})")
        elif design != newton.OK and all(free):
            bad.append(f"{head} ({design})")
    _refuse(bad)


def refuse_saturated(
    heads: Sequence[str], patterns: Patterns, theta: np.ndarray, found: lmfit.Parameters, names: list[list[str]]
) -> None:
    """Refuse heads whose free constants ran away."""
    score = np.abs(np.einsum("grd,hd->grh", patterns.rows, theta)).max(axis=(0, 1))
    ran = [
        f"{head} ({newton.SATURATED})"
        for head, row, highest in zip(heads, names, score, strict=True)
        if highest > newton.SATURATED_SCORE
        and any(is_free(found[n]) and np.isinf([found[n].min, found[n].max]).all() for n in row)
    ]
    _refuse(ran)


def _refuse(bad: list[str]) -> None:
    if bad:
        raise FitError(
            f"lmfit: no constants can be fitted to {', '.join(bad[:4])}; leave out (select_heads), or fix the constants"
        )
