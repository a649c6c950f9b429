"""From attention to label probabilities: four links, each with its number of extra constants."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import optimize

from readout.errors import FitError
from readout.wording import counted

# The smallest share a label can be given, so that no prediction is infinitely wrong.
FLOOR = 1e-6
# Penalty on squared constants in units of logits, for links with several: heads whose masses are nearly
# proportional would else get huge constants that cancel, and fall apart on another distribution.
RIDGE = 1e-4


def label_mass(
    attention: Float[np.ndarray, "n h k"], label: Int[np.ndarray, "n k"], labels: int
) -> Float[np.ndarray, "n h l"]:
    """Attention of each head on each label: M[n,h,l] = sum over i with l_i = l of A[n,h,i].

    Parameters
    ----------
    attention
        [n, h, k], observed or predicted.
    label
        [n, k] index of each demonstration's label, -1 where there is none.
    labels
        Number of labels L to make room for.

    Returns
    -------
    [n, h, L] float64
    """
    member = (label[:, :, None] == np.arange(labels)).astype(np.float64)
    mass: np.ndarray = np.asarray(attention, dtype=np.float64) @ member
    return mass


def masked_softmax(logits: Float[np.ndarray, "n l"], label_mask: Bool[np.ndarray, "n l"]) -> Float[np.ndarray, "n l"]:
    """Softmax over the labels that a prompt has; 0 elsewhere."""
    shifted = np.where(label_mask, logits, -np.inf)
    shifted = shifted - shifted.max(axis=1, keepdims=True)
    weight = np.exp(shifted)
    probability: np.ndarray = weight / weight.sum(axis=1, keepdims=True)
    return probability


def label_share(mass: Float[np.ndarray, "n h l"], label_mask: Bool[np.ndarray, "n l"]) -> Float[np.ndarray, "n l"]:
    """The labels' share of all mass on labels; equal shares where no head gives any."""
    total = np.where(label_mask, mass.sum(axis=1), 0.0)
    whole = total.sum(axis=1, keepdims=True)
    equal = label_mask / label_mask.sum(axis=1, keepdims=True)
    share = np.where(whole > 0, total / np.where(whole > 0, whole, 1.0), equal)
    share = np.where(label_mask, np.maximum(share, FLOOR), 0.0)
    normalised: np.ndarray = share / share.sum(axis=1, keepdims=True)
    return normalised


def fit_log_linear(
    features: Float[np.ndarray, "n l j"],
    probability: Float[np.ndarray, "n l"],
    label_mask: Bool[np.ndarray, "n l"],
    start: Float[np.ndarray, " j"],
) -> Float[np.ndarray, " j"]:
    """Constants g that minimise the mean KL(P || softmax_l(features . g)); convex.

    Several constants are held together by a slight ridge, `RIDGE` / 2 times their squares in units of logits.

    Parameters
    ----------
    features
        [n, l, j], anything where a prompt has no such label.
    probability, label_mask
        The model's probabilities and the labels that exist.
    start
        [j] where to begin.

    Returns
    -------
    [j]

    Raises
    ------
    FitError
        When the minimisation fails.
    """
    columns = np.where(label_mask[:, :, None], features, 0.0)
    n = len(columns)
    # Constants are found in units in which every column has spread 1, so that the optimiser sees a round bowl.
    centre = columns.sum(axis=1, keepdims=True) / label_mask.sum(axis=1)[:, None, None]
    centred = np.where(label_mask[:, :, None], columns - centre, 0.0)
    scale = np.sqrt((centred**2).mean(axis=(0, 1)))
    scale = np.where(scale > 0, scale, 1.0)
    columns = centred / scale
    ridge = RIDGE if columns.shape[2] > 1 else 0.0

    def loss(g: np.ndarray) -> tuple[float, np.ndarray]:
        logits = columns @ g
        highest = np.where(label_mask, logits, -np.inf).max(axis=1, keepdims=True)
        weight = np.where(label_mask, np.exp(logits - highest), 0.0)
        total = weight.sum(axis=1, keepdims=True)
        cross = (probability * (highest + np.log(total) - logits)).sum() / n
        gradient = np.einsum("nl,nlj->j", weight / total - probability, columns) / n
        return float(cross + ridge / 2 * g @ g), gradient + ridge * g

    found = optimize.minimize(
        loss, start * scale, jac=True, method="L-BFGS-B", options={"ftol": 1e-15, "gtol": 1e-9, "maxiter": 500}
    )
    if not np.isfinite(found.x).all() or not np.isfinite(found.fun):
        raise FitError("link constants: the minimisation failed; expected finite masses and probabilities")
    constants: np.ndarray = found.x / scale
    return constants


@dataclass(frozen=True)
class Link(ABC):
    """A way from the heads' masses on labels to label probabilities.

    Parameters
    ----------
    constants
        The link's own constants; empty until `fit` for the links that have any.
    """

    constants: tuple[float, ...] = ()
    name: ClassVar[str] = ""

    @abstractmethod
    def n_constants(self, heads: int) -> int:
        """Number of extra constants with this many heads."""

    @abstractmethod
    def predict(
        self, mass: Float[np.ndarray, "n h l"], label_mask: Bool[np.ndarray, "n l"]
    ) -> Float[np.ndarray, "n l"]:
        """Label probabilities [n, l] from masses [n, h, l]; 0 where a prompt has no such label."""

    def fit(
        self,
        mass: Float[np.ndarray, "n h l"],
        probability: Float[np.ndarray, "n l"],
        label_mask: Bool[np.ndarray, "n l"],
    ) -> Link:
        """The same link with constants that minimise KL(model || prediction) on these prompts."""
        heads = mass.shape[1]
        if heads == 0:
            raise FitError("link: expected at least one head, got none")
        if self.n_constants(heads) == 0:
            return self
        if not np.isfinite(probability).all():
            raise FitError(
                f"link {self.name!r} has constants of its own and needs label probabilities: give them, or take "
                "link='share'"
            )
        start = np.ones(self.n_constants(heads))
        g = fit_log_linear(self._features(mass, label_mask), probability, label_mask, start)
        return replace(self, constants=tuple(float(v) for v in g))

    def _features(self, mass: np.ndarray, label_mask: np.ndarray) -> np.ndarray:
        raise NotImplementedError

    def _linear(self, mass: np.ndarray, label_mask: np.ndarray) -> np.ndarray:
        wanted = self.n_constants(mass.shape[1])
        if len(self.constants) != wanted:
            raise FitError(
                f"link {self.name!r}: expected {counted(wanted, 'constant')} for {counted(mass.shape[1], 'head')}, got "
                f"{len(self.constants)}; fit it first"
            )
        return masked_softmax(self._features(mass, label_mask) @ np.array(self.constants), label_mask)


class Share(Link):
    """P(l) = sum_h M[h,l] / sum_h,l' M[h,l']: no constants."""

    name = "share"

    def n_constants(self, heads: int) -> int:
        """None."""
        return 0

    def predict(self, mass: np.ndarray, label_mask: np.ndarray) -> np.ndarray:
        """The labels' share of the mass."""
        return label_share(mass, label_mask)


class Power(Link):
    """P(l) proportional to share(l)^g: one constant."""

    name = "power"

    def n_constants(self, heads: int) -> int:
        """One."""
        return 1

    def _features(self, mass: np.ndarray, label_mask: np.ndarray) -> np.ndarray:
        share = label_share(mass, label_mask)
        return np.log(np.where(label_mask, share, 1.0))[:, :, None]

    def predict(self, mass: np.ndarray, label_mask: np.ndarray) -> np.ndarray:
        """The share to a power, renormalised."""
        return self._linear(mass, label_mask)


class Gain(Link):
    """P(l) = softmax_l(g sum_h M[h,l]): one constant."""

    name = "gain"

    def n_constants(self, heads: int) -> int:
        """One."""
        return 1

    def _features(self, mass: np.ndarray, label_mask: np.ndarray) -> np.ndarray:
        total: np.ndarray = mass.sum(axis=1)[:, :, None]
        return total

    def predict(self, mass: np.ndarray, label_mask: np.ndarray) -> np.ndarray:
        """Softmax of the gained mass."""
        return self._linear(mass, label_mask)


class GainPerHead(Link):
    """P(l) = softmax_l(sum_h g_h M[h,l]): one constant a head."""

    name = "gain_per_head"

    def n_constants(self, heads: int) -> int:
        """One a head."""
        return heads

    def _features(self, mass: np.ndarray, label_mask: np.ndarray) -> np.ndarray:
        return mass.transpose(0, 2, 1)

    def predict(self, mass: np.ndarray, label_mask: np.ndarray) -> np.ndarray:
        """Softmax of the masses, each head with its own gain."""
        return self._linear(mass, label_mask)


LINKS: dict[str, type[Link]] = {link.name: link for link in (Share, Power, Gain, GainPerHead)}


def make_link(link: str | Link) -> Link:
    """A link by name, or the link itself.

    Raises
    ------
    FitError
        When there is no such link.
    """
    if isinstance(link, Link):
        return link
    if link not in LINKS:
        raise FitError(f"link: expected one of {', '.join(LINKS)}, got {link!r}")
    return LINKS[link]()
