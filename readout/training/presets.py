"""Named training recipes: model, optimiser and curriculum as frozen dataclasses with a JSON round trip."""

import dataclasses
import json
from dataclasses import dataclass
from typing import Any

from readout.errors import ReadoutError


@dataclass(frozen=True)
class Phase:
    """One phase of the curriculum: which sequences it draws and when it ends.

    A sequence is `demonstrations` times (words, cue if any, label). In a *repeating* sequence a class keeps its label;
    in a *distinct* one every demonstration has a fresh label, so that nothing can be read out of it.

    Parameters
    ----------
    name : str
        Name in the history.
    steps : int
        Largest number of steps; the phase ends there whatever the accuracy.
    until_accuracy : float
        The phase ends once the running accuracy is above this; 0 = only at `steps`.
    until_leak : float
        ... and the running probability of used labels in distinct sequences is below this; 0 = no such condition.
    demonstrations : int
        Demonstrations in a sequence.
    classes : tuple of int
        Least and greatest number of classes in a repeating sequence.
    class_pool, label_pool, words_per_class : int
        How many classes, labels and words of a class are in use.
    words_per_text : int
        1 or 2.
    cue : bool
        Whether a cue token stands between text and label.
    noise : float
        Probability, per word, of a word of another class.
    ambiguity : float
        Share of words that neighbouring classes share.
    repeat_weight : float
        Weight of drawing the same class again right after itself, relative to any other time.
    unbalanced : bool
        Whether classes have random weights in a sequence.
    cover_first : bool
        Whether the first demonstrations hold each class once.
    distinct : float
        Share of distinct sequences.
    distinct_classes : tuple of int
        Least and greatest number of classes in a distinct sequence.
    masked_until_repeat : bool
        Whether the loss of a repeating sequence starts after its first repeated label.
    novel : bool
        Whether the loss of a repeating sequence also counts where a class comes for the first time.
    echo : int
        Echo sequences per step: random tokens that copy themselves at a lag.
    echo_weight, word_weight : float
        Weights of the language-model losses on echo sequences and on a text's second word.
    batch : int
        Sequences in a step; 0 = the preset's.

    Raises
    ------
    ReadoutError
        If a sequence needs more labels than `label_pool`.
    """

    name: str
    steps: int
    until_accuracy: float = 0.0
    until_leak: float = 0.0
    demonstrations: int = 10
    classes: tuple[int, int] = (2, 6)
    class_pool: int = 32
    label_pool: int = 78
    words_per_class: int = 1
    words_per_text: int = 1
    cue: bool = False
    noise: float = 0.0
    ambiguity: float = 0.0
    repeat_weight: float = 1.0
    unbalanced: bool = False
    cover_first: bool = False
    distinct: float = 0.0
    distinct_classes: tuple[int, int] = (3, 10)
    masked_until_repeat: bool = False
    novel: bool = False
    echo: int = 0
    echo_weight: float = 1.0
    word_weight: float = 0.3
    batch: int = 0

    def __post_init__(self) -> None:
        """Refuse a phase that asks for more labels than it has."""
        most = min(self.classes[1], self.class_pool)
        needed = max(most, self.demonstrations) if self.distinct else most
        if needed > self.label_pool:
            raise ReadoutError(
                f"phase {self.name!r} needs {needed} labels in a sequence and has {self.label_pool}: raise label_pool, "
                "or lower " + ("demonstrations" if self.distinct else "classes")
            )


@dataclass(frozen=True)
class Preset:
    """A whole recipe: model, optimiser, curriculum and schedule of checkpoints.

    Parameters
    ----------
    name : str
        Name of the recipe.
    phases : tuple of Phase
        The curriculum, in order.
    layers, heads, hidden, head_dim, feed_forward : int
        Size of the transformer.
    initializer_range : float
        Standard deviation of the initial weights.
    batch, warmup : int
        Sequences in a step of a phase that names no other number; steps over which the learning rate rises.
    learning_rate, final_rate, weight_decay, clip : float
        AdamW's; `final_rate` is the share of the learning rate at the end of the last phase's second half.
    betas : tuple of float
        AdamW's.
    checkpoint_every : int
        Steps between checkpoints.
    """

    name: str
    phases: tuple[Phase, ...]
    layers: int = 4
    heads: int = 4
    hidden: int = 64
    head_dim: int = 32
    feed_forward: int = 128
    initializer_range: float = 0.1
    batch: int = 64
    warmup: int = 50
    learning_rate: float = 3e-3
    final_rate: float = 0.03
    weight_decay: float = 0.01
    clip: float = 1.0
    betas: tuple[float, float] = (0.9, 0.98)
    checkpoint_every: int = 100

    def summary(self) -> str:
        """Return the recipe on one screen."""
        lines = [
            f"preset {self.name}: {self.layers} layers x {self.heads} heads, d {self.hidden}, "
            f"learning rate {self.learning_rate:g}"
        ]
        for number, phase in enumerate(self.phases):
            until = f" or accuracy > {phase.until_accuracy:g}" if phase.until_accuracy else ""
            lines.append(
                f"  phase {number} {phase.name}: {phase.steps} steps{until}; {phase.demonstrations} demonstrations, "
                f"{phase.classes[0]}-{phase.classes[1]} of {phase.class_pool} classes, noise {phase.noise:g}, "
                f"distinct {phase.distinct:g}, echo {phase.echo}, batch {phase.batch or self.batch}"
            )
        return "\n".join(lines)

    def to_json(self) -> str:
        """Return the recipe as JSON, keys in the order of the fields."""
        return json.dumps(dataclasses.asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str) -> "Preset":
        """Read what `to_json` wrote.

        Raises
        ------
        ReadoutError
            For a key that does not exist; the message names the known ones.
        """
        data: dict[str, Any] = json.loads(text)
        phases = tuple(_build(Phase, phase) for phase in data.pop("phases", ()))
        preset: Preset = _build(cls, data | {"phases": phases})
        return preset


def _build(kind: type, data: dict[str, Any]) -> Any:
    known = [field.name for field in dataclasses.fields(kind)]
    unknown = sorted(set(data) - set(known))
    if unknown:
        raise ReadoutError(
            f"a {kind.__name__.lower()} has no {unknown[0]!r}: take it out; known are {', '.join(known)}"
        )
    return kind(**{key: tuple(v) if isinstance(v, list) else v for key, v in data.items()})


_GATE = {"distinct": 0.4, "masked_until_repeat": True, "novel": True, "until_accuracy": 0.85, "until_leak": 0.2}
_WORDS = {"words_per_text": 2, "cue": True}

# Copying is learned on few words and labels, where each is met often; the bridge is there because the step from 8 to 32
# classes at once takes longer than both small ones. Once copying is learned, 32 sequences a step do as well as 64.
TINY = Preset(
    "tiny",
    (
        Phase("copy", 1000, 0.85, classes=(4, 5), class_pool=8, label_pool=8, cover_first=True, echo=32),
        Phase("bridge", 300, 0.85, class_pool=16, label_pool=16),
        Phase("classes", 400, 0.85),
        Phase("gate", 300, batch=32, **_GATE | {"classes": (2, 8), "distinct": 0.5, "until_leak": 0.17}),  # type: ignore[arg-type]
        Phase("cue", 200, batch=32, cue=True, **_GATE),  # type: ignore[arg-type]
        Phase("texts", 200, batch=32, words_per_class=2, **_GATE, **_WORDS),  # type: ignore[arg-type]
        Phase(
            "noise", 450, batch=32, demonstrations=12, words_per_class=8, noise=0.1, repeat_weight=0.25,
            unbalanced=True, **_GATE | {"until_accuracy": 0.0}, **_WORDS,  # type: ignore[arg-type]
        ),
    ),
    checkpoint_every=200,
)  # fmt: skip


def _without(name: str, **changes: dict[str, Any]) -> Preset:
    """The recipe with some phases changed, by name."""
    phases = tuple(dataclasses.replace(phase, **changes.get(phase.name, {})) for phase in TINY.phases)
    return dataclasses.replace(TINY, name=name, phases=phases, checkpoint_every=400)


_STEP = Preset(
    "test",
    (
        Phase("copy", 3, class_pool=16, label_pool=16, classes=(4, 5), demonstrations=6, cover_first=True, echo=4),
        Phase("noise", 5, demonstrations=6, words_per_class=8, **_GATE | {"until_accuracy": 0.0}, **_WORDS),  # type: ignore[arg-type]
    ),
    layers=2, heads=2, hidden=16, head_dim=8, feed_forward=16, batch=4, warmup=2, checkpoint_every=2,
)  # fmt: skip

PRESETS = {
    preset.name: preset
    for preset in (
        TINY,
        _without("no-echo", copy={"echo": 0}),
        _without(
            "no-gate",
            **{
                name: {"distinct": 0.0, "masked_until_repeat": False, "until_leak": 0.0}
                for name in ("gate", "cue", "texts", "noise")
            },
        ),
        dataclasses.replace(
            _without("no-curriculum"), phases=(dataclasses.replace(TINY.phases[-1], steps=1100, echo=32),)
        ),
        _STEP,
    )
}
