"""The standby of each partition at its home: found, told everything once, and every change from then on."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from transferqueue.errors import TransferQueueError
from transferqueue.logs import get_logger
from transferqueue.node_service.partition_image import image_of
from transferqueue.node_service.replicated_store import PartitionLog, not_home
from transferqueue.node_service.standby import BEHIND
from transferqueue.nodes.directory.role import Role
from transferqueue.nodes.errors import NotHomeError
from transferqueue.nodes.link import NodeLink

if TYPE_CHECKING:
    from transferqueue._native import Store
    from transferqueue.node_service.effects import Effect
    from transferqueue.nodes.directory.client import Touched
    from transferqueue.nodes.place import NodePlace

_log = get_logger("nodes")
CALL_S = 10.0
_LONGEST_STANDBY_S = 5.0
_EFFECTS_AT_ONCE = 64


class _BehindError(TransferQueueError):
    """The standby was started anew."""


class Directory(Protocol):
    """The part of the directory that says who has what, see `DirectoryClient`."""

    def place_of(
        self, ordinal: int, *, until_s: float | None = None, fresh: bool = False, known_will_do: bool = False
    ) -> NodePlace | None: ...

    def role_of(self, partition: str, *, until_s: float | None = None) -> Role: ...

    def declare(self, partition: str, role: Role, *, until_s: float | None = None) -> Role: ...

    def touch(self, ordinal: int, seen: tuple[int, int] | None, *, until_s: float | None = None) -> Touched: ...


class Followers:
    """Of one agent. Its methods hold `PartitionLog.sends`.

    Args:
        store: of the node.
        link, directory: how others are asked.
        lost_after_s: see `Replication`.
        lost_place: told that another node has the partition, and in which role.

    Attributes:
        standby_s: how long a standby may take to answer before it is one no more.
    """

    def __init__(
        self,
        store: Store,
        link: NodeLink,
        directory: Directory,
        lost_after_s: float,
        lost_place: Callable[[str, Role], None],
    ) -> None:
        self._store = store
        self._link = link
        self._directory = directory
        self._lost_place = lost_place
        self._failed_s: dict[int, float] = {}
        self.standby_s = min(_LONGEST_STANDBY_S, lost_after_s / 2)

    def declare(self, partition: str, log: PartitionLog, standby: int | None) -> None:
        mine = Role(self._link.ordinal, standby, log.epoch)
        found = self._directory.declare(partition, mine, until_s=time.monotonic() + CALL_S)
        if found.home != self._link.ordinal or found.epoch != log.epoch:
            log.is_over = True
            self._lost_place(partition, found)
            raise not_home(partition)

    def drop_standby(self, partition: str, log: PartitionLog, error: Exception | None) -> None:
        lost, log.standby, log.is_alone = log.standby, None, False
        if lost is not None:
            self._failed_s[lost] = time.monotonic()
            _log.warning("partition %r: node %d does not follow any more: %s", partition, lost, error or "it is lost")

    def find_standby(self, partition: str, log: PartitionLog, until_s: float) -> None:
        """Has somebody follow who has everything; alone when nobody is there. Holds `log.sends`."""
        if log.standby is not None or log.is_alone:
            return
        self.declare(partition, log, None)
        now_s = time.monotonic()
        # Who joined a moment ago is there, too.
        self._directory.place_of(self._link.ordinal, until_s=now_s + CALL_S, fresh=True)
        candidates = [node for node in self._link.others() if now_s - self._failed_s.get(node, -1e9) > self.standby_s]
        own = self._link.ordinal
        for node in [*(n for n in candidates if n > own), *(n for n in candidates if n < own)]:
            with log.commits:
                try:
                    self._tell_all(partition, log, node)
                except NotHomeError:
                    log.is_over = True
                    raise
                except (TransferQueueError, OSError) as error:
                    self._failed_s[node] = time.monotonic()
                    _log.warning("partition %r: node %d cannot follow: %s", partition, node, error)
                    continue
                # Without an answer it may be the standby or not, and it is begun again: nobody is answered before.
                self.declare(partition, log, node)
                log.standby = node
                self._say_named(partition, log, node)
            _log.info("partition %r: node %d follows", partition, node)
            return
        _log.warning("partition %r is on this node alone: no other follows", partition)
        with log.commits:
            log.first, log.unsent = log.end, []
            log.is_alone = True

    def _say_named(self, partition: str, log: PartitionLog, node: int) -> None:
        """Before anything is acknowledged: the directory may be lost together with this node."""
        args = {"partition": partition, "home": self._link.ordinal, "epoch": log.epoch}
        try:
            self._link.call(node, "standby.named", args, until_s=time.monotonic() + self.standby_s)
        except (TransferQueueError, OSError) as error:
            _log.info("partition %r: node %d hears from the directory that it follows: %s", partition, node, error)

    def is_followed(self, partition: str, log: PartitionLog) -> bool:
        """Whether the standby says, now, that it has not taken this node's place."""
        standby = log.standby
        if standby is None:
            return False
        args = {"partition": partition, "home": self._link.ordinal, "epoch": log.epoch}
        try:
            return self._link.call(standby, "standby.follows", args, until_s=time.monotonic() + self.standby_s) is True
        except (TransferQueueError, OSError) as error:
            _log.info("partition %r: node %d does not say whether it follows: %s", partition, standby, error)
            return False

    def _tell_all(self, partition: str, log: PartitionLog, node: int) -> None:
        """Everything, anew. Holds both locks."""
        first = log.end
        args = {"partition": partition, "home": self._link.ordinal, "epoch": log.epoch, "next": first}
        self._link.call(node, "standby.begin", args, until_s=time.monotonic() + self.standby_s)
        batch: list[Effect] = []
        for effect in image_of(self._store, partition):
            batch.append(effect)
            if len(batch) >= 8:
                first = self._apply_at(node, partition, log, first, batch)
                batch = []
        first = self._apply_at(node, partition, log, first, batch)
        log.first, log.unsent = first, []

    def send(self, partition: str, log: PartitionLog) -> None:
        """What is unsent. Holds `log.sends`."""
        with log.commits:
            if log.is_alone:
                log.first, log.unsent = log.end, []
            first, effects = log.first, log.unsent[:_EFFECTS_AT_ONCE]
        if not effects or log.standby is None:
            return
        try:
            end = self._apply_at(log.standby, partition, log, first, effects)
        except NotHomeError:
            log.is_over = True
            raise
        except _BehindError:
            log.standby = None  # and is told everything
            return
        except (TransferQueueError, OSError) as error:
            self.drop_standby(partition, log, error)
            return
        with log.commits:
            del log.unsent[: end - first]
            log.first = end

    def _apply_at(self, node: int, partition: str, log: PartitionLog, first: int, effects: list[Effect]) -> int:
        if not effects:
            return first
        args: dict[str, Any] = {"partition": partition, "home": self._link.ordinal, "epoch": log.epoch}
        args |= {"first": first, "effects": effects}
        answer = self._link.call(node, "standby.apply", args, until_s=time.monotonic() + self.standby_s)
        if answer == BEHIND:
            raise _BehindError("it does not have what came before")
        return first + len(effects)
