"""A part of the room of another pool."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from transferqueue.controller.errors import PoolShapeError
from transferqueue.controller.pools.existing import existing_request
from transferqueue.controller.pools.pool_slice import PoolSlice, cut_slices
from transferqueue.controller.pools.ray_resource_pool import DEFAULT_TIMEOUT_S, RayResourcePool
from transferqueue.controller.pools.reservation import Reservation
from transferqueue.controller.pools.resource_pool import ResourcePool


class SubRayResourcePool(RayResourcePool):
    """Neighbouring bundles of another pool, in its rank order; `split_resource_pool` makes them.

    Its room is that of the pool it is part of: reserved when any group on either first needs it, and never given back
    by `remove`, which does nothing here. The bundles' limit of `max_colocate_count` groups counts groups on both.

    Args:
        placement_groups: Ray's handles, one per node entry.
        start_bundle_index: the first bundle, counted over all placement groups.
        subgroup_world_size: how many bundles.
        process_on_nodes: how many bundles each placement group has; None: Ray is asked.
        use_gpu, name_prefix, max_colocate_count, timeout_s: see `RayResourcePool.from_placement_groups`.
    """

    start_bundle_index: int
    subgroup_world_size: int
    _whole: RayResourcePool

    def __init__(
        self,
        placement_groups: Sequence[Any],
        start_bundle_index: int,
        subgroup_world_size: int,
        *,
        process_on_nodes: Sequence[int] | None = None,
        use_gpu: bool | None = None,
        name_prefix: str | None = None,
        max_colocate_count: int | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> None:
        request = existing_request(
            placement_groups,
            process_on_nodes,
            name=name_prefix,
            use_gpu=use_gpu,
            max_colocate_count=max_colocate_count,
            adopt=False,
            detached=False,
            timeout_s=timeout_s,
        )
        ResourcePool.__init__(self, None, request.max_colocate_count)
        whole = RayResourcePool._on((PoolSlice(Reservation(request)),), request.name)
        self._cut(whole, start_bundle_index, subgroup_world_size, request.name)

    @classmethod
    def part_of(cls, pool: RayResourcePool, start: int, size: int, name: str) -> SubRayResourcePool:
        """The bundles of the ranks ``[start, start + size)`` of `pool`."""
        part = object.__new__(cls)
        ResourcePool.__init__(part, None, pool.max_colocate_count)
        part._cut(pool, start, size, name)
        return part

    @property
    def pgs(self) -> list[Any]:
        """`get_placement_groups`."""
        return self.get_placement_groups()

    def get_placement_groups(
        self, strategy: str = "STRICT_PACK", name: str | None = None, device_name: str | None = None
    ) -> list[Any]:
        """All placement groups of the pool that this is part of: `start_bundle_index` counts their bundles."""
        return self._whole.get_placement_groups(strategy, name, device_name)

    def remove(self) -> None:
        """Nothing: the room is that of the pool that this is part of."""

    def _cut(self, pool: RayResourcePool, start: int, size: int, name: str) -> None:
        if start < 0 or size < 1 or start + size > pool.world_size:
            raise PoolShapeError(f"bundles {start} to {start + size - 1} of a pool that has {pool.world_size}")
        self._stand_on(cut_slices(pool._slices, start, start + size), name)
        self._whole = pool._whole if isinstance(pool, SubRayResourcePool) else pool
        self.start_bundle_index = start + (pool.start_bundle_index if isinstance(pool, SubRayResourcePool) else 0)
        self.subgroup_world_size = size
