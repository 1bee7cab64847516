"""A cluster of several nodes in one process: each with a session of its own, asked by direct calls, without a network.

What is said goes through the real messages; payload is read from the store of the node that has it.
"""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from transferqueue.client.cluster_client import ClusterClient
from transferqueue.config import build_config
from transferqueue.errors import DataLostError, NodeUnreachableError
from transferqueue.node_service.home_service import HomeService
from transferqueue.nodes import messages
from transferqueue.nodes.link import NodeLink
from transferqueue.nodes.names import first_row
from transferqueue.nodes.node_sources import NodeSources
from transferqueue.nodes.place import NodePlace
from transferqueue.nodes.rpc_server import Call
from transferqueue.nodes.transport.flight import read_description
from transferqueue.nodes.transport.payload_streams import PayloadStreams, resolve
from transferqueue.nodes.transport.protocol import Destination, PayloadDescription, PayloadRequest, PullReport
from transferqueue.service import StorageService
from transferqueue.storage.creation import create_session
from transferqueue.storage.names import new_session_name

SIZE = "32MiB"


class Node:
    """One node: its session, its agent's calls, and a client as any process of it has one."""

    def __init__(self, cluster: OneProcess, ordinal: int, **overrides: Any) -> None:
        self.ordinal = ordinal
        self.config = build_config({"storage.size": SIZE, **overrides})
        attachment = create_session(f"{cluster.name}.n{ordinal}", self.config, first_row=first_row(ordinal))
        assert attachment is not None
        self.attachment = attachment
        self.store = attachment.store
        self.link = NodeLink(ordinal, cluster.name, Calls(cluster), cluster, call_s=2.0)
        self.service = StorageService(attachment.paths, attachment.store, self.config)
        self.client = self.new_client(cluster)
        self.start_agent()

    def start_agent(self) -> None:
        """What an agent knows is only what its store does."""
        self.home = HomeService(self.attachment, self.config, self.service, self.link, self.client._bring_here)
        self.handlers = self.home.handlers()

    def new_client(self, cluster: OneProcess) -> ClusterClient:
        """As another process of the node would make one."""
        link = NodeLink(self.ordinal, cluster.name, Calls(cluster), cluster, call_s=2.0)
        return ClusterClient(self.attachment, self.config, self.service, link, NodeSources(link, Direct(cluster)))

    def close(self) -> None:
        self.client.close()
        self.home.stop()
        self.service.stop()
        self.attachment.end()


class OneProcess:
    """The nodes, and what stands between them: `Nodes` and `Homes` of their links.

    Attributes:
        calls: (ordinal, method) of every call, in order.
        cut: pairs of ordinals that do not reach each other now are not told apart: nobody reaches these.
        all_homes: the node that becomes the home of every partition; None: the one that uses it first.
        unanswered: methods whose answer is lost with the agent, which is started again and asked again.
        pulled_nbytes: payload that went from node to node.
        spent: see `DirectoryState.spend`.
        before_pull: called before each pull, with its request.
    """

    def __init__(self, nodes: int, **overrides: Any) -> None:
        self.name = new_session_name()
        self.calls: list[tuple[int, str]] = []
        self.cut: set[int] = set()
        self.lost: set[int] = set()
        self.unanswered: set[str] = set()
        self.all_homes: int | None = None
        self.pulled_nbytes = 0
        self.spent = -1
        self.before_pull: Callable[[PayloadRequest], None] = lambda request: None
        self._homes: dict[str, int] = {}
        self._guard = threading.Lock()
        self.at: list[Node] = []
        for ordinal in range(nodes):
            self.at.append(Node(self, ordinal, **overrides))

    def call(
        self,
        ordinal: int,
        method: str,
        args: Mapping[str, Any],
        *,
        until_s: float | None,
        request_id: bytes | None = None,
        attempt_s: float = 5.0,
    ) -> Any:
        with self._guard:
            self.calls.append((ordinal, method))
        self.reach(ordinal, until_s)
        request_id = request_id or uuid.uuid4().bytes
        if method in self.unanswered:
            # The agent did it, died before it answered, and was started again.
            self._call_now(ordinal, method, args, until_s, request_id)
            self.at[ordinal].start_agent()
        return self._call_now(ordinal, method, args, until_s, request_id)

    def _call_now(
        self, ordinal: int, method: str, args: Mapping[str, Any], until_s: float | None, request_id: bytes
    ) -> Any:
        left_s = None if until_s is None else until_s - time.monotonic()
        sent = messages.decode(messages.encode(dict(args)))
        call = Call(method, sent, request_id, left_s, "a test")
        return messages.decode(messages.encode(self.at[ordinal].handlers[method](call)))

    def reach(self, ordinal: int, until_s: float | None) -> None:
        if ordinal in self.lost:
            raise DataLostError(f"node {ordinal} is lost", node=str(ordinal))
        while ordinal in self.cut:
            if until_s is not None and time.monotonic() >= until_s:
                raise NodeUnreachableError(f"node {ordinal} does not answer", node=str(ordinal))
            time.sleep(0.01)

    # What the directory knows. `place` is also how a node is found.

    def nodes(self, *, until_s: float | None = None, fresh: bool = False) -> list[NodePlace]:
        return [
            NodePlace(node.ordinal, "here", 0, "", str(node.ordinal), alive=node.ordinal not in self.lost)
            for node in self.at
        ]

    def home_of(self, partition: str, create_at: int | None, *, until_s: float | None = None) -> int | None:
        with self._guard:
            if partition not in self._homes and create_at is not None:
                self._homes[partition] = create_at if self.all_homes is None else self.all_homes
            return self._homes.get(partition)

    def place(self, partition: str, ordinal: int) -> int:
        with self._guard:
            return self._homes.setdefault(partition, ordinal)

    def is_lost(self, ordinal: int, *, until_s: float | None = None) -> bool:
        return ordinal in self.lost

    def homes(self) -> dict[str, int]:
        return dict(self._homes)

    def move(self, partition: str, ordinal: int) -> None:
        self._homes[partition] = ordinal

    def forget(self, partition: str, *, ordinal: int) -> None:
        if self._homes.get(partition) == ordinal:
            del self._homes[partition]

    def spend(self, ordinal: int) -> None:
        self.spent = max(self.spent, ordinal)

    def settle(self) -> None:
        """What the agents' threads do in time, at once."""
        for node in self.at:
            node.home.upkeep.release()
        for node in self.at:
            node.home.upkeep.sweep_copies()
        for node in self.at:
            node.store.reclaim()

    def close(self) -> None:
        for node in self.at:
            node.close()


class Calls:
    """The part of `NodeClients` that a link uses."""

    def __init__(self, cluster: OneProcess) -> None:
        self.call = cluster.call
        self._cluster = cluster

    def place(self, ordinal: int, *, until_s: float | None = None) -> NodePlace:
        self._cluster.reach(ordinal, until_s)
        return next(place for place in self._cluster.nodes() if place.ordinal == ordinal)

    last_place = place

    def close(self) -> None:
        pass


class Direct:
    """A `Transport` that reads payload straight from the store of the node that has it."""

    def __init__(self, cluster: OneProcess) -> None:
        self._cluster = cluster

    def describe(self, source: NodePlace, what: PayloadRequest, *, until_s: float | None = None) -> PayloadDescription:
        self._cluster.reach(source.ordinal, until_s)
        streams = PayloadStreams(self._cluster.at[source.ordinal].store)
        call = Call("payload.describe", {"request": what.to_parts()}, b"", None, "a test")
        return read_description(messages.decode(messages.encode(streams.handlers()["payload.describe"](call))), what)

    def pull(
        self, source: NodePlace, what: PayloadRequest, into: Destination, *, until_s: float | None = None
    ) -> PullReport:
        self._cluster.reach(source.ordinal, until_s)
        self._cluster.before_pull(what)
        resolved = resolve(self._cluster.at[source.ordinal].store, what)
        total = 0
        for number, name in enumerate(what.fields):
            pieces = resolved.pieces(number)
            data = np.empty(int(resolved.row_nbytes(number, pieces).sum()), dtype=np.uint8)
            if len(data):
                resolved.copy_rows(number, pieces, data.ctypes.data, len(data))
            half = len(data) // 2
            into.write(name, half, data[half:])
            into.write(name, 0, data[:half])
            total += len(data)
        resolved.release()
        assert total == into.nbytes
        self._cluster.pulled_nbytes += total
        return PullReport(total, 1, 1)

    def close(self) -> None:
        pass


@contextlib.contextmanager
def one_process(nodes: int = 3, **overrides: Any) -> Iterator[OneProcess]:
    """A cluster that is ended, and with it all its sessions."""
    cluster = OneProcess(nodes, **overrides)
    try:
        yield cluster
    finally:
        cluster.close()


def in_threads(calls: Sequence[Callable[[], Any]]) -> list[Any]:
    """What they return, made at once."""
    results: list[Any] = [None] * len(calls)
    errors: list[BaseException] = []

    def run(number: int) -> None:
        try:
            results[number] = calls[number]()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results
