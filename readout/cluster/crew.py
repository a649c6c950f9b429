"""A crew of Ray workers: each builds what it needs once, then does one unit of work after another.

A unit is given to workers that are ready only, so that a job goes on while some are still loading, were never placed,
or are gone for good; the unit of a worker that died is done again by another.
"""

from __future__ import annotations

import logging
import os
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar

from readout.errors import ClusterError

LIVES = 3
"""Workers that may die of the same unit, or one after the other before any is ready."""

Unit = TypeVar("Unit")
Result = TypeVar("Result")
Unit_in = TypeVar("Unit_in", contravariant=True)
Result_out = TypeVar("Result_out", covariant=True)


class Worker(Protocol[Unit_in, Result_out]):
    """What is built in each process."""

    def about(self) -> Any:
        """What the driver must know before the first unit; the same of every worker."""

    def work(self, unit: Unit_in) -> Result_out:
        """Do one unit; it may be done again if the process dies of it."""


@dataclass(frozen=True)
class Workers:
    """How many workers to start, and what each takes.

    Attributes
    ----------
    number : workers; None: as many as the GPUs allow, or one on each node where there are none
    gpus : GPUs for each worker; None: one where the cluster has any
    """

    number: int | None = None
    gpus: float | None = None


class Crew(Generic[Unit, Result]):
    """Ray workers, from ``with`` to its end.

    Joins the cluster that ``RAY_ADDRESS`` names, or else starts one on this machine, which ends with the crew.

    Parameters
    ----------
    build : makes a worker, in its own process and in the driver's working folder; it is pickled, so give it names and
        paths rather than models
    workers : how many, and what each takes

    Attributes
    ----------
    about : what the first worker that was ready tells of itself

    Raises
    ------
    ClusterError
        If Ray is not installed, no cluster is at ``RAY_ADDRESS``, or workers die one after the other.
    """

    about: Any

    def __init__(self, build: Callable[[], Worker[Unit, Result]], workers: Workers | None = None) -> None:
        self._build, self._asked = build, workers or Workers()
        self._ray = _ray()
        self._alive: set[Any] = set()
        self._starting: dict[Any, Any] = {}
        self._ready: list[Any] = []
        self._lost: Counter[int | None] = Counter()

    def __enter__(self) -> Crew[Unit, Result]:
        self._own = not self._ray.is_initialized()
        if self._own:
            _join(self._ray, self._asked.number or 1)
        try:
            number, needs = _places(self._ray, self._asked)
            self._needs = needs
            for _ in range(number):
                self._start()
            while not self._ready:
                self._await_worker(self._ray.wait(list(self._starting), num_returns=1)[0][0])
        except BaseException:
            self._leave()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave()

    def run(self, units: Sequence[Unit]) -> Iterator[tuple[Unit, Result]]:
        """Have every unit done; yields each with its result as it is finished.

        Raises
        ------
        ClusterError
            If workers die of the same unit again and again.
        Exception
            What a worker raised.
        """
        waiting, working = deque(range(len(units))), dict[Any, tuple[Any, int]]()
        while waiting or working:
            while waiting and self._ready:
                worker, number = self._ready.pop(), waiting.popleft()
                working[worker.work.remote(units[number])] = worker, number
            done = self._ray.wait([*working, *self._starting], num_returns=1)[0][0]
            if done in self._starting:
                self._await_worker(done)
                continue
            worker, number = working.pop(done)
            try:
                result = self._get(done)
            except self._deaths as death:
                self._replace(worker, number, death)
                waiting.append(number)
                continue
            self._ready.append(worker)
            yield units[number], result

    @property
    def _deaths(self) -> tuple[type[Exception], ...]:
        errors = self._ray.exceptions
        return errors.RayActorError, errors.WorkerCrashedError, errors.NodeDiedError, errors.OutOfMemoryError

    def _start(self) -> None:
        worker = self._ray.remote(_Process).options(**self._needs).remote()
        self._alive.add(worker)
        self._starting[worker.start.remote(self._build, os.getcwd())] = worker

    def _await_worker(self, started: Any) -> None:
        worker = self._starting.pop(started)
        try:
            about = self._get(started)
        except self._deaths as death:
            self._replace(worker, None, death)
            return
        if not hasattr(self, "about"):
            self.about = about
        self._lost[None] = 0
        self._ready.append(worker)

    def _replace(self, worker: Any, unit: int | None, death: Exception) -> None:
        # A worker that is merely out of reach must not go on writing.
        self._ray.kill(worker)
        self._alive.remove(worker)
        self._lost[unit] += 1
        if self._lost[unit] == LIVES:
            what = "before they were ready" if unit is None else f"of the same work (unit {unit})"
            reason = str(death).strip().splitlines()[0]
            raise ClusterError(
                f"{LIVES} workers died {what} ({reason}): see whether memory runs out (fewer --workers on a machine, a "
                "lower precision), and Ray's logs; what is finished is kept, and the same command goes on"
            ) from death
        self._start()

    def _get(self, future: Any) -> Any:
        try:
            return self._ray.get(future)
        except self._ray.exceptions.RayTaskError as error:
            raise error.cause from error

    def _leave(self) -> None:
        for worker in self._alive:
            self._ray.kill(worker)
        if self._own:
            self._ray.shutdown()


class _Process:
    """The actor: one process with one worker."""

    def start(self, build: Callable[[], Worker[Any, Any]], folder: str) -> Any:
        # Paths are relative to where the command was given, and a node of a cluster may begin elsewhere.
        if os.path.isdir(folder):
            os.chdir(folder)
        self.worker = build()
        return self.worker.about()

    def work(self, unit: Any) -> Any:
        return self.worker.work(unit)


def _ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise ClusterError(
            "the engine ray needs the package ray, which is not installed: run pip install 'readout[cluster]', or "
            "leave --engine out"
        ) from error
    return ray


def _join(ray: Any, workers: int) -> None:
    # Ray sends usage statistics to its makers unless told not to.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    quiet = {"logging_level": logging.ERROR, "log_to_driver": False}
    address = os.environ.get("RAY_ADDRESS")
    if address is None:
        ray.init("local", num_cpus=max(workers, _cores()), include_dashboard=False, **quiet)
        return
    try:
        ray.init(address, **quiet)
    except (ConnectionError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ClusterError(
            f"no Ray cluster at RAY_ADDRESS={address} ({reason}): start one (ray start --head), or unset RAY_ADDRESS "
            "to work on this machine"
        ) from error


def _cores() -> int:
    """Cores that this process may use, which under SLURM are fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _places(ray: Any, asked: Workers) -> tuple[int, dict[str, float]]:
    """Number of workers, and the CPUs and GPUs of each."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    have = sum(node.get("GPU", 0) for node in nodes)
    gpus = asked.gpus if asked.gpus is not None else float(have > 0)
    if gpus > max(node.get("GPU", 0) for node in nodes):
        raise ClusterError(f"a worker is to have {gpus:g} GPUs, and no node of the cluster has as many: ask for fewer")
    if gpus:
        return asked.number or int(have // gpus), {"num_gpus": gpus, "num_cpus": 1}
    number = asked.number or len(nodes)
    least = min(node.get("CPU", 1) for node in nodes)
    return number, {"num_gpus": 0, "num_cpus": max(1, least // -(-number // len(nodes)))}
