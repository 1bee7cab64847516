"""Collectives among the ranks of a group, on `torch.distributed`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch.distributed as dist

from transferqueue.workers.ranks import RankInfo

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh


def init_process_group(backend: str = "gloo", timeout_s: float = 300.0) -> RankInfo:
    """Joins the default process group of this worker group; every rank calls it. A second call does nothing.

    Rank, world size and master address come from the environment that the worker group set. A collective that waits
    longer than `timeout_s` raises. `ValueError` outside a worker group.
    """
    info = RankInfo.from_environment()
    if dist.is_initialized():
        return info
    if info.master_addr is None or info.master_port is None:
        raise ValueError("no MASTER_ADDR and MASTER_PORT in the environment: this process is no rank of a worker group")
    dist.init_process_group(
        backend,
        init_method="env://",
        rank=info.rank,
        world_size=info.world_size,
        timeout=timedelta(seconds=timeout_s),
    )
    return info


def make_mesh(dimensions: Mapping[str, int], device_type: str = "cpu") -> DeviceMesh:
    """A mesh over all ranks, outermost dimension first: ``make_mesh({"dp": 2, "tp": 2})``.

    ``mesh["dp"].get_local_rank()`` is this rank's DP rank and ``mesh["tp"].get_group()`` its tensor-parallel group.
    Every rank calls it after `init_process_group`. `ValueError` when the sizes do not multiply to the world size.
    """
    from torch.distributed.device_mesh import init_device_mesh

    names, sizes = tuple(dimensions), tuple(dimensions.values())
    product = 1
    for size in sizes:
        product *= size
    if product != dist.get_world_size():
        raise ValueError(f"mesh {dict(dimensions)} has {product} places; the group has {dist.get_world_size()} ranks")
    return init_device_mesh(device_type, sizes, mesh_dim_names=names)


def destroy_process_group() -> None:
    """Leaves the default process group, when there is one."""
    if dist.is_initialized():
        dist.destroy_process_group()


def mesh_dp_info(mesh: Any, dp: str = "dp") -> tuple[int, bool]:
    """``(dp_rank, is_collect)`` of this rank: the first rank of each replica in all other dimensions collects."""
    others = [name for name in mesh.mesh_dim_names if name != dp]
    return mesh[dp].get_local_rank(), all(mesh[name].get_local_rank() == 0 for name in others)
