"""Time of one Newton fit of every head against one lmfit minimisation a head, side by side in one run.

    python benchmarks/fit.py [--heads 1152] [--prompts 2000] [--sample 24]

lmfit is timed on a sample of heads and scaled up; Newton is timed on all of them. Both start from the same arrays and
end at the same constants, which is checked.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time

import lmfit
import numpy as np

from readout.fitting import Observations, draw_observations, fit_constants
from readout.fitting.lmfit_bridge import deviance_residuals

LIMIT = 1 / 100


def lmfit_by_prompt(observations: Observations, head: int) -> np.ndarray:
    """One head by lmfit as one would write it down: the residuals of every prompt's cells."""
    match, here = observations.match, observations.mask
    attention = observations.attention[:, head].astype(np.float64)
    cells = np.concatenate([attention, 1 - attention.sum(axis=1, keepdims=True)], axis=1)

    def residuals(p: lmfit.Parameters) -> np.ndarray:
        weight = np.where(here, np.exp(p["base"].value + p["match"].value * match), 0.0)
        odds = np.concatenate([weight, np.ones((len(weight), 1))], axis=1)
        return deviance_residuals(cells, odds / odds.sum(axis=1, keepdims=True)).ravel()

    return _minimise(residuals)


def lmfit_by_pattern(observations: Observations, head: int) -> np.ndarray:
    """One head by lmfit after pooling prompts of equal counts into cells (binary match only): its best case."""
    attention = observations.attention[:, head].astype(np.float64)
    matching = (attention * observations.match).sum(axis=1)
    number = observations.match.sum(axis=1)
    total = observations.mask.sum(axis=1)
    _, pattern = np.unique(np.column_stack([number, total]), axis=0, return_inverse=True)
    size = np.bincount(pattern)
    n_m, n_all = (np.bincount(pattern, v) / size for v in (number, total))
    masses = [np.bincount(pattern, v) / size for v in (matching, attention.sum(axis=1) - matching)]
    cells = np.stack([*masses, 1 - masses[0] - masses[1]], axis=1)
    root = np.sqrt(size)[:, None]

    def residuals(p: lmfit.Parameters) -> np.ndarray:
        b, a = p["base"].value, p["match"].value
        odds = np.stack([n_m * np.exp(b + a), (n_all - n_m) * np.exp(b), np.ones_like(n_m)], axis=1)
        return (root * deviance_residuals(cells, odds / odds.sum(axis=1, keepdims=True))).ravel()

    return _minimise(residuals)


def _minimise(residuals: object) -> np.ndarray:
    parameters = lmfit.Parameters()
    parameters.add("base", value=-2.0)
    parameters.add("match", value=0.0)
    found = lmfit.minimize(residuals, parameters, method="leastsq", scale_covar=False)
    return np.array([found.params["base"].value, found.params["match"].value])


def timed(function: object, repeats: int = 3) -> tuple[float, object]:
    """Median seconds of a few calls, and the last result."""
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        result = function()  # type: ignore[operator]
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds), result


def main() -> int:
    """Print the table; exit code 1 when Newton takes more than a hundredth."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--heads", type=int, default=1152)
    parser.add_argument("--prompts", type=int, default=2000)
    parser.add_argument("--sample", type=int, default=24, help="heads that lmfit is timed on")
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    base, match = rng.uniform(-5, -1, args.heads), rng.uniform(-1, 3, args.heads)
    sample = rng.choice(args.heads, args.sample, replace=False)
    print(f"{args.heads} heads, {args.prompts} prompts, 4 to 16 demonstrations; lmfit timed on {args.sample} heads")
    slowest = 0.0
    for graded in (False, True):
        counts = ((8, 8), (4, 8), (2, 6), (2, 2))
        observations = draw_observations(base, match, contexts=args.prompts // 4, counts=counts, graded=graded, seed=1)
        newton, fit = timed(lambda o=observations: fit_constants(o, covariance=False))
        clustered, _ = timed(lambda o=observations: fit_constants(o), repeats=1)
        print(f"{'graded' if graded else 'binary'} match")
        print(f"  Newton, all heads                    {newton:9.3f} s ({clustered:.3f} s with clustered errors)")
        ways = [("a prompt's cells", lmfit_by_prompt)] + ([] if graded else [("pooled cells", lmfit_by_pattern)])
        for name, way in ways:
            start = time.perf_counter()
            found = np.array([way(observations, int(h)) for h in sample])
            whole = (time.perf_counter() - start) / len(sample) * args.heads
            apart = np.abs(found - fit.theta[sample]).max()
            print(
                f"  lmfit a head, residuals of {name:<17} {whole:9.1f} s (extrapolated); ratio 1/{whole / newton:.0f}; "
                f"constants differ by {apart:.1e}"
            )
            if not graded and way is lmfit_by_prompt:
                slowest = newton / whole
    print(f"binary match, Newton / lmfit: {slowest:.5f} (at most {LIMIT})")
    return int(slowest > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
