from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="module")
def ray_cluster() -> Iterator[Any]:
    """A local Ray cluster for the tests of a module. More CPUs than the machine has: ranks mostly wait, and a pool
    reserves ten for each.

    It ends with the module: a process with Ray in it treats sessions differently (they get a janitor), and so would the
    tests that come later.
    """
    ray = pytest.importorskip("ray")
    os.environ.setdefault("RAY_worker_niceness", "0")
    # Ray would start a worker per CPU ahead, none of which a rank could use: ranks have environments of their own.
    os.environ.setdefault("RAY_prestart_worker_first_driver", "0")
    ray.init(address="local", num_cpus=160, include_dashboard=False, logging_level=logging.ERROR, log_to_driver=False)
    yield ray
    ray.shutdown()
