"""A crew does every unit once over, whoever dies; what a worker raises is raised here."""

import os
import signal
import sys
from functools import partial
from pathlib import Path

import pytest

from readout.cluster import Crew, Workers
from readout.errors import ClusterError, ReadoutError

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("ray"), pytest.mark.usefixtures("ray")]
TWO = Workers(2)


@pytest.fixture(autouse=True)
def _workers_know_this_module() -> None:
    from ray import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])


class Squares:
    """Squares numbers; ``fatal`` ones kill the process, ``once`` ones only the first that tries."""

    def __init__(self, folder: Path, fatal: tuple[int, ...] = (), once: tuple[int, ...] = ()) -> None:
        self.folder, self.fatal, self.once = folder, fatal, once

    def about(self) -> str:
        return "squares"

    def work(self, unit: int) -> tuple[int, int]:
        tried = self.folder / f"{unit}-{os.getpid()}"
        first = not list(self.folder.glob(f"{unit}-*"))
        tried.touch()
        if unit in self.fatal or (unit in self.once and first):
            os.kill(os.getpid(), signal.SIGKILL)
        return unit**2, os.getpid()


def tries(folder: Path, unit: int) -> int:
    return len(list(folder.glob(f"{unit}-*")))


def test_every_unit_is_done_once_in_processes_of_their_own(tmp_path: Path) -> None:
    with Crew(partial(Squares, tmp_path), TWO) as crew:
        assert crew.about == "squares"
        done = dict(crew.run(range(8)))
    assert {unit: square for unit, (square, _) in done.items()} == {unit: unit**2 for unit in range(8)}
    assert all(tries(tmp_path, unit) == 1 for unit in range(8))
    assert os.getpid() not in {process for _, process in done.values()}


def test_the_unit_of_a_worker_that_died_is_done_again_by_another_and_no_other_unit_is(tmp_path: Path) -> None:
    with Crew(partial(Squares, tmp_path, once=(0, 3)), TWO) as crew:
        done = {unit: square for unit, (square, _) in crew.run(range(8))}
    assert done == {unit: unit**2 for unit in range(8)}
    assert [tries(tmp_path, unit) for unit in range(8)] == [2, 1, 1, 2, 1, 1, 1, 1]


def test_a_unit_that_kills_whoever_tries_it_is_given_up_after_three(tmp_path: Path) -> None:
    with (
        pytest.raises(ClusterError, match=r"3 workers died of the same work \(unit 1\)"),
        Crew(partial(Squares, tmp_path, fatal=(1,)), TWO) as crew,
    ):
        list(crew.run(range(4)))
    assert tries(tmp_path, 1) == 3


def die_while_loading() -> Squares:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("not reached")


def test_workers_that_die_while_they_load_are_given_up_after_three() -> None:
    with pytest.raises(ClusterError, match="3 workers died before they were ready"):
        Crew(die_while_loading, Workers(1)).__enter__()


def refuse_to_load() -> Squares:
    raise ReadoutError("model 'x' is not on this node")


def test_what_a_worker_raises_is_raised_here_as_it_was() -> None:
    with pytest.raises(ReadoutError, match=r"^model 'x' is not on this node$"):
        Crew(refuse_to_load, TWO).__enter__()


def test_more_workers_than_there_is_room_for_do_not_hold_up_those_that_have_started(tmp_path: Path) -> None:
    with Crew(partial(Squares, tmp_path), Workers(5)) as crew:
        done = dict(crew.run(range(6)))
    assert len(done) == 6
    assert len({process for _, process in done.values()}) <= 2


def test_more_gpus_than_any_node_has_are_refused() -> None:
    with pytest.raises(ClusterError, match="have 64 GPUs, and no node of the cluster has as many"):
        Crew(refuse_to_load, Workers(1, gpus=64)).__enter__()
