"""Torch's device meshes as this package's meshes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch.distributed as dist

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh


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


def mesh_dp_info(mesh: DeviceMesh, dp: str | Sequence[str] = "dp") -> tuple[int, bool]:
    """``(dp_rank, is_collect)`` of this rank: the first rank of each replica in all other dimensions collects.

    Args:
        mesh: a mesh with named dimensions.
        dp: the data-parallel dimension; several, outermost first, count as one (``("replicate", "shard")``).

    `ValueError` for a dimension that the mesh has not, naming those that it has.
    """
    dimensions = (dp,) if isinstance(dp, str) else tuple(dp)
    names = mesh.mesh_dim_names or ()
    unknown = [name for name in dimensions if name not in names]
    if unknown or not dimensions:
        raise ValueError(
            f"the data-parallel dimensions {list(dimensions)} are not all in the mesh, whose dimensions are "
            f"{list(names) or 'unnamed: pass mesh_dim_names to init_device_mesh'}"
        )
    dp_rank = 0
    for name in dimensions:
        dp_rank = dp_rank * mesh[name].size() + mesh[name].get_local_rank()
    return dp_rank, all(mesh[name].get_local_rank() == 0 for name in names if name not in dimensions)
