"""The directory, followed when it is served elsewhere."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from transferqueue.errors import NodeUnreachableError
from transferqueue.nodes.directory.client import DirectoryClient, Touched
from transferqueue.nodes.directory.role import Role
from transferqueue.nodes.place import NodePlace

if TYPE_CHECKING:
    from transferqueue.nodes.cluster_file import ClusterFile

R = TypeVar("R")
# A directory that did not answer within the first is taken for away for the second, by calls that can do without.
_ANSWERS_WITHIN_S = 1.0
_AWAY_S = 2.0
# Of one attempt: then the file is read again, which the node's agent rewrites when the directory has moved.
_ATTEMPT_S = 3.0


class FollowedDirectory:
    """The part of `DirectoryClient` that processes use.

    Args:
        read: the cluster file as it is now.
    """

    def __init__(self, read: Callable[[], ClusterFile]) -> None:
        self._read = read
        self._known: tuple[ClusterFile, DirectoryClient] | None = None
        self._failed_s = -_AWAY_S

    def nodes(self, *, until_s: float | None = None, fresh: bool = False) -> list[NodePlace]:
        """All nodes that ever joined, by ordinal. `fresh`: not what is remembered."""
        return self._asked(
            lambda client, limit_s: client.nodes(until_s=limit_s, fresh=fresh),
            until_s,
            lambda nodes: sorted(nodes.values(), key=lambda place: place.ordinal),
        )

    def place_of(
        self, ordinal: int, *, until_s: float | None = None, fresh: bool = False, known_will_do: bool = False
    ) -> NodePlace | None:
        """See `DirectoryClient.place_of`."""
        if known_will_do:
            return self._follow().place_of(ordinal, until_s=until_s, fresh=fresh, known_will_do=True)
        return self._asked(
            lambda client, limit_s: client.place_of(ordinal, until_s=limit_s, fresh=fresh),
            until_s,
            lambda nodes: nodes[ordinal],
        )

    def is_lost(self, ordinal: int, *, until_s: float | None = None) -> bool:
        """Whether the node is lost, or never was; at most a second old."""
        return self._asked(
            lambda client, limit_s: client.is_lost(ordinal, until_s=limit_s),
            until_s,
            lambda nodes: not nodes[ordinal].alive,
        )

    def knows_lost(self, ordinal: int) -> bool:
        """`is_lost` by what is remembered."""
        return self._now()[1].knows_lost(ordinal)

    def home_of(self, partition: str, create_at: int | None, *, until_s: float | None = None) -> int | None:
        """See `DirectoryClient.home_of`."""
        return self._asked(lambda client, limit_s: client.home_of(partition, create_at, until_s=limit_s), until_s)

    def place(self, partition: str, ordinal: int) -> int:
        """See `DirectoryClient.place`."""
        return self._asked(lambda client, until_s: client.place(partition, ordinal, until_s=until_s), None)

    def homes(self) -> dict[str, int]:
        """See `DirectoryClient.homes`."""
        return self._asked(lambda client, until_s: client.homes(until_s=until_s), None)

    def move(self, partition: str, ordinal: int) -> None:
        """See `DirectoryClient.move`."""
        self._asked(lambda client, until_s: client.move(partition, ordinal, until_s=until_s), None)

    def forget(self, partition: str, *, ordinal: int) -> None:
        """See `DirectoryClient.forget`."""
        self._asked(lambda client, until_s: client.forget(partition, ordinal=ordinal, until_s=until_s), None)

    def spend(self, ordinal: int) -> None:
        """See `DirectoryClient.spend`."""
        self._asked(lambda client, until_s: client.spend(ordinal, until_s=until_s), None)

    def role_of(self, partition: str, *, until_s: float | None = None) -> Role:
        """See `DirectoryClient.role_of`."""
        return self._asked(lambda client, limit_s: client.role_of(partition, until_s=limit_s), until_s)

    def declare(self, partition: str, role: Role, *, until_s: float | None = None) -> Role:
        """See `DirectoryClient.declare`."""
        return self._asked(lambda client, limit_s: client.declare(partition, role, until_s=limit_s), until_s)

    def touch(self, ordinal: int, seen: tuple[int, int] | None, *, until_s: float | None = None) -> Touched:
        """See `DirectoryClient.touch`."""
        return self._asked(lambda client, limit_s: client.touch(ordinal, seen, until_s=limit_s), until_s)

    def _asked(
        self,
        ask: Callable[[DirectoryClient, float], R],
        until_s: float | None,
        remembered: Callable[[dict[int, NodePlace]], R] | None = None,
    ) -> R:
        """What the directory answers. Where there is `remembered`, and the directory is away: that, of the nodes as the
        cluster file has them; it raises LookupError where they do not say."""
        file, client = self._now()
        over_s = time.monotonic() + file.options.call_s if until_s is None else until_s
        if remembered is not None:
            try:
                if time.monotonic() - self._failed_s < _AWAY_S:
                    return remembered(self._nodes_of_file())
                return ask(client, min(over_s, time.monotonic() + _ANSWERS_WITHIN_S))
            except LookupError:
                pass
            except NodeUnreachableError:
                before, client = client, self._follow()
                if client is before:
                    self._failed_s = time.monotonic()
                    with contextlib.suppress(LookupError):
                        return remembered(self._nodes_of_file())
        while True:
            try:
                return ask(client, min(over_s, time.monotonic() + _ATTEMPT_S))
            except NodeUnreachableError:
                client = self._follow()  # the next call goes there, if this one is over
                if time.monotonic() >= over_s:
                    raise

    def _nodes_of_file(self) -> dict[int, NodePlace]:
        """Raises LookupError: it names none."""
        nodes = self._read().nodes
        if not nodes:
            raise LookupError
        return {place.ordinal: place for place in nodes}

    def _now(self) -> tuple[ClusterFile, DirectoryClient]:
        # Not before it is needed: an agent is made before the file says where it serves.
        known = self._known
        if known is None:
            file = self._read()
            known = self._known = file, _connected(file)
        return known

    def _follow(self) -> DirectoryClient:
        old, client = self._now()
        file = self._read()
        if file.directory_port and (file.directory_host, file.directory_port) != (
            old.directory_host,
            old.directory_port,
        ):
            client = _connected(file)
            self._known = file, client
        return client


def _connected(file: ClusterFile) -> DirectoryClient:
    return DirectoryClient(
        file.directory_host, file.directory_port, token=file.token, tls=file.tls, call_s=file.options.call_s
    )
