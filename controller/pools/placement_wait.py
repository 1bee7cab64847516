"""Waiting for placement groups, and saying meanwhile what they wait for."""

from __future__ import annotations

import gc
import time
from collections.abc import Sequence
from typing import Any

from transferqueue.controller.pools.cluster_nodes import cluster_nodes
from transferqueue.controller.pools.orphans import remove_orphaned_pools
from transferqueue.controller.pools.plan import Plan
from transferqueue.controller.pools.refusal import too_little
from transferqueue.controller.pools.waiting import describe_wait
from transferqueue.logs import get_logger
from transferqueue.workers.ray_runtime import require_ray

_LOGGER = get_logger("controller.pools")
_FIRST_WORD_S = 5.0
_FURTHER_WORDS_S = 30.0


def wait_until_ready(plan: Plan, groups: Sequence[Any], timeout_s: float) -> None:
    """Returns when all `groups`, one per entry of the plan, are placed.

    Where that takes long a warning is logged, and after `timeout_s` an `InsufficientResourcesError` raised; both say
    which bundle of which pool waits for what, and who holds it.
    """
    started_s = time.monotonic()
    word_at_s = started_s + _FIRST_WORD_S
    pending = list(range(len(groups)))
    while pending:
        # wait() takes whole seconds, and returns at once where the group is ready.
        if groups[pending[0]].wait(timeout_seconds=1):
            pending.pop(0)
            continue
        gc.collect()  # the room may be that of a group which the program dropped as part of a reference cycle
        remove_orphaned_pools()  # or that of a controller that was killed
        waited_s = time.monotonic() - started_s
        if waited_s < timeout_s and time.monotonic() < word_at_s:
            continue
        nodes = cluster_nodes()
        still = [entry for entry in pending if not _is_placed(groups[entry])]
        waits = describe_wait(plan.demands(), still, nodes, groups)
        if waited_s >= timeout_s:
            raise too_little([plan], f"was not free within {timeout_s:g} s: {waits}", nodes)
        _LOGGER.warning("%s is not free after %.0f s (waiting for up to %g): %s", plan, waited_s, timeout_s, waits)
        word_at_s += _FURTHER_WORDS_S


def _is_placed(group: Any) -> bool:
    table = require_ray("RayResourcePool").util.placement_group_table(group)
    return bool(table["state"] == "CREATED")
