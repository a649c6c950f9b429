"""Training a router on queries that the model has read up to the first routed layer; stopped runs go on exactly."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from tqdm import tqdm

from readout.errors import ReadoutError
from readout.files import writable_folder, write_json
from readout.icr.carriers import Carrier
from readout.icr.examples import digest
from readout.icr.queries import Queries
from readout.icr.router import Router, RouterSettings, routing_loss
from readout.statistics import generator

WINDOW = 16
"""Batches among which queries are sorted by length, so that little is padded."""
FLAT = 0.02
"""Relative change of an epoch's mean loss below which the loss counts as flat."""


@dataclass(frozen=True)
class TrainingReport:
    """What training did.

    Attributes
    ----------
    epochs : tuple of dict
        Mean of the loss and of each of its terms, by epoch.
    steps : int
    parameters : int
        Numbers that were trained.
    """

    epochs: tuple[dict[str, float], ...]
    steps: int
    parameters: int

    @property
    def last_change(self) -> float:
        """Relative change of the mean loss from the last epoch but one to the last; NaN with one epoch."""
        if len(self.epochs) < 2:
            return float("nan")
        before, after = self.epochs[-2]["total"], self.epochs[-1]["total"]
        return (after - before) / before

    @property
    def is_flat(self) -> bool:
        """Whether the loss fell by less than 2 % over the last epoch."""
        return abs(self.last_change) < FLAT

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        change = self.last_change
        return {
            "epochs": [dict(one) for one in self.epochs],
            "steps": self.steps,
            "parameters": self.parameters,
            "last_change": None if np.isnan(change) else change,
            "is_flat": self.is_flat,
        }

    def summary(self) -> str:
        """The loss by epoch, on one line each."""
        lines = [f"{self.parameters} numbers trained in {self.steps} steps"]
        for number, epoch in enumerate(self.epochs):
            lines.append(f"epoch {number}: " + ", ".join(f"{name} {value:.4f}" for name, value in epoch.items()))
        return "\n".join(lines)


def epoch_batches(lengths: np.ndarray, settings: RouterSettings, epoch: int) -> list[np.ndarray]:
    """Every query once, in batches of alike lengths whose order is random."""
    draw = generator(settings.seed * 7919 + epoch)
    order = draw.permutation(len(lengths))
    span = settings.batch * WINDOW
    batches: list[np.ndarray] = []
    for start in range(0, len(order), span):
        window = order[start : start + span]
        window = window[np.argsort(lengths[window], kind="stable")]
        batches += [window[i : i + settings.batch] for i in range(0, len(window), settings.batch)]
    return [batches[i] for i in draw.permutation(len(batches))]


class RouterTrainer:
    """One training run of a router.

    Parameters
    ----------
    carrier : Carrier
        What the router's weights change.
    queries : Queries
        To train on; read up to the carrier's first layer, or to one below it.
    features : float32 [queries, width]
        The router's inputs.
    settings : RouterSettings
    out : Path, optional
        Folder of checkpoints; a run found there is resumed.

    Raises
    ------
    ReadoutError
        If the queries start above the first changed layer, or the folder holds another run.
    """

    def __init__(
        self,
        carrier: Carrier,
        queries: Queries,
        features: Float[np.ndarray, "queries width"],
        settings: RouterSettings,
        out: Path | None = None,
    ) -> None:
        if queries.layer > min(carrier.layers):
            raise ReadoutError(
                f"the queries were read up to layer {queries.layer}, but layer {min(carrier.layers)} is changed: read "
                "them up to that layer"
            )
        if len(features) != len(queries):
            raise ReadoutError(f"{len(queries)} queries need as many features, got {len(features)}")
        self.carrier, self.queries, self.settings, self.out = carrier, queries, settings, out
        device = carrier.model.device
        self.features = torch.from_numpy(np.asarray(features, np.float32)).to(device)
        layers = len(carrier.layers)
        self.router = Router(features.shape[1], layers, carrier.rank, carrier.heads, settings).to(device)
        self.parameters: dict[str, nn.Parameter] = {
            **{f"router.{name}": one for name, one in self.router.named_parameters()},
            **carrier.parameters(),
        }
        self.optimizer = torch.optim.AdamW(
            list(self.parameters.values()), lr=settings.learning_rate, weight_decay=settings.weight_decay
        )
        self.history: list[dict[str, float]] = []
        self.steps = 0
        if out is not None:
            self._claim(writable_folder(out))
            self._resume(out)

    def run(self, progress: bool = False) -> TrainingReport:
        """Train until all epochs are over; a checkpoint is written after each."""
        while len(self.history) < self.settings.epochs:
            self._epoch(len(self.history), progress)
            if self.out is not None:
                self._save(self.out)
        n_trained = sum(one.numel() for one in self.parameters.values())
        return TrainingReport(tuple(self.history), self.steps, n_trained)

    def _epoch(self, epoch: int, progress: bool) -> None:
        lengths = np.array([len(one) for one in self.queries.token_ids])
        batches = epoch_batches(lengths, self.settings, epoch)
        scale, sums, seen = self.settings.scale(epoch), dict[str, float](), 0
        for rows in tqdm(batches, desc=f"epoch {epoch}", unit="step", disable=not progress):
            terms = self._step(rows, scale)
            for name, value in terms.items():
                sums[name] = sums.get(name, 0.0) + value * len(rows)
            seen += len(rows)
        self.history.append({name: value / seen for name, value in sums.items()})

    def _step(self, rows: np.ndarray, scale: float) -> dict[str, float]:
        queries, device = self.queries, self.carrier.model.device
        # The loss' penalty is of the router's own alpha; the pass gets it scaled.
        weights = self.router(self.features[torch.from_numpy(rows).to(device)])
        logits = self.carrier.logits(queries.batch(rows, self.carrier.model), weights.times(scale))
        loss = routing_loss(
            logits,
            torch.from_numpy(queries.options[rows]).to(device),
            torch.from_numpy(queries.answers[rows]).to(device),
            torch.from_numpy(queries.entropy[rows]).to(device),
            weights,
            self.settings,
        )
        self.optimizer.zero_grad(set_to_none=True)
        loss.total.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(list(self.parameters.values()), self.settings.clip)
        self.optimizer.step()
        self.steps += 1
        return loss.terms()

    def _identity(self) -> dict[str, Any]:
        features = np.round(self.features.cpu().numpy()[:, :8].astype(np.float64), 3)
        return {
            "settings": self.settings.to_dict(),
            "queries": digest(self.queries.examples),
            "features": float(np.abs(features).sum().round(1)),
            "layers": list(self.carrier.layers),
            "rank": self.carrier.rank,
        }

    def _claim(self, out: Path) -> None:
        path, own = out / "run.json", self._identity()
        if path.exists() and json.loads(path.read_text()) != own:
            raise ReadoutError(f"{out} holds a router of other settings or queries: choose another folder")
        write_json(path, own)

    def _save(self, out: Path) -> None:
        tensors = {name: one.detach().contiguous() for name, one in self.parameters.items()}
        for name, one in self.parameters.items():
            for key, value in self.optimizer.state[one].items():
                tensors[f"optimizer|{name}|{key}"] = value.contiguous()
        folder, partial = out / f"epoch-{len(self.history):03d}", out / "partial"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        save_file(tensors, partial / "state.safetensors")
        write_json(partial / "history.json", {"epochs": self.history, "steps": self.steps})
        shutil.rmtree(folder, ignore_errors=True)
        partial.rename(folder)
        for old in out.glob("epoch-*"):
            if old != folder:
                shutil.rmtree(old)

    def _resume(self, out: Path) -> None:
        folders = sorted(out.glob("epoch-*"))
        if not folders:
            return
        told = json.loads((folders[-1] / "history.json").read_text())
        self.history, self.steps = told["epochs"], told["steps"]
        tensors = load_file(folders[-1] / "state.safetensors")
        with torch.no_grad():
            for name, one in self.parameters.items():
                one.copy_(tensors[name])
                prefix = f"optimizer|{name}|"
                self.optimizer.state[one] = {
                    key.removeprefix(prefix): value.to(one.device) if value.ndim else value
                    for key, value in tensors.items()
                    if key.startswith(prefix)
                }


@torch.inference_mode()
def routed_answers(
    carrier: Carrier,
    router: Router,
    queries: Queries,
    features: Float[np.ndarray, "queries width"],
    scale: float | Float[np.ndarray, " queries"],
    *,
    batch_tokens: int = 2048,
) -> Float[np.ndarray, "queries answers"]:
    """Logits of each query's answers with a trained router, NaN where there is no answer.

    Parameters
    ----------
    carrier, router, queries
        As trained, and what to answer.
    features : float [queries, width]
    scale : float or float [queries]
        Factor of alpha; a checkpoint's own is `RouterSettings.last_scale`.
    batch_tokens : int
        Most tokens of a batch.
    """
    found = np.full(queries.options.shape, np.nan, np.float32)
    factors = np.broadcast_to(np.asarray(scale, np.float32), (len(queries),)).copy()
    device = carrier.model.device
    for rows in queries.batches(batch_tokens):
        weights = router(torch.from_numpy(np.asarray(features[rows], np.float32)).to(device))
        weights = weights.times(torch.from_numpy(factors[rows]).to(device)[:, None, None])
        found[rows] = answers_of(carrier.logits(queries.batch(rows, carrier.model), weights), queries.options[rows])
    return found


def answers_of(logits: Tensor, options: np.ndarray) -> np.ndarray:
    """Logits of the answers' tokens, NaN where there is none."""
    index = torch.from_numpy(np.maximum(options, 0)).to(logits.device)
    return np.where(options < 0, np.nan, logits.gather(1, index).float().cpu().numpy())
