"""The directory as seen from any process of a node."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from transferqueue.errors import CorruptSegmentError, NodeUnreachableError
from transferqueue.nodes.directory.mirror import Mirror
from transferqueue.nodes.directory.role import Role, role_of_message
from transferqueue.nodes.directory.state import Joined
from transferqueue.nodes.place import NodePlace
from transferqueue.nodes.rpc_client import RpcClient
from transferqueue.nodes.tls import TlsFiles

CALL_S = 30.0
_FRESH_S = 1.0


class Touched(NamedTuple):
    """What the directory says to `DirectoryClient.touch`.

    Attributes:
        alive: False: the node counts as lost.
        seen: which directory this is, and the version of the roles.
        roles: by partition; None: as the caller knows them.
    """

    alive: bool
    seen: tuple[int, int]
    roles: dict[str, Role] | None


class DirectoryClient:
    """Thread-safe, survives forks. Where nodes are is remembered for a second; homes are the caller's to remember.

    Args:
        host, port, token, tls: of the server that has the directory's handlers.
        call_s: how long a call without a deadline goes on.
    """

    def __init__(
        self, host: str, port: int, *, token: str, tls: TlsFiles | None = None, call_s: float = CALL_S
    ) -> None:
        self._client = RpcClient(host, port, token=token, tls=tls, node=f"the directory at {host}:{port}")
        self._call_s = call_s
        self._guard = threading.Lock()
        self._pid = os.getpid()
        self._version: Any = None
        self._places: dict[int, NodePlace] = {}
        self._looked_s = -_FRESH_S

    def join(
        self,
        node_id: str,
        session: str,
        host: str,
        port: int,
        *,
        ordinal: int | None = None,
        incarnation: int = 0,
        partitions: Iterable[str] = (),
        roles: Mapping[str, Role] | None = None,
        known: Mapping[str, Any] | None = None,
        until_s: float | None = None,
    ) -> Joined:
        """Of an agent: see `DirectoryState.join`. Raises ValueError as that.

        Args:
            roles: of the partitions that it is home or standby of, as it knows itself; None: nothing is kept twice.
            known: `Mirror.told`; None: nothing.
        """
        args: dict[str, Any] = {"node_id": node_id, "session": session, "host": host, "port": port, "ordinal": ordinal}
        args.update(incarnation=incarnation, partitions=list(partitions), known=known)
        args["roles"] = {name: role.message() for name, role in (roles or {}).items()}
        answer = self._call("directory.join", args, until_s)
        match answer:
            case [int() as number, int() as now, tuple() | list() as not_home]:
                return Joined(number, now, tuple(not_home))
        raise _odd(answer)

    def heartbeat(self, ordinal: int, incarnation: int, *, until_s: float | None = None) -> bool:
        """False: join again."""
        return bool(
            self._call("directory.heartbeat", {"ordinal": ordinal, "incarnation": incarnation}, until_s, attempt_s=2.0)
        )

    def nodes(self, *, until_s: float | None = None, fresh: bool = False) -> list[NodePlace]:
        """All nodes that ever joined, by ordinal; `alive` says which are lost. `fresh`: not what is remembered."""
        return [place for _, place in sorted(self._look(until_s, fresh).items())]

    def mirror(self, *, until_s: float | None = None) -> Mirror:
        """All nodes and roles as they are now."""
        made = Mirror()
        made.take(self._call("directory.mirror", {}, until_s))
        return made

    def place_of(
        self, ordinal: int, *, until_s: float | None = None, fresh: bool = False, known_will_do: bool = False
    ) -> NodePlace | None:
        """Where that node is; None: there is none. `known_will_do`: without an answer, what was known before."""
        if not known_will_do:
            return self._look(until_s, fresh).get(ordinal)
        try:
            return self._look(until_s, fresh).get(ordinal)
        except NodeUnreachableError:
            return self._places.get(ordinal)

    def is_lost(self, ordinal: int, *, until_s: float | None = None) -> bool:
        """Whether the node is lost, or never was; at most a second old."""
        place = self._look(until_s, False).get(ordinal)
        return place is None or not place.alive

    def knows_lost(self, ordinal: int) -> bool:
        """`is_lost` by what is remembered: asks nobody."""
        place = self._places.get(ordinal)
        return place is None or not place.alive

    def home_of(self, partition: str, create_at: int | None, *, until_s: float | None = None) -> int | None:
        """The ordinal of the partition's home. When it has none, `create_at` is it from now on; None: None then."""
        return self._ordinal("directory.home_of", {"partition": partition, "create_at": create_at}, until_s)

    def place(self, partition: str, ordinal: int, *, until_s: float | None = None) -> int:
        """Makes the node the home of a partition that has none; returns the home it has. ValueError: no such node."""
        home = self._ordinal("directory.place", {"partition": partition, "ordinal": ordinal}, until_s)
        if home is None:
            raise _odd(home)
        return home

    def move(self, partition: str, ordinal: int, *, until_s: float | None = None) -> None:
        """The partition's home is that node from now on, whichever was it. ValueError: no such node."""
        self._call("directory.move", {"partition": partition, "ordinal": ordinal}, until_s)

    def forget(self, partition: str, *, ordinal: int | None = None, until_s: float | None = None) -> None:
        """The partition has no home from now on; with `ordinal`, if that is it."""
        self._call("directory.forget", {"partition": partition, "ordinal": ordinal}, until_s)

    def role_of(self, partition: str, *, until_s: float | None = None) -> Role:
        """Who has the partition now."""
        return role_of_message(self._call("directory.role", {"partition": partition}, until_s))

    def declare(self, partition: str, role: Role, *, until_s: float | None = None) -> Role:
        """See `DirectoryState.declare`."""
        args = {"partition": partition, "role": role.message()}
        return role_of_message(self._call("directory.declare", args, until_s))

    def touch(self, ordinal: int, seen: tuple[int, int] | None, *, until_s: float | None = None) -> Touched:
        """A sign of life of a node that is not lost, and what it is home and standby of, unless `seen` says that
        this is known."""
        args = {"ordinal": ordinal, "seen": None if seen is None else list(seen)}
        match self._call("directory.touch", args, until_s, attempt_s=2.0):
            case [bool() as alive, int() as born, int() as version, None]:
                return Touched(alive, (born, version), None)
            case [bool() as alive, int() as born, int() as version, dict() as roles]:
                return Touched(
                    alive, (born, version), {str(name): role_of_message(role) for name, role in roles.items()}
                )
            case answer:
                raise _odd(answer)

    def homes(self, *, until_s: float | None = None) -> dict[str, int]:
        """Partition -> ordinal of its home."""
        return dict(self._call("directory.partitions", {}, until_s))

    def partitions(self, *, until_s: float | None = None) -> list[str]:
        """All partitions that have a home, in the order in which they got one."""
        return list(self.homes(until_s=until_s))

    def spend(self, ordinal: int, *, until_s: float | None = None) -> None:
        """No new node gets that ordinal, or one below: its rows are loaded from a checkpoint."""
        self._call("directory.spend", {"ordinal": ordinal}, until_s)

    def mark_lost(self, ordinal: int, *, until_s: float | None = None) -> None:
        """Of somebody who knows that the node is dead."""
        self._call("directory.mark_lost", {"ordinal": ordinal}, until_s)
        self._looked_s = -_FRESH_S

    def close(self) -> None:
        """Closes the connection."""
        self._client.close()

    def _look(self, until_s: float | None, fresh: bool) -> Mapping[int, NodePlace]:
        if self._pid != os.getpid():
            self._guard, self._pid = threading.Lock(), os.getpid()
        if not fresh and time.monotonic() - self._looked_s < _FRESH_S:
            return self._places
        began_s = time.monotonic()
        answer = self._call("directory.nodes", {"version": self._version}, until_s)
        match answer:
            case [int() as version, None] if version == self._version:
                pass
            case [int() as version, list() as places]:
                with self._guard:
                    self._places = {place[0]: NodePlace(*place) for place in places}
                    self._version = version
            case _:
                raise _odd(answer)
        self._looked_s = began_s
        return self._places

    def _call(self, method: str, args: Mapping[str, Any], until_s: float | None, attempt_s: float = 5.0) -> Any:
        limit_s = time.monotonic() + self._call_s if until_s is None else until_s
        return self._client.call(method, args, until_s=limit_s, attempt_s=attempt_s)

    def _ordinal(self, method: str, args: Mapping[str, Any], until_s: float | None) -> int | None:
        answer = self._call(method, args, until_s)
        if answer is not None and type(answer) is not int:
            raise _odd(answer)
        return answer


def _odd(answer: Any) -> CorruptSegmentError:
    return CorruptSegmentError(f"the directory answered what is no answer: {str(answer)[:200]!r}")
