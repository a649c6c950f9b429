"""The training loop: curriculum, loss, checkpoints and exact resume."""

import json
import math
import platform
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn.functional import cross_entropy
from tqdm import tqdm

from readout.errors import ReadoutError
from readout.files import write_text
from readout.training.batches import FIRST_LABEL, Batch, draw_batch, draw_echo, step_generator
from readout.training.model import build_model
from readout.training.presets import Phase, Preset

# Measures of a checkpoint, from the model in evaluation mode.
Measure = Callable[[Any], dict[str, float]]
_MEMORY = 0.95  # of the running accuracy and leak, per step


@dataclass
class Progress:
    """Where a training run stands: all that a resumed run needs besides weights and optimiser."""

    step: int = 0
    phase: int = 0
    step_in_phase: int = 0
    accuracy: float = 0.0
    leak: float = 1.0
    seconds: float = 0.0
    phases: list[dict[str, Any]] = field(default_factory=list)
    checkpoints: list[dict[str, float]] = field(default_factory=list)


@dataclass(frozen=True)
class StepResult:
    """Loss of one step and what the curriculum looks at."""

    loss: Tensor
    accuracy: float
    leak: float


def step_loss(model: Any, batch: Batch, phase: Phase, echo: Tensor | None) -> StepResult:
    """Return the loss of one batch: labels, second words and echo.

    Parameters
    ----------
    model : transformers.Qwen3ForCausalLM
        The model.
    batch : Batch
        Sequences of the phase.
    phase : Phase
        Weights of the losses.
    echo : int64[sequences, tokens] or None
        Echo sequences.

    Returns
    -------
    StepResult
        Loss (scalar, differentiable); accuracy over judged labels; mean probability of the used labels in distinct
        sequences (nan where there is none).
    """
    tokens = torch.from_numpy(batch.tokens)
    hidden = model.model(input_ids=tokens, use_cache=False).last_hidden_state
    logits = model.lm_head(hidden[:, batch.predict_at])
    labels, weight, fresh = (torch.from_numpy(x) for x in (batch.labels, batch.weight, batch.fresh))
    log_probability = logits.log_softmax(-1)
    used = torch.zeros_like(logits).scatter_(2, labels[:, :, None], 1.0).cumsum(1)
    used = (used - torch.zeros_like(logits).scatter_(2, labels[:, :, None], 1.0)).clamp(max=1)
    unused = torch.zeros_like(logits)
    unused[:, :, FIRST_LABEL : FIRST_LABEL + phase.label_pool] = 1
    unused -= used
    known = log_probability.gather(2, labels[:, :, None]).squeeze(2)
    # A fresh label is a uniform draw: its expected loss has the same gradient on average, without the draw's noise.
    drawn = (log_probability * unused).sum(-1) / unused.sum(-1)
    loss = -(torch.where(fresh, drawn, known) * weight).sum() / weight.sum().clamp(min=1)
    if batch.word_at.size and phase.word_weight:
        words = model.lm_head(hidden[:, batch.word_at])
        loss = loss + phase.word_weight * cross_entropy(words.transpose(1, 2), tokens[:, batch.word_at + 1])
    if echo is not None:
        copied = model.lm_head(model.model(input_ids=echo, use_cache=False).last_hidden_state[:, :-1])
        loss = loss + phase.echo_weight * cross_entropy(copied.transpose(1, 2), echo[:, 1:])
    with torch.no_grad():
        judged = torch.from_numpy(batch.judged)
        right = (logits.argmax(-1) == labels)[judged].float().mean()
        leak = math.nan
        if batch.distinct.any():
            rows = torch.from_numpy(batch.distinct)
            leak = float((log_probability[rows].exp() * used[rows])[:, 1:].sum(-1).mean())
    return StepResult(loss, float(right), leak)


def learning_rate(preset: Preset, progress: Progress) -> float:
    """Return the learning rate of a step: warm-up, constant, then linear over the last phase's second half."""
    rate = preset.learning_rate * min(1.0, (progress.step + 1) / preset.warmup)
    if progress.phase == len(preset.phases) - 1:
        done = progress.step_in_phase / preset.phases[-1].steps
        rate *= 1 - (1 - preset.final_rate) * max(0.0, 2 * done - 1)
    return rate


class Trainer:
    """One training run in a folder: resumes from what the folder holds, exactly.

    Parameters
    ----------
    out : pathlib.Path
        Folder of the run: `checkpoints/step-000100/`, `resume/`, `history.json`.
    seed : int
        Seed of weights and data.
    preset : Preset
        The recipe.
    measure : callable or None
        Measures taken at each checkpoint.
    save_tokenizer : callable or None
        Writes the tokenizer into a checkpoint's folder.

    Raises
    ------
    ReadoutError
        If the folder holds a run of another seed or recipe.
    """

    def __init__(
        self,
        out: Path,
        seed: int,
        preset: Preset,
        measure: Measure | None = None,
        save_tokenizer: Callable[[Path], Any] | None = None,
    ) -> None:
        self.out, self.seed, self.preset = out, seed, preset
        self.measure, self.save_tokenizer = measure, save_tokenizer
        self.model = build_model(preset, seed)
        matrices = [p for p in self.model.parameters() if p.ndim > 1]
        vectors = [p for p in self.model.parameters() if p.ndim <= 1]
        self.optimizer = torch.optim.AdamW(
            [{"params": matrices, "weight_decay": preset.weight_decay}, {"params": vectors, "weight_decay": 0.0}],
            lr=preset.learning_rate,
            betas=preset.betas,
            fused=True,
        )
        self.progress = Progress()
        self._claim()
        self._resume()

    @property
    def done(self) -> bool:
        """Whether all phases are over."""
        return self.progress.phase >= len(self.preset.phases)

    def run(self, stop_at: int | None = None, quiet: bool = False) -> Any:
        """Train until the curriculum is over.

        Parameters
        ----------
        stop_at : int, optional
            Stop before this step (the run can be resumed).
        quiet : bool
            Whether to leave out the progress bar.

        Returns
        -------
        transformers.Qwen3ForCausalLM
            The model, in evaluation mode.
        """
        threads = torch.get_num_threads()
        # One thread: matrices this small gain nothing from more, and sums keep their order.
        torch.set_num_threads(1)
        started = time.process_time() - self.progress.seconds
        try:
            with tqdm(initial=self.progress.step, total=self._last_step(), unit="step", disable=quiet) as bar:
                while not self.done and self.progress.step != stop_at:
                    if self.progress.step == 0 and not self.progress.checkpoints:
                        self._checkpoint()
                    self._step()
                    self.progress.seconds = time.process_time() - started
                    bar.total = self._last_step()
                    bar.update()
                    if bar.n % 10 == 0 and not self.done:
                        bar.set_description(
                            f"{self.preset.phases[self.progress.phase].name} accuracy {self.progress.accuracy:.2f}"
                        )
                    if self.done or self.progress.step % self.preset.checkpoint_every == 0:
                        self._checkpoint()
        finally:
            torch.set_num_threads(threads)
        return self.model.eval()

    def _last_step(self) -> int:
        """The step at which training ends if no further phase ends before its most steps."""
        left = sum(phase.steps for phase in self.preset.phases[self.progress.phase :])
        return self.progress.step - self.progress.step_in_phase + left

    def _step(self) -> None:
        progress, preset = self.progress, self.preset
        phase = preset.phases[progress.phase]
        batch = draw_batch(phase, phase.batch or preset.batch, step_generator(self.seed, progress.step))
        echo = None
        if phase.echo:
            echo = torch.from_numpy(draw_echo(phase, step_generator(self.seed, progress.step, 1)))
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(preset, progress)
        self.model.train()
        result = step_loss(self.model, batch, phase, echo)
        self.optimizer.zero_grad(set_to_none=True)
        result.loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), preset.clip)
        self.optimizer.step()
        progress.step += 1
        progress.step_in_phase += 1
        if not math.isnan(result.accuracy):
            progress.accuracy += (1 - _MEMORY) * (result.accuracy - progress.accuracy)
        if not math.isnan(result.leak):
            progress.leak += (1 - _MEMORY) * (result.leak - progress.leak)
        learned = phase.until_accuracy and progress.accuracy > phase.until_accuracy
        closed = not phase.until_leak or progress.leak < phase.until_leak
        if (learned and closed) or progress.step_in_phase >= phase.steps:
            progress.phases.append(
                {
                    "name": phase.name,
                    "end": progress.step,
                    "steps": progress.step_in_phase,
                    "reason": "learned" if learned and closed else "steps",
                    "accuracy": progress.accuracy,
                    "leak": progress.leak,
                }
            )
            progress.phase, progress.step_in_phase, progress.accuracy, progress.leak = progress.phase + 1, 0, 0.0, 1.0

    def _checkpoint(self) -> None:
        progress = self.progress
        row: dict[str, float] = {"step": progress.step, "phase": min(progress.phase, len(self.preset.phases) - 1)}
        if self.measure is not None:
            self.model.eval()
            with torch.no_grad():
                row |= self.measure(self.model)
        progress.checkpoints.append(row)
        folder = self.out / "checkpoints" / f"step-{progress.step:06d}"
        save_model(self.model, folder)
        if self.save_tokenizer is not None:
            self.save_tokenizer(folder)
        self._save_state()
        history = {
            "preset": asdict(self.preset),
            "seed": self.seed,
            "versions": {
                "torch": torch.__version__,
                "transformers": transformers.__version__,
                "python": platform.python_version(),
            },
            "cpu_seconds": round(progress.seconds, 1),
            "done": self.done,
            "phases": progress.phases,
            "checkpoints": progress.checkpoints,
        }
        write_text(self.out / "history.json", json.dumps(history, indent=1))

    def _names(self) -> dict[int, str]:
        return {id(parameter): name for name, parameter in self.model.named_parameters()}

    def _save_state(self) -> None:
        """Write weights, optimiser and progress; the older state goes only when the new one is complete."""
        names = self._names()
        tensors = {f"model.{name}": p.detach() for name, p in self.model.named_parameters()}
        for parameter, state in self.optimizer.state.items():
            for key, value in state.items():
                tensors[f"optimizer.{names[id(parameter)]}|{key}"] = value
        resume = self.out / "resume"
        target = resume / f"step-{self.progress.step:06d}"
        partial = resume / "partial"
        shutil.rmtree(partial, ignore_errors=True)
        shutil.rmtree(target, ignore_errors=True)
        partial.mkdir(parents=True)
        save_file(tensors, partial / "state.safetensors")
        (partial / "progress.json").write_text(json.dumps(asdict(self.progress)))
        partial.rename(target)
        for old in resume.glob("step-*"):
            if old != target:
                shutil.rmtree(old)

    def _resume(self) -> None:
        states = sorted((self.out / "resume").glob("step-*"))
        if not states:
            return
        self.progress = Progress(**json.loads((states[-1] / "progress.json").read_text()))
        tensors = load_file(states[-1] / "state.safetensors")
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():
                parameter.copy_(tensors[f"model.{name}"])
                state = {
                    key.partition("|")[2]: value
                    for key, value in tensors.items()
                    if key.startswith(f"optimizer.{name}|")
                }
                if state:
                    self.optimizer.state[parameter] = state

    def _claim(self) -> None:
        """Refuse to continue another run's folder."""
        path = self.out / "run.json"
        mine = {"seed": self.seed, "preset": json.loads(self.preset.to_json())}
        if path.exists():
            theirs = json.loads(path.read_text())
            if theirs != mine:
                raise ReadoutError(
                    f"{self.out} holds a run of seed {theirs['seed']} and preset {theirs['preset']['name']!r}, asked "
                    f"were seed {self.seed} and preset {self.preset.name!r}: choose another folder or delete this one"
                )
            return
        self.out.mkdir(parents=True, exist_ok=True)
        write_text(path, json.dumps(mine, indent=1))


def save_model(model: Any, folder: Path) -> None:
    """Write a model in the transformers folder format (config.json, model.safetensors)."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file(
        {k: v.contiguous() for k, v in model.state_dict().items()}, folder / "model.safetensors", {"format": "pt"}
    )
    config = model.config.to_dict() | {"architectures": ["Qwen3ForCausalLM"]}
    (folder / "config.json").write_text(json.dumps(config, indent=1, default=str))
