"""What is known of a pool: for people, as `RayResourcePool.describe` prints it, and for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from transferqueue.controller.pools.pool_slice import PoolSlice
from transferqueue.controller.pools.rank_place import local_ranks
from transferqueue.workers.ray_runtime import require_ray


@dataclass(frozen=True)
class BundleFacts:
    """The room of one rank: where it is, which devices Ray gave it (once a group ran there), which groups use it."""

    rank: int
    local_rank: int
    local_world_size: int
    placement_group: str
    placement_group_id: str
    bundle_index: int
    node_id: str
    node_ip: str
    devices: tuple[str, ...]
    users: tuple[str, ...]


@dataclass(frozen=True)
class PoolFacts:
    """A pool: `bundle` is what is reserved per rank, `request` what an actor of each group asks for there (as
    `RayResourcePool.rank_request` says), `share` the part of the accelerator in it.

    `bundles` is empty before the room is reserved. `users` are the groups on any of them.
    """

    name: str
    ranks_per_node: tuple[int, ...]
    world_size: int
    max_colocate_count: int
    share: float
    use_gpu: bool
    device: str | None
    bundle: Mapping[str, float]
    request: Mapping[str, Any]
    detached: bool
    is_reserved: bool
    strategy: str
    users: tuple[str, ...]
    bundles: tuple[BundleFacts, ...]

    @property
    def nodes(self) -> tuple[str, ...]:
        """The addresses of the nodes, in rank order."""
        return tuple(dict.fromkeys(bundle.node_ip for bundle in self.bundles))


def facts_of(name: str, slices: Sequence[PoolSlice]) -> PoolFacts:
    """The facts of the pool that stands on `slices`."""
    first = slices[0].reservation
    is_reserved = all(part.reservation.entries is not None for part in slices)
    bundles = _bundle_facts(slices) if is_reserved else ()
    counts = [count for part in slices for count in part.counts()]
    return PoolFacts(
        name=name,
        ranks_per_node=tuple(counts),
        world_size=sum(counts),
        max_colocate_count=first.bundle.max_colocate_count,
        share=first.bundle.share,
        use_gpu=first.bundle.device is not None,
        device=first.bundle.device,
        bundle=first.bundle.resources(),
        request=first.bundle.request(),
        detached=first.request.detached,
        is_reserved=is_reserved,
        strategy=first.strategy,
        users=tuple(dict.fromkeys(user for bundle in bundles for user in bundle.users)),
        bundles=bundles,
    )


def _bundle_facts(slices: Sequence[PoolSlice]) -> tuple[BundleFacts, ...]:
    table = require_ray("RayResourcePool").util.placement_group_table()
    placed = []
    for part in slices:
        places = [place for entry in part.reservation.entries or () for place in entry]
        placed += [(part.reservation, number, places[number]) for number in part.numbers()]
    numbers = local_ranks([place for _, _, place in placed])
    return tuple(
        BundleFacts(
            rank=rank,
            local_rank=local_rank,
            local_world_size=local_world_size,
            placement_group=table.get(place.placement_group.id.hex(), {}).get("name", ""),
            placement_group_id=place.placement_group.id.hex(),
            bundle_index=place.bundle_index,
            node_id=place.node_id,
            node_ip=place.node_ip,
            devices=reservation.devices_of(number),
            users=tuple(reservation.users.of(number)),
        )
        for rank, ((reservation, number, place), (local_rank, local_world_size)) in enumerate(
            zip(placed, numbers, strict=True)
        )
    )
