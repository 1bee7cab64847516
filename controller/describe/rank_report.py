"""What a rank says of itself, made where it runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from transferqueue.config import SESSION_VARIABLE
from transferqueue.controller.remote_traceback import one_line
from transferqueue.workers.devices import visible_devices_variable
from transferqueue.workers.ranks import RankInfo
from transferqueue.workers.ray_runtime import inside_ray, node_facts, own_accelerators, require_ray


@dataclass(frozen=True)
class RankReport:
    """A rank as it sees itself.

    Attributes:
        actor_name, actor_id: empty where the actor has no name, and where there is no actor.
        devices: the numbers of the accelerators that Ray gave it; `visible_devices`: those of the environment.
        process_group: the default process group of `torch.distributed`, in words.
        session: of the data plane, as the group set it; None outside one.
        meshes: of each that it registered, its DP rank and whether it collects.
        error: why the worker of a role could not be asked; empty where it could.
    """

    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    node_ip: str
    node_id: str
    pid: int
    actor_name: str
    actor_id: str
    devices: tuple[str, ...]
    visible_devices: str | None
    process_group: str
    session: str | None
    meshes: Mapping[str, tuple[int, bool]] = field(default_factory=dict)
    error: str = ""

    @property
    def actor(self) -> str:
        """Its name, or the start of its id."""
        return self.actor_name or self.actor_id[:12]

    @property
    def seen_devices(self) -> tuple[str, ...]:
        """The numbers of the accelerators that it can use: Ray's, or else those of the environment."""
        visible = [part.strip() for part in (self.visible_devices or "").split(",")]
        return self.devices or tuple(part for part in visible if part)


def rank_report(worker: Any, role: str | None = None) -> RankReport:
    """The report of a worker object; with `role`, on the meshes of that role of a colocated worker."""
    error = ""
    try:
        target = worker if role is None else worker.worker_of(role)
    except Exception as failure:  # what the constructor of the role raised, whatever it is: to be shown, not raised
        target, error = None, f"the constructor of role {role!r} raised {one_line(failure)}"
    info = getattr(worker, "rank_info", None)
    if not isinstance(info, RankInfo):  # a class that is no Worker of ours
        info = RankInfo.from_environment()
    node = node_facts()
    actor_name, actor_id = _actor()
    return RankReport(
        rank=info.rank,
        world_size=info.world_size,
        local_rank=info.local_rank,
        local_world_size=info.local_world_size,
        node_ip=node.node_ip,
        node_id=node.node_id,
        pid=node.pid,
        actor_name=actor_name,
        actor_id=actor_id,
        devices=own_accelerators(),
        visible_devices=os.environ.get(visible_devices_variable(os.environ)),
        process_group=process_group_text(),
        session=os.environ.get(SESSION_VARIABLE),
        meshes=_meshes(target),
        error=error,
    )


def process_group_text() -> str:
    """``"gloo, rank 0 of 4"`` for the default process group of this process, ``"none"`` without one."""
    distributed = sys.modules.get("torch.distributed")  # a rank that has none need not load it
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return "none"
    return f"{distributed.get_backend()}, rank {distributed.get_rank()} of {distributed.get_world_size()}"


def _meshes(worker: Any) -> dict[str, tuple[int, bool]]:
    registered = getattr(worker, "get_dispatch_collect", None)
    if registered is None:
        return {}
    both = registered()
    dp_ranks, collects = both["dispatch_dp_rank"], both["collect_dp_rank"]
    return {name: (int(dp_ranks[name]), bool(collects.get(name, False))) for name in dp_ranks}


def _actor() -> tuple[str, str]:
    if not inside_ray():
        return "", ""
    context = require_ray("rank_report").get_runtime_context()
    actor_id = context.get_actor_id()
    return (context.get_actor_name() or "", actor_id) if actor_id else ("", "")
