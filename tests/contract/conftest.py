from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="module")
def ray_cluster() -> Iterator[Any]:
    """A local Ray cluster for the tests of a module. More CPUs than the machine has: ranks mostly wait.

    It ends with the module: a process with Ray in it treats sessions differently (they get a janitor), and so would the
    tests that come later.
    """
    ray = pytest.importorskip("ray")
    os.environ.setdefault("RAY_worker_niceness", "0")
    ray.init(num_cpus=16, include_dashboard=False, logging_level=logging.ERROR, log_to_driver=False)
    yield ray
    ray.shutdown()
