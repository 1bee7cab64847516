"""A resource pool whose room is reserved in a Ray cluster."""

from __future__ import annotations

import uuid
import weakref
from collections.abc import Sequence
from typing import Any

from transferqueue.controller.pools.bundle import Bundle
from transferqueue.controller.pools.placement import place_ranks, remove_groups
from transferqueue.controller.pools.rank_place import RankPlace
from transferqueue.controller.pools.resource_pool import ResourcePool

DEFAULT_TIMEOUT_S = 60.0


class RayResourcePool(ResourcePool):
    """Room for ranks in a Ray cluster, each node entry on one node.

    The room of a rank is a bundle of `max_colocate_count` CPUs and one accelerator. Each group that shares the pool
    runs one actor in each bundle, which takes one of the CPUs and ``1 / max_colocate_count`` of the accelerator. The
    room is reserved when the first group uses the pool and given back when the last one is shut down.

    Args:
        process_on_nodes: ranks per node, for instance ``[4, 2]``.
        use_gpu: a bundle has an accelerator; False where there are none.
        name_prefix: start of the names of the placement groups (a unique ending is added, so that a second run in the
            same cluster meets no old names).
        max_colocate_count: how many groups may share the pool, and so the CPUs of a bundle.
        accelerator_type: a custom resource that each node must have, such as ``"accelerator_type:H100"``.
        timeout_s: how long to wait for room that others hold.
    """

    def __init__(
        self,
        process_on_nodes: Sequence[int] | None = None,
        use_gpu: bool = True,
        name_prefix: str | None = None,
        max_colocate_count: int = 10,
        accelerator_type: str | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> None:
        super().__init__(process_on_nodes, max_colocate_count)
        self.use_gpu = use_gpu
        self.name_prefix = name_prefix or f"tq_pool_{uuid.uuid4().hex[:6]}"
        self.accelerator_type = accelerator_type
        self.timeout_s = timeout_s
        self._places: list[RankPlace] | None = None
        self._users: set[int] = set()
        self._finalizer: Any = None

    @property
    def bundle(self) -> Bundle:
        """What is reserved for one rank."""
        return Bundle.of_pool(self.max_colocate_count, "GPU" if self.use_gpu else None, self.accelerator_type, {})

    def rank_request(self) -> dict[str, Any]:
        """What an actor of a group asks for in its bundle, as ``.options(...)`` takes it."""
        return self.bundle.request()

    def get_placement_groups(self, strategy: str = "STRICT_PACK") -> list[Any]:
        """The placement groups, ordered by node address; reserved on the first call."""
        return list(dict.fromkeys(place.placement_group for place in self.places(strategy)))

    def places(self, strategy: str = "STRICT_PACK") -> list[RankPlace]:
        """Where each rank runs, in rank order; reserved on the first call.

        Raises `InsufficientResourcesError` when the cluster has not the room.
        """
        if self._places is None:
            if not self._store:
                raise ValueError("an empty pool: name the ranks per node, RayResourcePool(process_on_nodes=[4])")
            placed = place_ranks(
                self._store, self.bundle.resources(), strategy=strategy, name=self.name_prefix, timeout_s=self.timeout_s
            )
            self._places = [place for places in placed for place in places]
            groups = list(dict.fromkeys(place.placement_group for place in self._places))
            # Ray keeps a placement group until it is removed or the job ends; a pool that is dropped gives it back.
            self._finalizer = weakref.finalize(self, remove_groups, groups)
        return self._places

    def acquire(self, user: object, strategy: str = "STRICT_PACK") -> list[RankPlace]:
        """`places`, and a note that `user` runs there. `ValueError` when `max_colocate_count` groups do already."""
        if len(self._users) >= self.max_colocate_count:
            raise ValueError(
                f"{len(self._users)} worker groups share the pool already, as many as max_colocate_count allows: shut "
                "one down or make the pool with a larger max_colocate_count"
            )
        places = self.places(strategy)
        self._users.add(id(user))
        return places

    def release(self, user: object) -> None:
        """`user` is gone; the last one out gives the room back. Idempotent."""
        if id(user) in self._users:
            self._users.discard(id(user))
            if not self._users:
                self.remove()

    def remove(self) -> None:
        """Gives the room back. Actors that still run in it are killed. Idempotent; the next use reserves anew."""
        self._places = None
        if self._finalizer is not None:
            self._finalizer()
            self._finalizer = None
