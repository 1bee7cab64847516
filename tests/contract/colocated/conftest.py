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
    # Ray would start a worker per CPU ahead, none of which a rank could use: ranks have environments of their own.
    os.environ.setdefault("RAY_prestart_worker_first_driver", "0")
    ray.init(
        address="local",
        num_cpus=32,
        num_gpus=8,
        include_dashboard=False,
        logging_level=logging.ERROR,
        log_to_driver=False,
    )
    yield ray
    ray.shutdown()
