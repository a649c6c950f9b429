"""Training by name: the library function behind `readout train`."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from readout.errors import ReadoutError
from readout.training.growth import measure_growth
from readout.training.presets import PRESETS, Preset
from readout.training.tokenizer import build_tokenizer, save_tokenizer
from readout.training.trainer import Trainer, save_model


@dataclass(frozen=True)
class TrainingRun:
    """A finished or stopped training run: what its `history.json` holds.

    Parameters
    ----------
    folder : pathlib.Path
        The run's folder.
    preset : Preset
        Its recipe.
    seed : int
        Its seed.
    cpu_seconds : float
        CPU time, measures included.
    done : bool
        Whether the curriculum is over.
    phases : tuple of dict
        Each phase's name, last step, number of steps and reason of its end.
    checkpoints : tuple of dict
        Measures by checkpoint (`readout.training.growth.Growth`), with `step` and `phase`.
    """

    folder: Path
    preset: Preset
    seed: int
    cpu_seconds: float
    done: bool
    phases: tuple[dict[str, Any], ...]
    checkpoints: tuple[dict[str, float], ...]

    @classmethod
    def load(cls, folder: str | Path) -> "TrainingRun":
        """Read the history of a run's folder.

        Raises
        ------
        ReadoutError
            If the folder holds no history.
        """
        path = Path(folder) / "history.json"
        if not path.exists():
            raise ReadoutError(f"{folder} holds no history.json: give the folder of a training run")
        data = json.loads(path.read_text())
        preset = Preset.from_json(json.dumps(data["preset"]))
        return cls(
            Path(folder), preset, data["seed"], data["cpu_seconds"], data["done"],
            tuple(data["phases"]), tuple(data["checkpoints"]),
        )  # fmt: skip

    @property
    def model_folder(self) -> Path:
        """Folder of the last checkpoint's model, to be loaded with `readout.models.load_model`."""
        return self.folder / "model"

    def summary(self) -> str:
        """Return phases and measures on one screen."""
        lines = [f"{self.preset.name}, seed {self.seed}: {self.cpu_seconds:.0f} CPU seconds, done: {self.done}"]
        lines += [f"  {p['name']:8} ends at step {p['end']} ({p['reason']})" for p in self.phases]
        names = ("accuracy", "reader_gap", "writer_effect", "gate_pair", "suppression", "readout_kl")
        lines.append("  " + "step".rjust(6) + "".join(name.rjust(15) for name in names))
        for row in self.checkpoints[-12:]:
            lines.append(f"  {row['step']:6}" + "".join(f"{row.get(name, float('nan')):15.3f}" for name in names))
        return "\n".join(lines)


def find_preset(preset: str | Preset) -> Preset:
    """Return a recipe by name.

    Raises
    ------
    ReadoutError
        If there is none of this name; the message lists the known ones.
    """
    if isinstance(preset, Preset):
        return preset
    if preset not in PRESETS:
        raise ReadoutError(f"no preset {preset!r}: choose one of {', '.join(PRESETS)}")
    return PRESETS[preset]


def train(
    out: str | Path, seed: int = 0, preset: str | Preset = "tiny", *, measure: bool = True, quiet: bool = False
) -> TrainingRun:
    """Train the small transformer from scratch, or go on with a run that was stopped.

    Parameters
    ----------
    out : path
        Folder of the run. It gets `model/`, `checkpoints/step-.../`, `history.json` and `resume/` (the last state).
    seed : int
        Seed of weights and data: the same seed gives the same weights on one machine.
    preset : str or Preset
        The recipe.
    measure : bool
        Whether to take the growth measures at each checkpoint.
    quiet : bool
        Whether to leave out the progress bar.

    Returns
    -------
    TrainingRun
        The history.

    Raises
    ------
    ReadoutError
        For an unknown preset, or a folder that holds another run.
    """
    folder, recipe = Path(out), find_preset(preset)
    tokenizer = build_tokenizer()
    taken = (lambda model: measure_growth(model, tokenizer)) if measure else None
    trainer = Trainer(folder, seed, recipe, taken, save_tokenizer)
    model = trainer.run(quiet=quiet)
    save_model(model, folder / "model")
    save_tokenizer(folder / "model")
    return TrainingRun.load(folder)
