"""``cluster.replicas=2`` at a partition's home: what was acknowledged is on two nodes.

*Order.* Every change is committed and noted under one lock of its partition (`ReplicatedStore`). Before its call is
answered, all that was noted until then is sent to the standby, whoever sends it, and applied there in that order.

*Who has what* the directory says: the home, the standby, and the epoch, which counts the homes. A home that loses its
standby says so there before it answers anybody, so a standby that is named has everything that was acknowledged. When
the home is lost, the directory makes the standby the home of the next epoch; the node finds that out with the first
call that comes, or with its next look, and gives what it followed its name.

*One home.* A home of an earlier epoch (it was stopped, or cut off) cannot change anything that it would answer for: its
standby refuses. It cannot read either what is not true any more: it was heard by the directory less than `_SAFE` of the
time ago after which it would count as lost, or it asks there before it answers, and after it looked; while the
directory is away it asks its standby, without which nobody becomes home.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from transferqueue.errors import DataLostError, NodeUnreachableError, TransferTimeoutError
from transferqueue.logs import get_logger
from transferqueue.node_service.followers import CALL_S, Directory, Followers
from transferqueue.node_service.heard_directory import HeardDirectory
from transferqueue.node_service.keeper import Keeper
from transferqueue.node_service.replicated_store import PartitionLog, ReplicatedStore, not_home
from transferqueue.node_service.standby import Standby
from transferqueue.nodes.directory.role import Role
from transferqueue.nodes.errors import NotHomeError
from transferqueue.nodes.link import NodeLink
from transferqueue.nodes.names import Names, is_hidden, ordinals_of

if TYPE_CHECKING:
    from transferqueue._native import Store

_log = get_logger("nodes")
_SAFE = 0.75
_LOAD_S = 120.0
_ANSWER_S = 1.0


class Replication:
    """Of one agent. Thread-safe.

    Args:
        store: of the node.
        link: how other nodes are asked.
        directory: who has what.
        keeper, standby: of the node.
        lost_after_s: after so many seconds without a sign of life a node counts as lost.

    Attributes:
        store: for calls that clients make: its changes are noted.
        keeper, standby: as given.
        changed_s: when this node last became home of a partition, or another node the standby of one.
    """

    def __init__(
        self,
        store: Store,
        link: NodeLink,
        directory: Directory,
        keeper: Keeper,
        standby: Standby,
        lost_after_s: float,
    ) -> None:
        self._raw = store
        self._link = link
        self._directory = HeardDirectory(directory)
        self.keeper = keeper
        self.standby = standby
        self._lost_after_s = lost_after_s
        self._followers = Followers(store, link, directory, lost_after_s, self._lost_place)
        self.store = ReplicatedStore(store, self)
        self._guard = threading.RLock()
        self._logs: dict[str, PartitionLog] = {}
        self._safe_until_s = 0.0
        self._loading_until_s = 0.0
        self._generation = 0
        self.changed_s = 0.0
        self._born: int | None = None
        self._seen: tuple[int, int] | None = None
        self._roles: dict[str, Role] = {}
        standby.no_longer_home = self._yield_to

    @property
    def as_store(self) -> Store:
        """`store`, for whoever takes one."""
        return cast("Store", self.store)

    def at_home(self, partition: str) -> None:
        """Returns when this node is the partition's home now, which it may become by that.

        Raises:
            NotHomeError: another one is, or none. NodeUnreachableError: the directory does not answer.
        """
        log = self._logs.get(partition)
        if log is not None and not log.is_over and self._is_safe(log):
            return
        until_s = time.monotonic() + CALL_S
        while True:
            generation = self._generation
            if log is not None and not log.is_over and self._is_home_without_directory(partition, log):
                return
            try:
                role = self._directory.role_of(partition, min(until_s, time.monotonic() + _ANSWER_S))
                break
            except NodeUnreachableError:
                if time.monotonic() >= until_s:
                    raise
        self._take(partition, role).generation = generation

    def log_to_change(self, partition: str) -> PartitionLog:
        """See `Logs`."""
        log = self._logs.get(partition)
        if log is None or log.is_over:
            raise not_home(partition)
        return log

    def keep(self, partition: str, names: Names, fields: list[str], until_s: float) -> None:
        """Returns when the payload of a put that is about to be published lies on two nodes."""
        own = ordinals_of(names) == self._link.ordinal
        self.keeper.keep(names[~own], fields, until_s)
        if not own.any():
            return
        while True:
            log = self.log_to_change(partition)
            with log.sends:
                self._followers.find_standby(partition, log, until_s)
                standby = log.standby
            if standby is None:
                return  # nobody else is there
            try:
                args = {"names": names[own], "fields": fields}
                limit_s = min(until_s, time.monotonic() + self._followers.standby_s)
                self._link.call(standby, "standby.keep", args, until_s=limit_s)
                return
            except (DataLostError, NodeUnreachableError) as error:
                with log.sends:
                    if log.standby == standby:
                        self._followers.drop_standby(partition, log, error)

    def flush(self, partition: str, until_s: float) -> None:
        """Returns when the standby has all that was noted by now.

        Raises:
            NotHomeError: this node is not the home any more; nothing of that holds. NodeUnreachableError: neither the
            standby nor the directory answers: it holds when a later `flush` returns.
        """
        log = self.log_to_change(partition)
        with log.commits:
            end = log.end
        while True:
            with log.sends:
                if log.is_over:
                    raise not_home(partition)
                if log.first >= end and (log.standby is not None or log.is_alone):
                    return
                self._followers.find_standby(partition, log, until_s)
                self._followers.send(partition, log)
            if time.monotonic() >= until_s and log.first < end:
                raise TransferTimeoutError(
                    f"partition {partition!r} has no second node that answers, and the directory was not told in time",
                    missing=partition,
                )

    def is_settled(self, partition: str) -> bool:
        """Whether this node is the home, and the standby has all that any look so far has seen."""
        log = self._logs.get(partition)
        if log is None or log.is_over:
            return False
        with log.commits:
            if log.unsent:
                return False
        return self._is_safe(log) or self._is_home_without_directory(partition, log)

    def is_mine(self, partition: str) -> bool:
        """Whether this node is the home, as far as it knows."""
        log = self._logs.get(partition)
        return log is not None and not log.is_over

    def roles(self) -> dict[str, Role]:
        """Partition -> role of those that this node is home or standby of, as it knows itself: for a directory that was
        started anew."""
        own = self._link.ordinal
        mine = {name: Role(own, log.standby, log.epoch) for name, log in list(self._logs.items()) if not log.is_over}
        return {**self.standby.named(own), **mine}

    def homes(self) -> Mapping[str, int | None]:
        """Partition -> ordinal of the standby, of those that this node is home of."""
        return {name: log.standby for name, log in list(self._logs.items()) if not log.is_over}

    def look(self) -> None:
        """One sign of life, and what came of it: taking over, giving up, finding a standby again."""
        began_s = time.monotonic()
        touched = self._directory.touch(self._link.ordinal, self._seen, began_s + CALL_S)
        if not touched.alive:
            return  # the agent has to join again first
        if began_s > self._safe_until_s:
            self._generation += 1  # it may have been lost meanwhile: every partition is asked for anew
        restarted = self._born not in (None, touched.seen[0])
        self._born = touched.seen[0]
        self._safe_until_s = began_s + _SAFE * self._lost_after_s
        if touched.roles is not None and not restarted:
            self._roles = touched.roles
            self.standby.learn(touched.roles, self._link.ordinal, began_s)
        self._seen = None if restarted else touched.seen
        if restarted:
            for partition, log in list(self._logs.items()):
                if not log.is_over:
                    self._followers.declare(partition, log, log.standby)
            return  # others have yet to say what they are
        for partition, role in self._roles.items():
            if role.home == self._link.ordinal and not self.is_mine(partition):
                self.at_home(partition)
        for partition in [name for name in self._raw.partitions() if not is_hidden(name)]:
            if self._roles.get(partition, Role(None)).home != self._link.ordinal:
                role = self._directory.role_of(partition, time.monotonic() + CALL_S)
                if role.home not in (None, self._link.ordinal):
                    self._give_up(partition, role.epoch)
        if time.monotonic() < self._loading_until_s:
            return
        living = set(self._link.others())
        for partition, log in list(self._logs.items()):
            lost = log.standby is not None and log.standby not in living
            if not log.is_over and (lost or (log.standby is None and living)):
                self._restore(partition, log)
        self.standby.drop_abandoned(set(self._roles))

    def let_go(self) -> None:
        """All rows of all nodes are about to be replaced: nobody follows until `hold_on`, or `_LOAD_S` later."""
        self._loading_until_s = time.monotonic() + _LOAD_S
        for partition, log in list(self._logs.items()):
            with log.sends, log.commits:
                if not log.is_over:
                    self._followers.declare(partition, log, None)
                    log.standby, log.is_alone = None, True

    def hold_on(self) -> None:
        """Every node has its new rows."""
        self._loading_until_s = 0.0

    def _is_safe(self, log: PartitionLog) -> bool:
        return log.generation == self._generation and time.monotonic() < self._safe_until_s

    def _is_home_without_directory(self, partition: str, log: PartitionLog) -> bool:
        """Whether the directory is away, and the standby says that it has not taken this node's place."""
        return self._directory.is_away and self._followers.is_followed(partition, log)

    def _take(self, partition: str, role: Role) -> PartitionLog:
        with self._guard:
            log = self._logs.get(partition)
            if role.home != self._link.ordinal:
                if log is not None and not log.is_over and role.home is not None and role.epoch >= log.epoch:
                    self._give_up(partition, role.epoch)
                raise not_home(partition)
            if log is not None and not log.is_over and log.epoch == role.epoch:
                return log
            if log is not None:
                log.is_over = True
            weights = self.standby.take_over(partition)
            made = self._logs[partition] = PartitionLog(role.epoch)
            self.changed_s = time.monotonic()
            if weights is not None:
                self._raw.set_weight_version(partition, weights)
                made.weights = weights
            return made

    def _lost_place(self, partition: str, role: Role) -> None:
        with contextlib.suppress(NotHomeError):
            self._take(partition, role)

    def _yield_to(self, partition: str, epoch: int) -> None:
        """Another node says that it is the home of `epoch`, and this one its standby."""
        with self._guard:
            log = self._logs.get(partition)
            if log is not None and not log.is_over and log.epoch > epoch:
                raise not_home(partition)
            self._give_up(partition, epoch)

    def _give_up(self, partition: str, epoch: int) -> None:
        with self._guard:
            log = self._logs.pop(partition, None)
            if log is not None:
                log.is_over = True
        # A commit that is under way may come after this: it is not answered for, and goes at the next look.
        if self._raw.clear_partition(partition):
            _log.warning("partition %r has its home elsewhere (epoch %d); what was here is dropped", partition, epoch)

    def _restore(self, partition: str, log: PartitionLog) -> None:
        with log.sends:
            log.is_alone = False
            if log.standby is not None:
                self._followers.drop_standby(partition, log, None)
            self._followers.find_standby(partition, log, time.monotonic() + CALL_S)
            self.changed_s = time.monotonic()
