from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="module")
def ray_cluster() -> Iterator[Any]:
    """One node that says it has 8 GPUs; no worker process before one is asked for."""
    ray = pytest.importorskip("ray")
    os.environ.setdefault("RAY_worker_niceness", "0")
    os.environ.setdefault("RAY_prestart_worker_first_driver", "0")
    ray.init(
        "local", num_cpus=16, num_gpus=8, include_dashboard=False, logging_level=logging.ERROR, log_to_driver=False
    )
    yield ray
    ray.shutdown()
