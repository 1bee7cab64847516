"""A resource pool whose room is reserved in a Ray cluster."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TextIO

from transferqueue.controller.describe.pool_description import PoolDescription
from transferqueue.controller.pools.bundle import Bundle
from transferqueue.controller.pools.cluster_nodes import cluster_nodes
from transferqueue.controller.pools.existing import existing_request
from transferqueue.controller.pools.plan import Plan
from transferqueue.controller.pools.pool_facts import PoolFacts, facts_of
from transferqueue.controller.pools.pool_request import PoolRequest
from transferqueue.controller.pools.pool_slice import PoolSlice
from transferqueue.controller.pools.rank_place import RankPlace, local_ranks
from transferqueue.controller.pools.reservation import Reservation
from transferqueue.controller.pools.resource_pool import ResourcePool
from transferqueue.controller.pools.waiting import describe_bundle_wait

DEFAULT_TIMEOUT_S = 60.0


class RayResourcePool(ResourcePool):
    """Room for ranks in a Ray cluster, each node entry on one node.

    The room of a rank is a bundle of `max_colocate_count` CPUs and one accelerator. Each group that shares the pool
    runs one actor in each bundle, which takes one of the CPUs and ``1 / max_colocate_count`` of the accelerator. A pool
    without accelerators has the same form. Ray counts shares and enforces nothing: groups on one GPU share its memory.

    The room is reserved once, at the first use, and ordered by node address, so that ranks are stable across runs.
    When a group reserved it, it is given back when the last group on it is closed; when `get_placement_groups` or
    `places` did, it stays until `remove`. A pool that is dropped gives it back too, and so does the end of the program.
    A pool that is sent to another process is the same room there, which that process does not give back, and where the
    groups of this one are not counted.

    Args:
        process_on_nodes: ranks per node, for instance ``[4, 2]``. Entries may share a node; no two get the same device.
        use_gpu: a bundle has an accelerator; False where there are none.
        name_prefix: start of the names of the placement groups (a unique ending is added, so that a second run in the
            same cluster meets no old names), and what messages call the pool.
        max_colocate_count: how many groups may share the pool, and so the CPUs of a bundle.
        detached: the room outlives the program, until `remove`; detached groups need it.
        accelerator_type: a custom resource that each node must have, such as ``"accelerator_type:H100"``.
        device_name: torch's name of the accelerator, ``"cuda"`` or ``"npu"``; None: what the cluster has.
        further_resources: what else a bundle has for each group, by Ray's names.
        timeout_s: how long to wait for room that others hold.
    """

    def __init__(
        self,
        process_on_nodes: Sequence[int] | None = None,
        use_gpu: bool = True,
        name_prefix: str | None = None,
        max_colocate_count: int = 10,
        detached: bool = False,
        accelerator_type: str | None = None,
        *,
        device_name: str | None = None,
        further_resources: Mapping[str, float] | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> None:
        super().__init__(process_on_nodes, max_colocate_count)
        request = PoolRequest(
            name=name_prefix or f"tq_pool_{uuid.uuid4().hex[:6]}",
            counts=self._store,
            max_colocate_count=max_colocate_count,
            use_gpu=use_gpu,
            device_name=device_name,
            accelerator_type=accelerator_type,
            further=dict(further_resources or {}),
            detached=detached,
            timeout_s=timeout_s,
        )
        self._stand_on((PoolSlice(Reservation(request)),), request.name)

    @classmethod
    def from_placement_groups(
        cls,
        placement_groups: Sequence[Any],
        process_on_nodes: Sequence[int] | None = None,
        *,
        use_gpu: bool | None = None,
        name_prefix: str | None = None,
        max_colocate_count: int | None = None,
        adopt: bool = False,
        detached: bool = False,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> RayResourcePool:
        """A pool on placement groups that exist; ranks are in the order given.

        The pool never removes them, unless it adopts them. It knows only of its own users: another program that runs
        actors in the same bundles is not counted.

        Args:
            placement_groups: Ray's handles, or names.
            process_on_nodes: how many of the bundles of each to use, from the first; None: all.
            use_gpu: None: whether the bundles have accelerators; False leaves those alone.
            name_prefix: what messages call the pool; None: the first placement group's name.
            max_colocate_count: how many groups may share the pool; None: as many as a bundle has CPUs.
            adopt: give the placement groups back as if they had been made here.
            detached: they outlive the program (Ray does not say), so that detached groups may run there.
            timeout_s: how long to wait for placement groups that are not ready.
        """
        request = existing_request(
            placement_groups,
            process_on_nodes,
            name=name_prefix,
            use_gpu=use_gpu,
            max_colocate_count=max_colocate_count,
            adopt=adopt,
            detached=detached,
            timeout_s=timeout_s,
        )
        return cls._on((PoolSlice(Reservation(request)),), request.name)

    @classmethod
    def _on(cls, slices: tuple[PoolSlice, ...], name: str) -> RayResourcePool:
        """A pool of what others reserved."""
        pool = object.__new__(cls)
        ResourcePool.__init__(pool, None, slices[0].reservation.request.max_colocate_count)
        pool._stand_on(slices, name)
        return pool

    def _stand_on(self, slices: tuple[PoolSlice, ...], name: str) -> None:
        """Makes this the pool of `slices`, in this order."""
        self._slices = slices
        self.name_prefix = name

    @property
    def _request(self) -> PoolRequest:
        return self._slices[0].reservation.request

    @property
    def use_gpu(self) -> bool:
        """Whether a bundle has an accelerator."""
        return self._request.use_gpu

    @property
    def detached(self) -> bool:
        """Whether the room outlives the program."""
        return self._request.detached

    @property
    def accelerator_type(self) -> str | None:
        """The custom resource that each node must have."""
        return self._request.accelerator_type

    @property
    def timeout_s(self) -> float:
        """How long to wait for room that others hold."""
        return self._request.timeout_s

    @property
    def bundle(self) -> Bundle:
        """What is reserved for one rank."""
        return self._slices[0].reservation.bundle

    def plan(self, strategy: str = "STRICT_PACK") -> Plan:
        """What the pool asks, or asked, of the cluster."""
        return Plan(self.name_prefix, self.store, self.bundle, strategy)

    @property
    def share(self) -> float:
        """The part of an accelerator that one group takes in each bundle."""
        return self.bundle.share

    def rank_request(self, use_gpu: bool | None = None) -> dict[str, Any]:
        """What an actor of a group asks for in its bundle, as ``.options(...)`` takes it.

        With `use_gpu` False the CPU only, on a pool with accelerators too; True on a pool that has none is a
        `ValueError`.
        """
        if use_gpu and not self.use_gpu:
            raise ValueError(f"use_gpu is True, and pool {self.name_prefix!r} has no accelerators (use_gpu=False)")
        return self.bundle.request(with_device=use_gpu is not False)

    @property
    def is_reserved(self) -> bool:
        """Whether the room is there."""
        return all(part.reservation.entries is not None for part in self._slices)

    @property
    def store(self) -> list[int]:
        """Ranks per node entry, in rank order: as asked, and once the room is reserved sorted by node address."""
        return [count for part in self._slices for count in part.counts()]

    def add_node(self, process_count: int) -> None:
        """One more node with so many ranks. `ValueError` once the room is reserved, or for a part of another pool."""
        if self.is_reserved or self._store is not self._request.counts:
            raise ValueError(f"pool {self.name_prefix!r} cannot grow: its room is reserved, or that of another pool")
        super().add_node(process_count)

    def local_world_size_list(self) -> list[int]:
        """For each rank, how many ranks its node has; before the room is reserved, its node entry."""
        if not self.is_reserved:
            return super().local_world_size_list()
        return [size for _, size in local_ranks(self.places())]

    def local_rank_list(self) -> list[int]:
        """For each rank, its number on its node; before the room is reserved, in its node entry."""
        if not self.is_reserved:
            return super().local_rank_list()
        return [number for number, _ in local_ranks(self.places())]

    @property
    def pgs(self) -> list[Any] | None:
        """The placement groups, in rank order; None before the room is reserved."""
        return self.get_placement_groups() if self.is_reserved else None

    def say_device(self, device_name: str) -> None:
        """Torch's name of the accelerators, for a pool whose maker did not say. `ValueError` where they are others."""
        if self.use_gpu:
            for part in self._slices:
                part.reservation.say_device(device_name)

    def get_placement_groups(
        self, strategy: str = "STRICT_PACK", name: str | None = None, device_name: str | None = None
    ) -> list[Any]:
        """The placement groups, in rank order, reserved on the first call; the room then stays until `remove`.

        Args:
            strategy: ``"STRICT_PACK"`` keeps an entry on one node, ``"PACK"`` spreads it where it must.
            name: start of their names, instead of `name_prefix`.
            device_name: the accelerator, for a pool whose maker did not say; ``"cpu"`` says nothing.
        """
        if device_name not in (None, "cpu"):
            self.say_device(device_name)
        return list(dict.fromkeys(place.placement_group for place in self._places(strategy, name)))

    def places(self, strategy: str = "STRICT_PACK") -> list[RankPlace]:
        """Where each rank runs, in rank order; reserved on the first call, and then until `remove`.

        Raises `InsufficientResourcesError` when the cluster has not the room: at once where it never had, after
        `timeout_s` where others hold it.
        """
        return self._places(strategy, None)

    def acquire(self, user: object, strategy: str = "STRICT_PACK", name: str | None = None) -> list[RankPlace]:
        """`places`, and a note that `user` runs there, called `name` in messages.

        Raises `PoolSharedOutError` when `max_colocate_count` groups do already, and what `places` raises. A user that
        the program drops is forgotten.
        """
        called = name or type(user).__name__
        found: list[RankPlace] = []
        try:
            for part in self._slices:
                found += part.reservation.acquire(user, called, part.numbers(), strategy)
        except BaseException:
            self.release(user)
            raise
        return found

    def release(self, user: object) -> None:
        """`user` is gone; the last one out gives back what was reserved for it. Idempotent."""
        for part in self._slices:
            part.reservation.release(user)

    def remove(self) -> None:
        """Gives the room back. Actors that still run in it are killed. Idempotent; the next use reserves anew.

        Placement groups that were made elsewhere stay, and so does what a merged pool has only a part of.
        """
        for part in self._slices:
            if part.is_whole():
                part.reservation.remove()

    def describe_wait(self, ranks: Iterable[int], options: Mapping[str, Any]) -> str:
        """Which bundles lack what an actor with these options of Ray asks for, of those where `ranks` should start."""
        places = self.places()
        return describe_bundle_wait(self.name_prefix, {rank: places[rank] for rank in ranks}, options, cluster_nodes())

    def note_devices(self, devices: Mapping[int, Sequence[str]]) -> None:
        """By rank, the numbers of the accelerators that Ray gave to a group there; `facts` shows them."""
        rank = 0
        for part in self._slices:
            numbers = part.numbers()
            mine = {number: tuple(devices[rank + i]) for i, number in enumerate(numbers) if rank + i in devices}
            part.reservation.note_devices(mine)
            rank += len(numbers)

    def facts(self) -> PoolFacts:
        """What the pool is and who uses it; reserves nothing."""
        return facts_of(self.name_prefix, self._slices)

    def describe(self, *, file: TextIO | None = None) -> PoolDescription:
        """Prints, and returns, what the pool is, where its bundles are and which groups use them. Asks no rank."""
        description = PoolDescription(self.facts())
        print(description, file=file or sys.stdout, flush=True)
        return description

    def _places(self, strategy: str, name: str | None) -> list[RankPlace]:
        found: list[RankPlace] = []
        for part in self._slices:
            places = part.reservation.places(strategy, name)
            found += [places[number] for number in part.numbers()]
        return found
