"""A study of in-context routing: grounds by seed, test queries, methods tried on them, all kept so that it resumes."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from readout.errors import ReadoutError
from readout.files import write_json
from readout.icr.basis import third
from readout.icr.datasets import DATA_SETS, FAR, IN_DOMAIN, NEAR
from readout.icr.directions import Vectors, few_shot_prompts, read_vectors
from readout.icr.encoders import make_encoder
from readout.icr.examples import Example, digest, load_split, sample, without_overlap
from readout.icr.methods.base import Ground, Make, Method
from readout.icr.queries import Queries, join, read_queries
from readout.icr.scores import Scores, right_answers
from readout.models import LanguageModel
from readout.models.sources import is_built_in

SPARE = 4
"""Times as many candidates as are needed are looked through for texts that overlap with training queries."""


@dataclass(frozen=True)
class StudySettings:
    """Sizes and names of a study.

    Attributes
    ----------
    in_domain, out_of_domain, held_out : tuple of str
        Data sets to train on, to test on beside these, and to choose on (out-of-domain settings).
    train, development, test : int
        Queries of each data set.
    prompts, shots : int
        Few-shot prompts of each training set for the directions, and demonstrations of each answer in them.
    demonstrations : int
        Of each answer in the few-shot baseline.
    max_words : int
        Texts are cut to this many words, 0 for never.
    layers : str
        Routed layers; queries are read up to the first of them.
    encoder : str
        Of `readout.icr.encoders.ENCODERS`, or a folder.
    data : str
        Folder of data sets that do not come with StaICC; "" for the hub.
    source : str
        "auto", "staicc", "hub" or "folder".
    """

    in_domain: tuple[str, ...] = ("agnews", "sst2", "trec")
    out_of_domain: tuple[str, ...] = ("mr", "sst5", "subj", "emotion", "financial")
    held_out: tuple[str, ...] = ("hate",)
    train: int = 250
    development: int = 80
    test: int = 500
    prompts: int = 40
    shots: int = 2
    demonstrations: int = 5
    max_words: int = 32
    layers: str = "late"
    encoder: str = "minilm"
    data: str = ""
    source: str = "auto"

    def __post_init__(self) -> None:
        names = (*self.in_domain, *self.out_of_domain, *self.held_out)
        unknown = [name for name in names if name not in DATA_SETS]
        if unknown:
            raise ReadoutError(f"no data set {', '.join(unknown)}; known are {', '.join(DATA_SETS)}")
        if len(set(names)) != len(names):
            raise ReadoutError("a data set can be in one list only: in_domain, out_of_domain, held_out")
        if not self.in_domain:
            raise ReadoutError("in_domain: name at least one data set to train on")
        if min(self.train, self.development, self.test, self.prompts, self.shots, self.demonstrations) < 1:
            raise ReadoutError("sizes of a study must be at least 1")

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> StudySettings:
        """Read what `to_dict` wrote.

        Raises
        ------
        ReadoutError
            If a name is unknown.
        """
        unknown = set(data) - {field.name for field in fields(cls)}
        if unknown:
            raise ReadoutError(f"study settings: unknown {', '.join(sorted(unknown))}")
        given: dict[str, Any] = {name: tuple(one) if isinstance(one, list) else one for name, one in data.items()}
        return cls(**given)


TINY = StudySettings(
    in_domain=("synthetic0", "synthetic1", "synthetic2"),
    out_of_domain=("synthetic3", "synthetic4"),
    held_out=("synthetic5",),
    train=80,
    development=20,
    test=56,
    prompts=24,
    max_words=0,
    layers="all",
    encoder="own",
)


def default_settings(model: str) -> StudySettings:
    """The study's sizes for a model: pseudo-words for a built-in one, texts for all others."""
    return TINY if is_built_in(model) else StudySettings()


class Study:
    """One model, one settings, any methods and seeds; what was done stays in the folder.

    Parameters
    ----------
    model : LanguageModel
    settings : StudySettings
    folder : str or Path
        Gets ``cache/`` (queries, directions), ``seed-N/`` (trained methods) and ``answers/``.
    seeds : sequence of int
        All seeds of the study: test queries must share no text with any seed's training queries.
    progress : bool
        Whether to show bars.

    Raises
    ------
    ReadoutError
        If the folder holds another study.
    """

    def __init__(
        self,
        model: LanguageModel,
        settings: StudySettings,
        folder: str | Path,
        seeds: Sequence[int] = (0, 1, 2),
        progress: bool = False,
    ) -> None:
        self.model, self.settings, self.folder = model, settings, Path(folder)
        self.seeds, self.progress = tuple(seeds), progress
        self.layer = third(settings.layers, len(model.wiring.attentions))[0]
        self._claim()
        self._encode = make_encoder(settings.encoder, model)
        self._grounds: dict[int, Ground] = {}
        self._tests: dict[str, Queries] = {}
        self._held_out: Queries | None = None

    def _claim(self) -> None:
        path = self.folder / "study.json"
        fingerprint = self.model.provenance.get("fingerprint")
        own = {"model": self.model.name, "fingerprint": fingerprint, "seeds": list(self.seeds)}
        own |= {"settings": self.settings.to_dict()}
        if path.exists() and json.loads(path.read_text()) != own:
            raise ReadoutError(f"{self.folder} holds a study of other settings: choose another folder")
        write_json(path, own)

    def _split(self, name: str) -> Any:
        settings = self.settings
        return load_split(name, settings.data or None, settings.source, settings.max_words)

    def train_examples(self, seed: int) -> dict[str, tuple[Example, ...]]:
        """Training examples of a seed, by data set."""
        settings = self.settings
        # A demonstration is never its own query, so the prompts need one more than they show.
        least = max(settings.shots + 1, settings.demonstrations)
        return {
            name: tuple(sample(self._split(name).train, settings.train, least, seed * 613 + place))
            for place, name in enumerate(settings.in_domain)
        }

    def ground(self, seed: int) -> Ground:
        """What methods of a seed learn from; made once."""
        if seed not in self._grounds:
            train = self.train_examples(seed)
            size = self.settings.development
            development = {
                name: without_overlap(self._split(name).development[: SPARE * size], own)[:size]
                for name, own in train.items()
            }
            self._grounds[seed] = Ground(
                self.model,
                train,
                join([self.read(own) for own in train.values()]),
                join([self.read(own) for own in development.values()]),
                self.vectors(seed),
                self._encode,
                self.settings.demonstrations,
                seed,
                self.folder / f"seed-{seed}",
                self.held_out if self.settings.held_out else None,
            )
        return self._grounds[seed]

    def vectors(self, seed: int) -> Vectors:
        """Last-token vectors of a seed's few-shot prompts, at all layers."""
        path = self.folder / "cache" / f"directions-{seed}.safetensors"
        if path.exists():
            return Vectors.load(path)[0]
        settings = self.settings
        train = self.train_examples(seed)
        prompts = few_shot_prompts(train, settings.prompts, settings.shots, seed)
        layers = tuple(part.layer for part in self.model.wiring.attentions)
        found = read_vectors(self.model, prompts, layers, progress=self.progress)
        provenance = self.model.provenance | {
            "model": self.model.name,
            "seed": seed,
            "prompts": settings.prompts,
            "shots": settings.shots,
            "max_words": settings.max_words,
            "examples": {name: digest(own) for name, own in train.items()},
        }
        found.save(path, provenance)
        return found

    def read(self, examples: Sequence[Example]) -> Queries:
        """Queries read up to the first routed layer, or taken from the cache."""
        return read_queries(self.model, examples, self.layer, self.folder / "cache", progress=self.progress)

    def test(self, name: str) -> Queries:
        """A data set's test queries: the first that share no text with any seed's training queries."""
        if name not in self._tests:
            used = [one for seed in self.seeds for own in self.train_examples(seed).values() for one in own]
            size = self.settings.test
            chosen = without_overlap(self._split(name).test[: SPARE * size], used)[:size]
            self._tests[name] = self.read(chosen)
        return self._tests[name]

    def held_out(self) -> Queries:
        """Queries of the data sets that out-of-domain settings are chosen on."""
        if self._held_out is None:
            names, size = self.settings.held_out, self.settings.test
            self._held_out = join([self.read(self._split(name).development[:size]) for name in names])
        return self._held_out

    def answers(
        self, make: Make, seed: int, sets: Sequence[str] | None = None, items: int | None = None, fitted: Fitted = None
    ) -> dict[str, np.ndarray]:
        """Fit a method and let it answer; data sets that were answered before are read from the folder.

        Parameters
        ----------
        make : callable
            Makes the method.
        seed : int
        sets : sequence of str, optional
            Data sets to answer; all by default.
        items : int, optional
            The first of each only.
        fitted : callable, optional
            Called with the method once it is fitted.

        Returns
        -------
        dict of str to float32 [items, answers]
            Data sets of which the method knows nothing (NaN throughout) are left out.
        """
        method = make()
        found: dict[str, np.ndarray] = {}
        missing = []
        for name in sets or (*self.settings.in_domain, *self.settings.out_of_domain):
            path = self._answer_file(method.name, seed, name)
            kept = np.load(path) if path.exists() else None
            wanted = min(items or self.settings.test, len(self.test(name)))
            if kept is not None and len(kept) >= wanted:
                found[name] = kept[:wanted]
            else:
                missing.append((name, wanted))
        if missing or fitted is not None:
            started = time.perf_counter()
            method.fit(self.ground(seed))
            self._tell(f"{method.name}, seed {seed}: fitted in {time.perf_counter() - started:.0f} s")
            if fitted is not None:
                fitted(method)
        for name, wanted in missing:
            started = time.perf_counter()
            found[name] = np.asarray(method.answer(self.test(name).of(range(wanted))), np.float32)
            path = self._answer_file(method.name, seed, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            np.save(path, found[name])
            right = right_answers(np.nan_to_num(found[name], nan=-np.inf), self.test(name).answers[:wanted]).mean()
            self._tell(f"  {name}: {right:.3f} of {wanted} in {time.perf_counter() - started:.0f} s")
        return {name: one for name, one in found.items() if np.isfinite(one).any()}

    def _answer_file(self, method: str, seed: int, name: str) -> Path:
        return self.folder / "answers" / f"{method.replace(' ', '_').replace('/', '_')}-{seed}-{name}.npy"

    def _tell(self, text: str) -> None:
        if self.progress:
            print(text, flush=True)

    def right(
        self, make: Make, seeds: Sequence[int], sets: Sequence[str] | None = None, items: int | None = None
    ) -> dict[str, np.ndarray]:
        """Which items a method got right, by data set: bool [seeds, items]."""
        by_seed = [self.answers(make, seed, sets, items) for seed in seeds]
        return {
            name: np.stack([right_answers(one[name], self.test(name).answers[: len(one[name])]) for one in by_seed])
            for name in by_seed[0]
        }

    def scores(self, right: Mapping[str, Mapping[str, np.ndarray]]) -> Scores:
        """Scores of methods, with the groups and the commonest answer's share of each data set."""
        names = (*self.settings.in_domain, *self.settings.out_of_domain)
        groups = {name: IN_DOMAIN if name in self.settings.in_domain else self._group(name) for name in names}
        chance = {name: float(np.bincount(self.test(name).answers).max() / len(self.test(name))) for name in names}
        return Scores(right, groups, chance)

    @staticmethod
    def _group(name: str) -> str:
        return NEAR if DATA_SETS[name].group == NEAR else FAR


Fitted = Callable[[Method], None] | None
