"""Placement groups that one or several pools stand on, and who uses them."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from transferqueue.controller.errors import PoolSharedOutError
from transferqueue.controller.pools.bundle import Bundle, device_resource
from transferqueue.controller.pools.bundle_users import BundleUsers
from transferqueue.controller.pools.placement import moved, place_ranks, placement_states, places_of, remove_groups
from transferqueue.controller.pools.placement_wait import wait_until_ready
from transferqueue.controller.pools.pool_request import PoolRequest
from transferqueue.controller.pools.rank_place import RankPlace


class Reservation:
    """Bundles in rank order: not reserved, or reserved once and shared by all who ask.

    Who reserves decides when the room is given back: after `places` it stays until `remove` (or until every pool on it
    is dropped), after `acquire` until the last user is gone.
    """

    def __init__(self, request: PoolRequest) -> None:
        self.request = request
        self._lock = threading.RLock()
        self._entries: list[list[RankPlace]] | None = None
        self._bundle: Bundle | None = None
        self._strategy = ""
        self._devices: dict[int, tuple[str, ...]] = {}
        self._kept = False
        self._given_back: list[Any] = []
        self._finalizer: Any = None
        # Neither holds the other: a pool that is dropped must go at once, and its room with it.
        mine = weakref.ref(self)

        def on_empty() -> None:
            reservation = mine()
            if reservation is not None:
                reservation._last_user_left()

        self.users = BundleUsers(on_empty)

    @property
    def entries(self) -> list[list[RankPlace]] | None:
        """The places of each placement group, in rank order; None before they are reserved."""
        return self._entries

    @property
    def bundle(self) -> Bundle:
        """What each place holds, or would hold."""
        return self._bundle or self.request.bundle()

    @property
    def strategy(self) -> str:
        """Ray's placement strategy; empty before anything is reserved."""
        return self._strategy

    def say_device(self, device_name: str) -> None:
        """Which accelerator, where that is not settled. `ValueError` where another one is."""
        wanted = device_resource(device_name)
        if self._entries is None and self.request.device_name is None and self.request.existing_bundle is None:
            self.request.device_name = device_name
        if self.bundle.device != wanted:
            raise ValueError(
                f"a group for {device_name!r} needs bundles with {wanted}; those of pool {self.request.name!r} have "
                f"{self.bundle.device}"
            )

    def counts(self) -> list[int]:
        """Bundles per placement group in rank order: as asked, or sorted by address once they are reserved."""
        entries = self._entries
        return list(self.request.counts) if entries is None else [len(places) for places in entries]

    def places(self, strategy: str, name: str | None = None, *, keep: bool = True) -> list[RankPlace]:
        """Where each rank runs; reserves where that has not been done."""
        with self._lock:
            if self._entries is None:
                self._reserve(strategy, name)
                self._kept = keep
            return [place for places in self._entries or () for place in places]

    def acquire(self, user: object, name: str, numbers: Sequence[int], strategy: str) -> list[RankPlace]:
        """The places with these `numbers`, and a note that `user` runs there.

        `PoolSharedOutError` when as many do already as a bundle has room for.
        """
        with self._lock:
            self._follow_the_cluster()
            places = self.places(strategy, keep=False)
            for number in numbers:
                self._check_room(number, places[number], user, name)
            self.users.add(user, name, numbers)
            return [places[number] for number in numbers]

    def release(self, user: object) -> None:
        """`user` is gone. Idempotent."""
        self.users.remove(user)

    def __reduce__(self) -> tuple[Any, ...]:
        """In another process: the same room, reserved where it was not, which that process does not give back."""
        places = self.places("STRICT_PACK")
        request = replace(
            self.request,
            counts=self.counts(),
            existing=tuple(dict.fromkeys(place.placement_group for place in places)),
            existing_bundle=self.bundle,
            adopted=False,
        )
        return Reservation, (request,)

    def remove(self) -> None:
        """Gives the room back; actors that still run in it are killed. Idempotent; the next use reserves anew.

        Placement groups that were not made here stay.
        """
        with self._lock:
            self._entries = None
            self._bundle = None
            self._strategy = ""
            self._kept = False
            self._devices.clear()
            if self._finalizer is not None:
                self._finalizer.detach()
                self._finalizer = None
            groups, self._given_back = self._given_back, []
            if groups:
                remove_groups(groups)

    def note_devices(self, devices: Mapping[int, tuple[str, ...]]) -> None:
        """The numbers of the accelerators that Ray gave to places, as their actors see them."""
        self._devices.update(devices)

    def devices_of(self, number: int) -> tuple[str, ...]:
        """What `note_devices` was told; empty when no group has run there."""
        return self._devices.get(number, ())

    def _follow_the_cluster(self) -> None:
        """What is reserved may have been removed behind our back, or moved to other nodes when one was lost."""
        if self._entries is None:
            return
        groups = [places[0].placement_group for places in self._entries]
        states = placement_states(groups)
        if "REMOVED" in states:
            self.remove()  # the next use reserves anew; groups that ran there are dead
            return
        if any(state != "CREATED" for state in states):
            wait_until_ready(self.request.plan(self._strategy), groups, self.request.timeout_s)
        self._entries = [moved(places) for places in self._entries]

    def _check_room(self, number: int, place: RankPlace, user: object, name: str) -> None:
        users = self.users.of(number, but=user)
        if len(users) < self.bundle.max_colocate_count:
            return
        raise PoolSharedOutError(
            f"{name} does not start: {len(users)} worker groups share the pool already, as many as "
            f"max_colocate_count={self.bundle.max_colocate_count} allows. Bundle {number} of pool "
            f"{self.request.name!r}, on {place.node}, is used by {', '.join(users)}. Close one of them, or make the "
            "pool with a larger max_colocate_count",
            pool=self.request.name,
            bundle=number,
            users=tuple(users),
        )

    def _reserve(self, strategy: str, name: str | None) -> None:
        request = self.request
        plan = request.plan(strategy, name)
        if request.existing:
            groups = list(request.existing)
            wait_until_ready(plan, groups, request.timeout_s)
            # In the order given: who names placement groups knows which ranks they are for.
            entries = [places_of(group)[:count] for group, count in zip(groups, plan.ranks_per_node, strict=True)]
        else:
            entries = place_ranks(plan, request.timeout_s)
            groups = list(dict.fromkeys(places[0].placement_group for places in entries))
        self._bundle, self._strategy = plan.bundle, strategy
        self._entries = entries
        self._given_back = [] if request.existing and not request.adopted else groups
        if self._given_back and not request.detached:
            # Ray keeps a placement group until it is removed or the job ends; a pool that is dropped gives it back.
            self._finalizer = weakref.finalize(self, remove_groups, groups)

    def _last_user_left(self) -> None:
        # In the garbage collector another thread may be in the middle of reserving: then the room is in use again.
        if not self._kept and self._lock.acquire(blocking=False):
            try:
                if not self.users:
                    self.remove()
            finally:
                self._lock.release()
