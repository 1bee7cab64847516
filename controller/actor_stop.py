"""Ending the actors of a group."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from transferqueue.workers.ray_runtime import require_ray

GRACE_S = 5.0
"""How long an actor may take to leave by itself, running its exit handlers, before it is killed.

Leaving takes 1 to 2 s of a process that has imported torch.
"""
DEAD_GROUP_GRACE_S = 1.0
"""The same after a rank died: its peers may wait for it in a collective and will not leave."""
_POLL_S = 0.02


def stop_actors(actors: Sequence[Any], local_pids: Iterable[int] = (), grace_s: float = GRACE_S) -> None:
    """Asks the actors to exit, kills those that have not after `grace_s`; returns when their processes are gone.

    An actor in the middle of a call does not see the request; it is killed. Of processes on other nodes than this only
    Ray's word is known, which comes some moments before their end.

    Args:
        actors: the handles.
        local_pids: their processes that run on this node and in this pid namespace.
    """
    ray = require_ray("RayWorkerGroup")
    pids = list(local_pids)
    deadline_s = time.monotonic() + grace_s
    # The reference of the request resolves, to an error, when Ray takes the actor for dead.
    leaving = [actor.__ray_terminate__.remote() for actor in actors]
    _, still_there = ray.wait(leaving, num_returns=len(leaving), timeout=grace_s)
    if not still_there and _wait_for_end(pids, deadline_s):
        return
    for actor in actors:
        ray.kill(actor, no_restart=True)
    _wait_for_end(pids, time.monotonic() + grace_s)


def _wait_for_end(pids: Sequence[int], deadline_s: float) -> bool:
    while any(_runs(pid) for pid in pids):
        if time.monotonic() > deadline_s:
            return False
        time.sleep(_POLL_S)
    return True


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != b"Z"  # ended, its parent has not looked yet
