"""A node as the standby of partitions that other nodes are home of: it follows their changes, and takes their place."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from transferqueue.logs import get_logger
from transferqueue.node_service.effects import WEIGHT, Effect, Room, apply_effect
from transferqueue.node_service.home_calls import names_of, until_of
from transferqueue.node_service.keeper import Keeper
from transferqueue.node_service.replicated_store import not_home
from transferqueue.nodes.directory.role import Role
from transferqueue.nodes.names import is_standby, standby_name
from transferqueue.nodes.rpc_server import Call, Handler

if TYPE_CHECKING:
    from transferqueue._native import Store

_log = get_logger("nodes")
_ABANDONED_S = 60.0
BEHIND = "behind"
"""The answer to changes that do not follow on what the standby has: it has to be told everything."""


@dataclass
class _Followed:
    home: int
    epoch: int
    next: int
    guard: threading.Lock = field(default_factory=threading.Lock)
    is_over: bool = False
    weights: int | None = None
    heard_s: float = field(default_factory=time.monotonic)
    named_s: float | None = None  # when the directory was told that this node has everything; None: it was not


class Standby:
    """Of one agent. Thread-safe. What it follows lies in hidden partitions of the node's own store, in the same rows
    and with the same names as at the home, so that taking over is giving it its name.

    Args:
        store: of the node.
        keeper: keeps payload that only the home has.
        reserve: room for so many bytes.
    """

    def __init__(self, store: Store, keeper: Keeper, reserve: Room) -> None:
        self._store = store
        self._keeper = keeper
        self._reserve = reserve
        self._guard = threading.Lock()
        self._followed: dict[str, _Followed] = {}
        self.no_longer_home: Callable[[str, int], None] = lambda partition, epoch: None
        """Called before a partition is followed that this node may have been home of, with the epoch of its home.
        Raises `NotHomeError` when this node is the home of a later one."""

    def handlers(self) -> dict[str, Handler]:
        """Method -> handler."""
        return {
            "standby.begin": self._begin,
            "standby.apply": self._apply,
            "standby.named": self._named,
            "standby.follows": self._follows,
            "standby.keep": self._keep,
            "standby.lacks": lambda call: self._keeper.lacks(names_of(call)),
            "payload.held": lambda call: [list(entry) for entry in self._keeper.held(names_of(call))],
        }

    def take_over(self, partition: str) -> int | None:
        """What was followed is this node's own from now on; nothing is there afterwards that was never followed.
        Returns the version of the weights, if it was said."""
        with self._guard:
            followed = self._followed.pop(partition, None)
        if followed is None:
            self._take(partition)
            return None
        with followed.guard:
            followed.is_over = True
            self._take(partition)
        return followed.weights

    def named(self, own: int) -> dict[str, Role]:
        """Of the partitions of which this node (`own`) has all that was acknowledged: by name. Whoever takes the
        directory's place has to know it."""
        with self._guard:
            followed = list(self._followed.items())
        return {name: Role(each.home, own, each.epoch) for name, each in followed if each.named_s is not None}

    def learn(self, roles: Mapping[str, Role], own: int, asked_s: float) -> None:
        """What the directory says of the node's partitions, asked at that time."""
        with self._guard:
            followed = list(self._followed.items())
        for partition, each in followed:
            role = roles.get(partition)
            if role is not None and (role.standby, role.epoch) == (own, each.epoch):
                each.named_s = each.named_s or asked_s
            elif each.named_s is not None and each.named_s < asked_s:
                each.named_s = None

    def forget_all(self) -> None:
        """What was followed is not there any more: all rows of the node were replaced."""
        with self._guard:
            followed, self._followed = list(self._followed.values()), {}
        for each in followed:
            with each.guard:
                each.is_over = True
        for name in self.shadows():
            self._store.clear_partition(name)

    def shadows(self) -> list[str]:
        """The hidden partitions."""
        return [name for name in self._store.partitions() if is_standby(name)]

    def drop_abandoned(self, mine: set[str]) -> None:
        """Forgets what homes have not spoken of for a while and this node is not the standby of.

        Args:
            mine: partitions that it is.
        """
        spared = {standby_name(partition) for partition in mine}
        with self._guard:
            now_s = time.monotonic()
            for partition, followed in list(self._followed.items()):
                if partition not in mine and now_s - followed.heard_s > _ABANDONED_S:
                    del self._followed[partition]
            spared |= {standby_name(partition) for partition in self._followed}
        for name in self.shadows():
            if name not in spared:
                self._store.clear_partition(name)

    def _take(self, partition: str) -> None:
        # Numbers of claims begin with the time at which their store was made: those of now were never given.
        if self._store.rename_partition(standby_name(partition), partition, time.time_ns()):
            _log.warning("this node is the home of partition %r from now on", partition)

    def _begin(self, call: Call) -> None:
        args = call.args
        partition = str(args["partition"])
        followed = _Followed(int(args["home"]), int(args["epoch"]), int(args["next"]))
        self.no_longer_home(partition, followed.epoch)
        with self._guard:
            before = self._followed.get(partition)
            if before is not None and before.epoch > followed.epoch:
                raise not_home(partition)
            self._followed[partition] = followed
        with followed.guard:
            if before is not None:
                with before.guard:
                    before.is_over = True
            self._store.clear_partition(standby_name(partition))

    def _apply(self, call: Call) -> str | None:
        args = call.args
        partition, first = str(args["partition"]), int(args["first"])
        effects: list[Effect] = list(args["effects"])
        with self._guard:
            followed = self._followed.get(partition)
        if followed is None:
            return BEHIND
        with followed.guard:
            if followed.is_over or (followed.home, followed.epoch) != (args["home"], args["epoch"]):
                raise not_home(partition)
            if first > followed.next:
                return BEHIND
            followed.heard_s = time.monotonic()
            for effect in effects[followed.next - first :]:
                apply_effect(self._store, standby_name(partition), effect, self._reserve)
                if effect.kind == WEIGHT:
                    followed.weights = effect.number
                followed.next += 1
        return None

    def _named(self, call: Call) -> None:
        args = call.args
        with self._guard:
            followed = self._followed.get(str(args["partition"]))
        if followed is not None and (followed.home, followed.epoch) == (args["home"], args["epoch"]):
            followed.named_s = time.monotonic()

    def _follows(self, call: Call) -> bool:
        """Whether that home is one: nothing that this node did not hear of was ever acknowledged by another."""
        args = call.args
        with self._guard:
            followed = self._followed.get(str(args["partition"]))
        if followed is None:
            return False
        with followed.guard:
            return not followed.is_over and (followed.home, followed.epoch) == (args["home"], args["epoch"])

    def _keep(self, call: Call) -> None:
        fields: Any = call.args["fields"]
        self._keeper.keep(names_of(call), None if fields is None else list(fields), until_of(call))
