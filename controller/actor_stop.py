"""Ending the actors of a group."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from transferqueue.workers.ray_runtime import require_ray

GRACE_S = 2.0
"""How long an actor may take to leave by itself, running its exit handlers, before it is killed."""


def stop_actors(actors: Sequence[Any], grace_s: float = GRACE_S) -> None:
    """Asks the actors to exit, kills those that have not after `grace_s`, and returns when their processes are gone.

    An actor in the middle of a call does not see the request; it is killed.
    """
    ray = require_ray("RayWorkerGroup")
    # The reference of the request resolves, to an error, when the process has exited.
    leaving = [actor.__ray_terminate__.remote() for actor in actors]
    _, still_there = ray.wait(leaving, num_returns=len(leaving), timeout=grace_s)
    for actor, ref in zip(actors, leaving, strict=True):
        if ref in still_there:
            ray.kill(actor, no_restart=True)
    deadline_s = time.monotonic() + grace_s
    if still_there:
        ray.wait(still_there, num_returns=len(still_there), timeout=max(0.0, deadline_s - time.monotonic()))
