from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support.warm_workers import warm_workers

_HERE = Path(__file__).parent
_warm = ExitStack()  # as long as the cluster


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Modules on the cluster stand side by side, after the others of this folder, so that it starts once."""
    mine = [position for position, item in enumerate(items) if _HERE in item.path.parents]
    ordered = sorted((items[position] for position in mine), key=_is_on_the_cluster)
    for position, item in zip(mine, ordered, strict=True):
        items[position] = item


def _is_on_the_cluster(item: pytest.Item) -> bool:
    # Of this folder: others have clusters of their own by that name.
    return _HERE in item.path.parents and "ray_cluster" in getattr(item, "fixturenames", ())


@pytest.fixture(scope="module")
def ray_cluster(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A local Ray cluster of one node that says it has 8 GPUs and 160 CPUs: ranks mostly wait, and a pool reserves ten
    for each.

    It ends with the last module in a row that uses it: a process with Ray in it treats sessions differently (they
    get a janitor), and what it forks may hang in Ray.
    """
    ray = pytest.importorskip("ray")
    os.environ.setdefault("RAY_worker_niceness", "0")
    # Ray would start a worker per CPU ahead, none of which a rank could use: ranks have environments of their own.
    os.environ.setdefault("RAY_prestart_worker_first_driver", "0")
    if not ray.is_initialized():
        _warm.enter_context(warm_workers())
        ray.init(
            address="local",
            num_cpus=160,
            num_gpus=8,
            include_dashboard=False,
            logging_level=logging.ERROR,
            log_to_driver=False,
        )
    yield ray
    items = request.session.items
    last = max(position for position, item in enumerate(items) if item.path == request.path)
    if last + 1 == len(items) or not _is_on_the_cluster(items[last + 1]):
        ray.shutdown()
        _warm.close()
