"""What the checks share: one Ray, one queue started as verl's trainer starts it, one worker group.

The checks (check_*.py) are an ordinary program for TransferQueue: they know only `transfer_queue` and verl, so they run
unchanged on whatever package answers to that name. test_verl.py runs them under the drop-in.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

import pytest


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[Any]:
    import ray

    os.environ.setdefault("RAY_worker_niceness", "0")
    ray.init(address="local", num_cpus=16, include_dashboard=False, logging_level=logging.ERROR)
    yield ray
    ray.shutdown()


@pytest.fixture(scope="session")
def queue_config() -> Any:
    """The section `transfer_queue` of verl's own trainer configuration, switched on as TaskRunnerV1 does."""
    from omegaconf import OmegaConf

    config = OmegaConf.load(str(files("verl") / "trainer/config/transfer_queue/transfer_queue.yaml"))
    config.enable = True
    config.backend.SimpleStorage.num_data_storage_units = 2
    return config


@pytest.fixture(scope="session")
def queue(ray_cluster: Any, queue_config: Any) -> Iterator[Any]:
    import transfer_queue

    transfer_queue.init(queue_config)
    yield transfer_queue
    transfer_queue.close()


@pytest.fixture(scope="session")
def actor_group(queue: Any) -> Any:
    """verl's worker group: 4 ranks on Ray, DP 2 x TP 2 as mesh "actor", DP 4 as mesh "flat"."""
    from verl_ranks import ActorRank, worker_group

    return worker_group(ActorRank, world_size=4, tp_size=2)


@pytest.fixture(scope="session")
def agents(queue: Any) -> Any:
    """Two asynchronous actors that stand for verl's agent loop workers."""
    from verl_rollouts import start_agents

    return start_agents(2)
