"""Cutting pools into parts, and joining pools to one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from transferqueue.controller.errors import PoolShapeError
from transferqueue.controller.pools.pool_slice import overlap
from transferqueue.controller.pools.ray_resource_pool import RayResourcePool
from transferqueue.controller.pools.sub_ray_resource_pool import SubRayResourcePool


def split_resource_pool(resource_pool: RayResourcePool, split_size: int | Sequence[int]) -> list[SubRayResourcePool]:
    """Parts of a pool, one after the other in its rank order; a part may be split again.

    Nothing is reserved here. An entry of the pool may be cut in the middle.

    Args:
        resource_pool: the pool, or a part of one.
        split_size: the ranks of every part, or of each; they must add up to those of the pool.

    Raises:
        PoolShapeError: they do not (also a ValueError and an AssertionError).
    """
    world_size = resource_pool.world_size
    if isinstance(split_size, int):
        if split_size < 1 or world_size % split_size:
            raise PoolShapeError(f"a pool of {world_size} ranks cannot be split into parts of {split_size}")
        sizes = [split_size] * (world_size // split_size)
    else:
        sizes = list(split_size)
        if any(size < 1 for size in sizes) or sum(sizes) != world_size:
            raise PoolShapeError(f"the parts {sizes} do not add up to the {world_size} ranks of the pool")
    starts = accumulate(sizes[:-1], initial=0)
    return [
        SubRayResourcePool.part_of(resource_pool, start, size, f"{resource_pool.name_prefix}_split_{number}")
        for number, (start, size) in enumerate(zip(starts, sizes, strict=True))
    ]


def merge_resource_pool(rp1: RayResourcePool, rp2: RayResourcePool, *more: RayResourcePool) -> RayResourcePool:
    """One pool of the ranks of several, first those of the first. Nothing is reserved here.

    The room stays that of the pools merged; they go on beside the merged one, and groups on either are counted.
    `remove` of the merged pool removes the room of all.

    Raises:
        PoolShapeError: the pools differ in accelerators, `max_colocate_count` or `detached`, or share a bundle.
    """
    pools = (rp1, rp2, *more)
    for name in ("use_gpu", "max_colocate_count", "detached", "n_gpus_per_node", "accelerator_type"):
        values = [getattr(pool, name) for pool in pools]
        if any(value != values[0] for value in values):
            raise PoolShapeError(f"pools of one merged pool must agree in {name}; these have {values}")
    slices = tuple(part for pool in pools for part in pool._slices)
    if overlap(slices):
        names = [pool.name_prefix for pool in pools]
        raise PoolShapeError(f"pools {names} share a bundle, which the merged pool would have twice")
    return RayResourcePool._on(slices, "_".join(pool.name_prefix for pool in pools))
