"""The distributions that fits/transfer.py fits and predicts, and their records.

    python fits/transfer_pairs.py [NAME ...]       all draws of these distributions, or of all
    python fits/transfer_pairs.py NAME:3 ...       one more draw than the study has

Extracts the records into runs/transfer (or READOUT_TRANSFER), one after another; a stopped call goes on where it
stopped. SmolLM2 takes about an hour on one core, the built-in model a few minutes.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from readout.prompts import PromptDistribution
from readout.records import ExtractionOptions, extract, middle_layers

RECORDS = Path(os.environ.get("READOUT_TRANSFER", Path(__file__).parent.parent / "runs" / "transfer"))
DRAWS = 3
SMOLLM2, TINY = "smollm2-135m", "tiny"
UNBALANCED = ((1, 3, 5, 7), (2, 3, 4, 7), (1, 2, 6, 7))

WORDS = PromptDistribution(
    task="words",
    classes=4,
    class_half="a",
    label_half="a",
    shots=((8, 8), (4, 12), (5, 5, 6), (2, 5, 9), (4, 4, 4, 4), (1, 3, 5, 7)),
    size=96,
    seed=31,
)
OTHER_WORDS = replace(WORDS, class_half="b", label_half="b", shots=UNBALANCED, size=64, seed=41)
OTHER_FORM = replace(
    WORDS,
    classes=3,
    class_half="b",
    labels="names",
    label_half="all",
    shots=((2, 4, 6), (1, 4, 7), (3, 3, 6)),
    template="{text} -> {label}\n",
    size=64,
    seed=81,
)
TREC = PromptDistribution(
    task="trec",
    classes=2,
    class_half="a",
    text_half="a",
    label_half="a",
    shots=((8, 8), (5, 11), (3, 13), (10, 6)),
    max_words=12,
    size=64,
    seed=51,
)
OTHER_TREC = replace(
    TREC, classes=3, class_half="b", text_half="b", label_half="b", shots=((2, 4, 6), (1, 4, 7)), size=60, seed=61
)
TREC_FOUR = replace(
    TREC,
    classes=4,
    class_half="all",
    text_half="b",
    label_half="b",
    shots=((1, 2, 4, 5), (1, 2, 3, 6)),
    size=60,
    seed=71,
)
# The sources' classes and texts with the targets' label words: what a label word is worth, without the target.
WORDS_LABELS = replace(WORDS, label_half="b", size=64, seed=131)
TREC_LABELS = replace(TREC, label_half="b", seed=151)
TREC_LABELS_THREE = replace(TREC_LABELS, classes=3, shots=((2, 4, 6), (1, 4, 7), (4, 4, 4)), size=96, seed=152)
SYNTHETIC = PromptDistribution(
    task="synthetic",
    classes=4,
    class_half="a",
    label_half="a",
    shots=((3, 3, 3), (5, 2, 2), (4, 3, 1), (3, 3), (3, 3, 3, 3)),
    size=96,
    seed=91,
)
OTHER_SYNTHETIC = replace(
    SYNTHETIC, classes=5, class_half="b", label_half="b", shots=((5, 3, 2, 2), (4, 3, 3, 2)), size=64, seed=92
)
NOISY = replace(OTHER_SYNTHETIC, task="synthetic:noise=0.15", seed=93)


@dataclass(frozen=True)
class Recorded:
    """One distribution on one model: ``draws`` draws of it (seeds 1000 apart), the last ``blind`` of them read in a
    pass blind to labels too."""

    model: str
    distribution: PromptDistribution
    draws: int = DRAWS
    blind: int = 0

    def drawn(self, draw: int) -> PromptDistribution:
        """The distribution with the seed of one draw."""
        return replace(self.distribution, seed=self.distribution.seed + 1000 * draw)


RECORDED = {
    "words": Recorded(SMOLLM2, WORDS, 1, blind=1),
    "trec": Recorded(SMOLLM2, TREC, 1, blind=1),
    "other_words": Recorded(SMOLLM2, OTHER_WORDS, blind=1),
    "other_trec": Recorded(SMOLLM2, OTHER_TREC, blind=1),
    "other_form": Recorded(SMOLLM2, OTHER_FORM),
    "trec_four": Recorded(SMOLLM2, TREC_FOUR),
    "words_labels": Recorded(SMOLLM2, WORDS_LABELS, 1),
    "trec_labels": Recorded(SMOLLM2, TREC_LABELS, 1),
    "trec_labels_three": Recorded(SMOLLM2, TREC_LABELS_THREE, 1),
    "synthetic": Recorded(TINY, SYNTHETIC, 1),
    "other_synthetic": Recorded(TINY, OTHER_SYNTHETIC),
    "noisy": Recorded(TINY, NOISY),
}


def record_path(name: str, draw: int) -> Path:
    """Where the record of one draw lies."""
    return RECORDS / f"{name}-{draw}"


def record_all(names: list[str]) -> None:
    """Extract the records of these distributions (all by default): the first draw of each, then the second, ..."""
    wanted = [(name, draw) for draw in range(DRAWS) for name, one in RECORDED.items() if draw < one.draws]
    if names:
        more = [(name, int(draw)) for name, _, draw in (asked.partition(":") for asked in names) if draw]
        wanted = [(name, draw) for name, draw in wanted if name in names] + more
    from readout.models import load_model

    models: dict[str, Any] = {}
    for name, draw in wanted:
        one = RECORDED[name]
        if one.model not in models:
            models[one.model] = load_model(one.model, device="cpu")
        model = models[one.model]
        layers = middle_layers(len(model.wiring.attentions))
        blind = one.draws - one.blind <= draw < one.draws
        options = ExtractionOptions(residual_layers=layers, label_residuals=True, blind=blind)
        print(f"{name}-{draw}", flush=True)
        extract(model, one.drawn(draw), record_path(name, draw), options, progress=True)


if __name__ == "__main__":
    record_all(sys.argv[1:])
