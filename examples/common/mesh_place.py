"""A rank's place in a mesh of data parallel and tensor parallel ranks."""

from __future__ import annotations

from dataclasses import dataclass

import torch.distributed as dist

from examples.common.tensor_parallel import TensorParallel
from transferqueue.workers import init_process_group, make_mesh, mesh_dp_info


@dataclass(frozen=True)
class MeshPlace:
    """`is_collect` ranks write back for their replica; `dp_group` is None where there is one replica."""

    dp_rank: int
    is_collect: bool
    tp: TensorParallel
    dp_group: dist.ProcessGroup | None


def join_mesh(dp_size: int, tp_size: int) -> MeshPlace:
    """Meets the other ranks of the worker group; every rank calls it, and each of its calls in the same order.

    The roles of a process share its process group; each call makes a mesh of its own on it.
    """
    init_process_group("gloo")
    mesh = make_mesh({"dp": dp_size, "tp": tp_size})
    dp_rank, is_collect = mesh_dp_info(mesh)
    tp = TensorParallel()
    if tp_size > 1:
        tp = TensorParallel(mesh["tp"].get_local_rank(), tp_size, mesh["tp"].get_group())
    return MeshPlace(dp_rank, is_collect, tp, mesh["dp"].get_group() if dp_size > 1 else None)
