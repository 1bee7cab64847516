"""What the directory knows. No clock, no network and no lock of its own: whoever serves it brings them."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from transferqueue.nodes.directory.role import Role
from transferqueue.nodes.directory.roles import Roles
from transferqueue.nodes.place import NodePlace

MAX_NODES = 1 << 12
"""Ordinals begin the rows of a node: they have 12 bits of a global index."""
SETTLE_S = 3.0


@dataclass(frozen=True)
class Joined:
    """What a node is told when it joins.

    Attributes:
        ordinal, incarnation: its own, from now on.
        not_home: partitions that it said to be home of, and another node is.
    """

    ordinal: int
    incarnation: int
    not_home: tuple[str, ...] = ()


class DirectoryState:
    """Nodes and homes. Times are seconds on any clock that only goes forward.

    It is kept nowhere else. A directory that starts anew is told everything by the agents, whose next heartbeat finds
    that they are unknown: they join again with their ordinals, the partitions that they are home of, and what an
    earlier directory said of all nodes (`recall`), so that a node that was lost with it is not forgotten. Until they
    had time for that (`settled`), nobody can say that a partition has no home, or that there is no such node.

    Args:
        lost_after_s: a node without a heartbeat for longer is lost.
        settle_s: how long agents are waited for after a start in which somebody *re*joined.
        again: somebody will: it is not the first directory of its cluster.
    """

    def __init__(
        self, lost_after_s: float, now_s: float, settle_s: float | None = None, *, again: bool = False
    ) -> None:
        self.lost_after_s = lost_after_s
        self._settle_s = SETTLE_S if settle_s is None else settle_s
        self._began_s = self._now_s = now_s
        self._nodes: dict[int, NodePlace] = {}
        self._heard_s: dict[int, float] = {}
        self._recalled: set[int] = set()  # told of by others, and not here yet
        self._roles = Roles()
        self.born = secrets.randbits(48)
        """Another one after a restart: what is only told once has to be told again."""
        self._returning = again
        self.was_told = False
        """Whether a node has said what an earlier directory knew."""
        self.spent = -1
        """The highest ordinal whose rows are in use without a node of it, see `spend`."""
        self.version = secrets.randbits(48)
        """Changes whenever `nodes` does."""

    def join(
        self,
        node_id: str,
        session: str,
        host: str,
        port: int,
        now_s: float,
        *,
        ordinal: int | None = None,
        incarnation: int = 0,
        partitions: Iterable[str] = (),
    ) -> Joined:
        """A node is here, or again.

        Args:
            ordinal: the one it had, or must have: a new one, when its session was made anew, so that no row is named
                twice; None: the first unused, or what this `node_id` had last.
            incarnation: the one it had; 0: it was not in the cluster before.
            partitions: what it is home of.

        Raises:
            ValueError: the ordinal is another node's, the `node_id` that of another living node, or there are
                `MAX_NODES` already.
        """
        self._look(now_s)
        known = next((place for place in reversed(self._nodes.values()) if place.node_id == node_id), None)
        if ordinal is None:
            ordinal = max(*self._nodes, self.spent, -1) + 1 if known is None else known.ordinal
        if not 0 <= ordinal < MAX_NODES:
            raise ValueError(f"a cluster has at most {MAX_NODES} nodes, each of a number of its own; not {ordinal}")
        before = self._nodes.get(ordinal)
        if before is not None and before.node_id != node_id:
            raise ValueError(f"{before} has that ordinal; {node_id!r} at {host}:{port} cannot have it, too")
        if known is not None and known.ordinal != ordinal and known.alive:
            if known.ordinal not in self._recalled or not self.settled(now_s, but=node_id):
                raise ValueError(
                    f"{node_id!r} is node {known.ordinal} of this cluster and cannot be node {ordinal}, too"
                )
            self.mark_lost(known.ordinal)  # its rows went while nobody was the directory
        # Who was in a cluster that this directory does not know is back after the directory was.
        self._returning |= before is None and incarnation > 0
        incarnation = max(incarnation, 0 if before is None else before.incarnation) + 1
        self._nodes[ordinal] = NodePlace(ordinal, host, port, session, node_id, True, incarnation)
        self._heard_s[ordinal] = now_s
        self._recalled.discard(ordinal)
        self.version += 1
        not_home = tuple(name for name in partitions if not self._roles.claim(name, ordinal))
        self._promote()
        return Joined(ordinal, incarnation, not_home)

    def recall(self, places: Iterable[NodePlace], roles: Mapping[str, Role], now_s: float) -> None:
        """A node that joins says what the last directory knew. Nodes that it tells of have as long to come back as any
        other."""
        for place in places:
            before = self._nodes.get(place.ordinal)
            if before is None and 0 <= place.ordinal < MAX_NODES:
                self._nodes[place.ordinal] = place
                self._heard_s[place.ordinal] = now_s if place.alive else -1.0
                self._recalled.add(place.ordinal)
                self.version += 1
        self._roles.recall(roles)
        self.was_told = True
        self._promote()

    def is_recalled(self, ordinal: int) -> bool:
        """Whether others told of that node, and it has not joined since."""
        return ordinal in self._recalled

    def heartbeat(self, ordinal: int, incarnation: int, now_s: float) -> bool:
        """False: the node is not known as that; it has to join (again)."""
        place = self._nodes.get(ordinal)
        if place is None or place.incarnation != incarnation or ordinal in self._recalled:
            return False
        if not place.alive and self._heard_s[ordinal] < 0:
            return False  # somebody said that it is dead: what lives there is to say so by joining
        self._heard_s[ordinal] = now_s
        if not place.alive:
            self._nodes[ordinal] = replace(place, alive=True)
            self.version += 1
            self._promote()
        return True

    def touch(self, ordinal: int, now_s: float) -> bool:
        """A sign of life that brings nobody back: False for a node that is lost."""
        self._look(now_s)
        place = self._nodes.get(ordinal)
        if place is None or not place.alive or ordinal in self._recalled:
            return False
        self._heard_s[ordinal] = now_s
        return True

    def nodes(self, now_s: float) -> list[NodePlace]:
        """By ordinal, the lost ones included."""
        self._look(now_s)
        return [self._nodes[ordinal] for ordinal in sorted(self._nodes)]

    def is_lost(self, ordinal: int, now_s: float) -> bool:
        """Whether a node that was here is lost."""
        self._look(now_s)
        place = self._nodes.get(ordinal)
        return place is not None and not place.alive

    def mark_lost(self, ordinal: int) -> bool:
        """Somebody who knows says that the node is dead. Whether it was not known."""
        place = self._nodes.get(ordinal)
        if place is None or not place.alive:
            return False
        self._nodes[ordinal] = replace(place, alive=False)
        self._heard_s[ordinal] = -1.0
        self.version += 1
        self._promote()
        return True

    def spend(self, ordinal: int) -> None:
        """Rows of that node's are loaded from a checkpoint: no new node gets its ordinal, or one below."""
        if not 0 <= ordinal < MAX_NODES:
            raise ValueError(f"no node has the ordinal {ordinal}")
        self.spent = max(self.spent, ordinal)

    def settled(self, now_s: float, *, but: str | None = None) -> bool:
        """Whether a partition that is not known has no home: everybody who lives has said what there is.

        Args:
            but: the `node_id` of one that is not waited for; None: all are.
        """
        if not self._returning or now_s - self._began_s >= self._settle_s:
            return True
        awaited = (self._nodes[ordinal] for ordinal in self._recalled)
        return self.was_told and not any(place.alive and place.node_id != but for place in awaited)

    @property
    def roles_version(self) -> int:
        """Changes whenever `role_of` any partition does."""
        return self._roles.version

    def home_of(self, partition: str, create_at: int | None = None) -> int | None:
        """The ordinal of the home; when there is none, `create_at` is it from now on. Ask when `settled`."""
        home = self._roles.of(partition).home
        if home is None and create_at is not None:
            home = self.place(partition, create_at)
        return home

    def place(self, partition: str, ordinal: int) -> int:
        """Makes the node the home of a partition that has none. Returns the home.

        Raises:
            ValueError: there is no such node.
        """
        self._check_home(partition, ordinal)
        return self._roles.place(partition, ordinal)

    def role_of(self, partition: str) -> Role:
        """Who has it. Ask after a look at who is lost (`nodes`)."""
        return self._roles.of(partition)

    def roles_of(self, ordinal: int) -> dict[str, Role]:
        """By partition: those that the node is home or standby of."""
        return self._roles.of_node(ordinal)

    def roles_since(self, version: int) -> dict[str, Role]:
        """By partition: those that changed after that `roles_version`."""
        return self._roles.since(version)

    def declare(self, partition: str, role: Role, by: int | None = None) -> Role:
        """The home of an epoch says who follows it. What a home of an earlier epoch says is not heard: somebody took
        its place. Returns what holds now.

        A home that has no standby any more acknowledges nothing before it has said so. After a restart of the directory
        standbys say it, too, since the home may have been lost with the directory; they are heard until it speaks.

        Args:
            by: who says so; None: the home.
        """
        if self._roles.declare(partition, role, is_home=by in (None, role.home)):
            self._promote()
        return self.role_of(partition)

    def move(self, partition: str, ordinal: int) -> None:
        """Another home, whatever it was: for whoever moved the partition. ValueError: there is no such node."""
        self._check_home(partition, ordinal)
        self._roles.move(partition, ordinal)

    def forget(self, partition: str, ordinal: int | None = None) -> bool:
        """The partition has no home from now on; with `ordinal`, if that is it. Whether it had."""
        if ordinal is not None and self._roles.of(partition).home != ordinal:
            return False
        return self._roles.forget(partition)

    def partitions(self) -> dict[str, int]:
        """Partition -> ordinal of its home, in the order in which they were placed."""
        return self._roles.homes()

    def _check_home(self, partition: str, ordinal: int) -> None:
        if ordinal not in self._nodes:
            raise ValueError(f"there is no node {ordinal} to be home of partition {partition!r}")

    def _promote(self) -> None:
        self._roles.promote(self._is_gone, lambda ordinal: ordinal in self._nodes and self._nodes[ordinal].alive)

    def _is_gone(self, ordinal: int) -> bool:
        place = self._nodes.get(ordinal)
        if place is not None:
            return not place.alive
        # A directory that was started anew gives a home that it has not heard of the time to come.
        return self._now_s - self._began_s > self.lost_after_s

    def _look(self, now_s: float) -> None:
        before, self._now_s = self.version, now_s
        for ordinal, place in list(self._nodes.items()):
            if place.alive and now_s - self._heard_s[ordinal] > self.lost_after_s:
                self._nodes[ordinal] = replace(place, alive=False)
                self.version += 1
        if self.version != before or not self._nodes.keys() >= self._roles.followed_homes():
            self._promote()
