"""What the maker of a pool asked for; how much of it is settled only when the room is reserved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from transferqueue.controller.pools.bundle import Bundle, device_resource, device_resource_of_cluster
from transferqueue.controller.pools.plan import Plan


@dataclass
class PoolRequest:
    """The arguments of a `RayResourcePool`, shared by the pool and its reservation.

    `counts` is the pool's own list, which grows with `add_node`. `existing` are placement groups that were not made for
    this pool, and `bundle` is then theirs; `adopted` when it gives them back all the same.
    """

    name: str
    counts: list[int]
    max_colocate_count: int
    use_gpu: bool
    device_name: str | None
    accelerator_type: str | None
    further: Mapping[str, float]
    detached: bool
    timeout_s: float
    existing: tuple[Any, ...] = ()
    adopted: bool = False
    existing_bundle: Bundle | None = field(default=None)

    def bundle(self) -> Bundle:
        """What is reserved for one rank. With no `device_name` the accelerator is what the cluster has."""
        if self.existing_bundle is not None:
            return self.existing_bundle
        device = None
        if self.use_gpu:
            device = device_resource(self.device_name) if self.device_name else device_resource_of_cluster()
        return Bundle.of_pool(self.max_colocate_count, device, self.accelerator_type, self.further)

    def plan(self, strategy: str, name: str | None = None) -> Plan:
        """The same for the cluster. `ValueError` for a pool without ranks."""
        if not self.counts:
            raise ValueError("an empty pool: name the ranks per node, RayResourcePool(process_on_nodes=[4])")
        lifetime = "detached" if self.detached else None
        return Plan(name or self.name, tuple(self.counts), self.bundle(), strategy, lifetime)
