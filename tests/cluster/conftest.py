"""A Ray of two workers, one for all tests of a process."""

import logging
import os
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session")
def ray() -> Iterator[None]:
    """Ray on this machine with two CPUs; a crew joins it and leaves it running."""
    ray = pytest.importorskip("ray", reason="ray is not installed: pip install 'readout[cluster]'")
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    yield
    ray.shutdown()
