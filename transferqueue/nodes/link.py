"""What a process asks other nodes through: where a partition's home is, and calls of its agent."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Protocol

from transferqueue.errors import StorageFullError, TransferQueueError
from transferqueue.nodes.connection import UNAVAILABLE, AttemptError
from transferqueue.nodes.envelopes import read_answer
from transferqueue.nodes.place import NodePlace
from transferqueue.nodes.shared_looks import DESCRIBE, Turn

# Of a call that waits at a partition's home, the longest at once. A call that is cancelled meanwhile goes on so long,
# and so does the home's agent when it is told to end.
WAIT_SLICE_S = 1.0
# What is left of a call's time then is for the answer that nothing came. An attempt of a main thread takes half a
# second, and what follows it may wait anew.
ANSWER_S = 0.7
_MOST_HOMES = 100_000
_HEIR_S = 5.0
LOCATE = "rows.locate"
Look = Callable[[NodePlace, str, Mapping[str, Any], float], bytes]
"""(node, method, arguments, deadline) -> the answer as it came, see `envelopes.read_answer`."""


class Nodes(Protocol):
    """Calls of other nodes' agents by ordinal, see `node_clients.NodeClients`."""

    def call(
        self,
        ordinal: int,
        method: str,
        args: Mapping[str, Any],
        *,
        until_s: float | None,
        request_id: bytes | None = None,
        attempt_s: float = 5.0,
    ) -> Any: ...

    def place(self, ordinal: int, *, until_s: float | None = None) -> NodePlace: ...

    def last_place(self, ordinal: int, *, until_s: float | None = None) -> NodePlace: ...

    def close(self) -> None: ...


class Homes(Protocol):
    """The part of the directory that a link asks, see `directory.DirectoryClient`."""

    def nodes(self, *, until_s: float | None = None, fresh: bool = False) -> list[NodePlace]: ...

    def home_of(self, partition: str, create_at: int | None, *, until_s: float | None = None) -> int | None: ...

    def place(self, partition: str, ordinal: int) -> int: ...

    def is_lost(self, ordinal: int, *, until_s: float | None = None) -> bool: ...

    def homes(self) -> dict[str, int]: ...

    def move(self, partition: str, ordinal: int) -> None: ...

    def forget(self, partition: str, *, ordinal: int) -> None: ...

    def spend(self, ordinal: int) -> None: ...


class NodeLink:
    """One process's connections to the other nodes of its cluster. Thread-safe; a forked child may use it.

    Args:
        ordinal: of the process's own node.
        cluster: the cluster's name.
        nodes, directory: see `Nodes` and `Homes`.
        call_s: seconds that a call without a deadline of its own waits for a node that does not answer.
        replicas: ``cluster.replicas``.
        here: what errors call this node; default: its number.

    Attributes:
        ordinal, cluster: as given.
        look: a cheaper way to make a call that changes nothing, which may fail with AttemptError; None: there is none.
        replicated: every change goes through its home's agent, which tells the partition's standby.
    """

    def __init__(
        self,
        ordinal: int,
        cluster: str,
        nodes: Nodes,
        directory: Homes,
        call_s: float = 30.0,
        *,
        replicas: int = 1,
        here: Callable[[], str] | None = None,
    ) -> None:
        self.ordinal = ordinal
        self.cluster = cluster
        self.nodes = nodes
        self.directory = directory
        self.replicated = replicas > 1
        self._call_s = call_s
        self._here = here or partial("node {}".format, ordinal)
        self.look: Look | None = None
        # A partition's home does not change while the home is alive, and says so when it is asked for what is not its.
        self._homes: dict[str, int] = {}

    def home_of(self, partition: str, *, create: bool) -> int | None:
        """The ordinal of the partition's home; None: it has none, and `create` was not asked for.

        Args:
            create: where there is none, this node becomes it.
        """
        home = self._homes.get(partition)
        if home is None:
            home = self.directory.home_of(partition, self.ordinal if create else None)
            if home is not None:
                self._learn(partition, home)
        return home

    def place(self, partition: str, ordinal: int) -> int:
        """Makes that node the partition's home unless it has one; the ordinal of the one that it has now."""
        home = self.directory.place(partition, ordinal)
        self._learn(partition, home)
        return home

    def take_over(self, partition: str, ordinal: int) -> None:
        """Makes that node the home of a partition whose home is lost."""
        self.directory.move(partition, ordinal)
        self._learn(partition, ordinal)

    def give_up(self, partition: str, lost: int) -> None:
        """The partition has no home from now on, and with that no rows, if its home is that lost node."""
        self.directory.forget(partition, ordinal=lost)
        self.forget_home(partition)

    def is_home(self, partition: str) -> bool:
        """Whether this node is the partition's home; asks the directory where it does not know."""
        return self.home_of(partition, create=False) == self.ordinal

    def is_here(self, home: int | None) -> bool:
        """Whether this process itself works on the index of a partition with that home."""
        return home == self.ordinal and not self.replicated

    def alive(self, until_s: float | None = None, *, fresh: bool = False) -> list[int]:
        """Ordinals of the nodes that are not lost, ascending. `fresh`: now, not a second ago."""
        return sorted(node.ordinal for node in self.directory.nodes(until_s=until_s, fresh=fresh) if node.alive)

    def until(self, until_s: float | None) -> float:
        """The deadline of a call that has none of its own, or whose own may be over before it begins."""
        now_s = time.monotonic()
        return now_s + self._call_s if until_s is None else max(until_s, now_s + 1.0)

    def wait_slice(self, until_s: float | None) -> float:
        """How long a home may wait for what is not there yet, in a call that has until `until(until_s)`.

        Shorter than that, so that the answer that nothing came is not taken for none.
        """
        if until_s is None:
            return WAIT_SLICE_S
        now_s = time.monotonic()
        return min(max(0.0, until_s - now_s), WAIT_SLICE_S, max(until_s - now_s, 1.0) - ANSWER_S)

    def call(
        self,
        ordinal: int,
        method: str,
        args: Mapping[str, Any],
        *,
        until_s: float | None,
        request_id: bytes | None = None,
        attempt_s: float = 5.0,
        turn: Turn | None = None,
    ) -> Any:
        """One call of a node's agent; see `RpcClient.call`. `turn`: of a look that may be another process's, too.

        Raises:
            DataLostError: the node is lost.
        """
        with self.naming_full(ordinal):
            if method == LOCATE and self.look is not None:
                # Each process of a node makes this call for each batch.
                with contextlib.suppress(AttemptError):
                    limit_s = self.until(until_s)
                    look = partial(self._look_by, self.look, self.last_place(ordinal, until_s), args, limit_s)
                    over, value = read_answer(look(True) if turn is None else turn.ask(ordinal, args, limit_s, look))
                    if not over:
                        raise AttemptError(UNAVAILABLE, "it is being worked on")
                    return value
            return self.nodes.call(ordinal, method, args, until_s=until_s, request_id=request_id, attempt_s=attempt_s)

    @contextlib.contextmanager
    def naming_full(self, ordinal: int) -> Iterator[None]:
        """Has a StorageFullError say that it is of that node, unless it says already of which."""
        try:
            yield
        except StorageFullError as error:
            if error.node is not None:
                raise
            raise self.full(ordinal, error) from error

    def full(self, ordinal: int, error: StorageFullError) -> StorageFullError:
        """The error of that node's store as its callers get it: it says which node is full."""
        node = self._name_of(ordinal)
        return StorageFullError(f"{node}: {error.message}", **{**error.details, "node": node})

    def known_home(self, partition: str) -> int | None:
        """The partition's home as far as it is known here without asking."""
        return self._homes.get(partition)

    def forget_home(self, partition: str) -> None:
        """The node that was taken for it says that it is not."""
        self._homes.pop(partition, None)

    def heir_of(self, partition: str, lost: int, until_s: float | None = None) -> int | None:
        """The ordinal of the node that took the place of a home that is lost, or was given it; None: nobody was.

        Args:
            until_s: how long the directory may be away; None: for seconds, since the home may be there after all.

        Raises:
            NodeUnreachableError: it is away for longer.
        """
        limit_s = time.monotonic() + min(self._call_s, _HEIR_S) if until_s is None else until_s
        home = self.directory.home_of(partition, None, until_s=limit_s)
        self.forget_home(partition)
        if home is None or home == lost:
            return None
        self._learn(partition, home)
        return home

    def place_of(self, ordinal: int, until_s: float | None) -> NodePlace:
        """Where that node is.

        Raises:
            DataLostError: it is lost.
        """
        return self.nodes.place(ordinal, until_s=until_s)

    def last_place(self, ordinal: int, until_s: float | None) -> NodePlace:
        """`place_of` as it was when that node was last looked for: who does not find it there asks `place_now`."""
        return self.nodes.last_place(ordinal, until_s=until_s)

    def place_now(self, ordinal: int) -> NodePlace:
        """`place_of`, within the time of a call without a deadline."""
        return self.place_of(ordinal, self.until(None))

    def others(self, until_s: float | None = None) -> list[int]:
        """Ordinals of the other nodes that are not lost, ascending."""
        return [ordinal for ordinal in self.alive(until_s) if ordinal != self.ordinal]

    def close(self) -> None:
        """Closes the connections; what is called after that makes new ones."""
        self.nodes.close()

    def _name_of(self, ordinal: int) -> str:
        try:
            return self._here() if ordinal == self.ordinal else str(self.last_place(ordinal, time.monotonic()))
        except TransferQueueError:
            return f"node {ordinal}"  # lost since

    def _look_by(self, look: Look, place: NodePlace, args: Mapping[str, Any], until_s: float, describe: bool) -> bytes:
        asked = args if describe or DESCRIBE not in args else {**args, DESCRIBE: False}
        return look(place, LOCATE, asked, until_s)

    def _learn(self, partition: str, home: int) -> None:
        if len(self._homes) >= _MOST_HOMES:
            self._homes.clear()
        self._homes[partition] = home
