"""Previous-token, duplicate-token and induction heads, by their attention on random sequences that repeat."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from tqdm import tqdm

from readout.circuit.claim import Part
from readout.circuit.evidence import flip_p_values
from readout.circuit.share_claim import corrected_over, plain
from readout.errors import InterventionError
from readout.models import LanguageModel
from readout.models.packing import PackedBatch
from readout.records.schema import head_name
from readout.statistics import Estimate, cluster_means, generator
from readout.statistics.checks import check_count

DEFINITIONS = {
    "previous-token": "attends to the token before",
    "duplicate-token": "attends to the earlier occurrence of the same token",
    "induction": "attends to the token after the earlier occurrence of the same token",
}
LEAST_SCORE = 0.4
"""Share of its attention that a head of such a role spends there."""
LEVEL = 0.05


@dataclass(frozen=True, eq=False)
class TokenScores:
    """Scores of all heads.

    Attributes
    ----------
    heads : (layer, head)
    scores : by role, float64 [sequences, heads], mean attention over the second half of a repeated sequence
    chance : by role, float64 [sequences, heads], the same attention where nothing repeats (duplicate-token and
        induction), or what even attention spends on one token (previous-token)
    length : tokens that are repeated
    """

    heads: tuple[tuple[int, int], ...]
    scores: dict[str, Float[np.ndarray, "sequences heads"]]
    chance: dict[str, Float[np.ndarray, "sequences heads"]]
    length: int
    _reported: Int[np.ndarray, " sequences"] = field(init=False)

    def __post_init__(self) -> None:
        sequences = len(next(iter(self.scores.values())))
        object.__setattr__(self, "_reported", np.arange(sequences)[1::2])

    def curves(self) -> dict[str, Any]:
        """Mean scores and chance levels by role, ready for JSON."""
        both = {"score": self.scores, "chance": self.chance}
        found: dict[str, Any] = {"heads": [head_name(*head) for head in self.heads]}
        for role in DEFINITIONS:
            found[role] = {name: plain(values[role].mean(0)) for name, values in both.items()}
        return found

    def parts(self, seed: int = 0) -> tuple[Part, ...]:
        """Heads of each role, the highest score first: named on one half of the sequences, reported on the other."""
        above = [self.scores[role] - self.chance[role] for role in DEFINITIONS]
        p = flip_p_values(np.concatenate([one[1::2] for one in above], 1), self._reported, seed)
        found = []
        for role, own in zip(DEFINITIONS, p.reshape(len(DEFINITIONS), -1), strict=True):
            scores, chance = (cluster_means(of[role][1::2], self._reported) for of in (self.scores, self.chance))
            choosing = self.scores[role][::2].mean(0)
            for place in np.argsort(-choosing, kind="stable"):
                if choosing[place] < LEAST_SCORE:
                    break
                if own[place] <= LEVEL:
                    found.append(self._part(role, int(place), scores, chance, float(own[place]), choosing))
        return tuple(found)

    def _part(
        self, role: str, place: int, scores: list[Estimate], chance: list[Estimate], p: float, choosing: np.ndarray
    ) -> Part:
        layer, head = self.heads[place]
        return Part(
            role,
            head_name(layer, head),
            layer,
            head,
            f"{DEFINITIONS[role]}, with at least {LEAST_SCORE:g} of its attention on random sequences said twice",
            scores[place],
            chance[place],
            p,
            corrected_over(len(DEFINITIONS) * len(self.heads), "heads and roles").replace("contexts", "sequences"),
            {"score_on_choosing_half": float(choosing[place])},
        )


def score_token_heads(
    model: LanguageModel, sequences: int = 16, length: int = 24, seed: int = 0, progress: bool = False
) -> TokenScores:
    """Measure where heads look on random tokens said twice, and on as many random tokens that do not repeat.

    Parameters
    ----------
    model : LanguageModel
        The model.
    sequences : int
        Number of sequences, half of them to name heads and half to report them.
    length : int
        Different tokens that are said, and said again.
    seed : int
        Of the tokens.
    progress : bool
        Whether to show a bar.

    Returns
    -------
    TokenScores

    Raises
    ------
    InterventionError
        If the model has too few tokens.

    Source
    ------
    Olsson et al. (2022), In-context learning and induction heads: previous-token and prefix-matching scores.
    """
    check_count(sequences, "sequences", 6, ", half of them to name heads and half to report them")
    check_count(length, "length", 4)
    pool, start = _tokens(model)
    if len(pool) < 2 * length:
        raise InterventionError(
            f"{2 * length} different tokens are needed and {model.name} has {len(pool)}: lower length"
        )
    rng = generator(seed)
    scores: dict[str, list[np.ndarray]] = {role: [] for role in DEFINITIONS}
    chance: dict[str, list[np.ndarray]] = {role: [] for role in DEFINITIONS}
    for _ in tqdm(range(sequences), unit="sequence", desc="token heads", disable=not progress):
        drawn = rng.choice(pool, 2 * length, replace=False)
        twice, once = np.r_[start, drawn[:length], drawn[:length]], np.r_[start, drawn]
        for store, tokens in ((scores, twice), (chance, once)):
            for role, own in _read(model, tokens, length).items():
                store[role].append(own)
        even = 1 / np.arange(len(twice) - length + 1, len(twice) + 1)
        chance["previous-token"][-1] = np.full(len(model.heads), even.mean())
    return TokenScores(
        model.heads,
        {role: np.stack(own) for role, own in scores.items()},
        {role: np.stack(own) for role, own in chance.items()},
        length,
    )


def _tokens(model: LanguageModel) -> tuple[np.ndarray, list[int]]:
    """Ordinary tokens of the model, and what the tokeniser puts in front of a text."""
    vocabulary = np.arange(int(model.model.get_input_embeddings().num_embeddings))
    tokenizer = model.tokenizer
    if tokenizer is None:
        return vocabulary, []
    ordinary = np.setdiff1d(vocabulary[: len(tokenizer)], tokenizer.all_special_ids)
    bos = tokenizer.bos_token_id
    # A text's first token tells whether the tokeniser puts its beginning-of-text token there.
    first = tokenizer("a").input_ids[:1]
    return ordinary, first if bos is not None and first == [bos] else []


def _read(model: LanguageModel, tokens: np.ndarray, length: int) -> dict[str, Float[np.ndarray, " heads"]]:
    """Mean attention of the last `length` tokens to the places of each role, by head."""
    total = len(tokens)
    queries = torch.arange(total - length, total)[None]
    batch = PackedBatch(
        torch.from_numpy(tokens.astype(np.int64))[None],
        torch.arange(total)[None],
        torch.zeros(1, total, dtype=torch.long),
        queries,
        torch.ones_like(queries, dtype=torch.bool),
        total,
    )
    candidates = torch.zeros(length, 1, dtype=torch.long)
    attention = model.run(batch, candidates, torch.arange(total)[None]).attention
    assert attention is not None
    found, rows, at = attention.float().cpu().numpy(), np.arange(length), np.arange(total - length, total)
    places = {"previous-token": at - 1, "duplicate-token": at - length, "induction": at - length + 1}
    return {role: found[rows, :, place].mean(0) for role, place in places.items()}
