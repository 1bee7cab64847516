from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="package")
def ray_cluster() -> Iterator[Any]:
    """One local Ray cluster for the modules of this folder."""
    ray = pytest.importorskip("ray")
    os.environ.setdefault("RAY_worker_niceness", "0")
    ray.init(address="local", num_cpus=32, include_dashboard=False, logging_level=logging.ERROR, log_to_driver=False)
    yield ray
    ray.shutdown()
