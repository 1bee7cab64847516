"""What Ray's control store says of actors."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

from transferqueue.controller.rank_facts import RankState
from transferqueue.workers.ray_runtime import require_ray

STARTING = ("DEPENDENCIES_UNREADY", "PENDING_CREATION", "RESTARTING")


def actor_states(handles: Sequence[Any]) -> list[RankState]:
    """The state of each actor, asked for in one query, which also answers while the actors are busy."""
    table = actor_table()
    return [_state_of(table.get(handle._actor_id.hex())) for handle in handles]


def actor_table() -> dict[str, dict[str, Any]]:
    """Every actor of the cluster by its id.

    Ray's public way to this, `ray.util.state`, goes through the dashboard, which a cluster need not have.
    """
    require_ray("actor_table")
    table: dict[str, dict[str, Any]] = importlib.import_module("ray._private.state").actors()
    return table


def _state_of(entry: dict[str, Any] | None) -> RankState:
    if entry is None:  # Ray forgets the oldest of many dead actors
        return RankState("dead", "Ray knows the actor no more")
    if entry["State"] == "ALIVE":
        return RankState("alive")
    if entry["State"] in STARTING:
        return RankState("starting")
    cause = entry["DeathCause"]
    context = getattr(cause, "actor_died_error_context", None)
    return RankState("dead", getattr(context, "error_message", "") or " ".join(str(cause).split()) or "unknown")
