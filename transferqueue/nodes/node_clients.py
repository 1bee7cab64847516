"""Calls of other nodes by their ordinals, wherever they are now."""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from transferqueue.errors import DataLostError
from transferqueue.nodes.place import NodePlace
from transferqueue.nodes.rpc_client import RpcClient
from transferqueue.nodes.tls import TlsFiles


class Directory(Protocol):
    """What is asked of it here; see `DirectoryClient`."""

    def place_of(
        self, ordinal: int, *, until_s: float | None = None, fresh: bool = False, known_will_do: bool = False
    ) -> NodePlace | None: ...

    def knows_lost(self, ordinal: int) -> bool: ...


class NodeClients:
    """One `RpcClient` a node, found in the directory, found again when the node moved. Thread-safe, survives forks.

    Args:
        directory: where nodes are.
        token, tls: of the cluster.
    """

    def __init__(self, directory: Directory, *, token: str, tls: TlsFiles | None = None) -> None:
        self.directory = directory
        self._token = token
        self._tls = tls
        self._guard = threading.Lock()
        self._clients: dict[int, tuple[NodePlace, RpcClient]] = {}
        self._pid = os.getpid()

    def place(self, ordinal: int, *, until_s: float | None = None) -> NodePlace:
        """Where the node is now.

        Raises:
            DataLostError: it is lost, or there is no node of that ordinal; named. NodeUnreachableError: nor does the
            directory answer.
        """
        place = self.directory.place_of(ordinal, until_s=until_s)
        if place is None:  # it may have joined a moment ago
            place = self.directory.place_of(ordinal, until_s=until_s, fresh=True)
        if place is None or not place.alive:
            raise lost(ordinal, place)
        return place

    def last_place(self, ordinal: int, *, until_s: float | None = None) -> NodePlace:
        """`place` as it was when the node was last looked for, unless it is known to be lost. Raises as `place`."""
        self.of(ordinal, until_s=until_s)
        with self._guard:
            known = self._clients.get(ordinal)
        return self.place(ordinal, until_s=until_s) if known is None else known[0]

    def of(self, ordinal: int, *, until_s: float | None = None) -> RpcClient:
        """The client of that node. Raises as `place`."""
        self._look_for_fork()
        with self._guard:
            known = self._clients.get(ordinal)
        if known is not None and not self.directory.knows_lost(ordinal):
            return known[1]
        place = self.place(ordinal, until_s=until_s)
        with self._guard:
            known = self._clients.get(ordinal)
            if known is None or known[0].endpoint != place.endpoint:
                client = RpcClient(place.host, place.port, token=self._token, tls=self._tls, node=str(place))
                known = self._clients[ordinal] = place, client
            return known[1]

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
        """`RpcClient.call` on that node. A node that does not answer is looked for in the directory: when it is served
        elsewhere now the call goes on there, with the same request id.

        Raises:
            as `RpcClient.call`. DataLostError: the node is lost; named.
        """
        request_id = request_id or uuid.uuid4().bytes
        while True:
            client = self.of(ordinal, until_s=until_s)
            try:
                return client.call(
                    method,
                    args,
                    until_s=until_s,
                    request_id=request_id,
                    attempt_s=attempt_s,
                    between=self._look_again(ordinal, client),
                )
            except _MovedError:
                continue

    def forget(self, ordinal: int) -> None:
        """What is known of the node; the next call asks the directory."""
        with self._guard:
            self._clients.pop(ordinal, None)

    def close(self) -> None:
        """Closes all connections; the directory's is its owner's."""
        with self._guard:
            clients, self._clients = list(self._clients.values()), {}
        for _, client in clients:
            client.close()

    def _look_again(self, ordinal: int, client: RpcClient) -> Callable[[], None]:
        def look() -> None:
            # The directory may be as far away as the node is: its answer is no condition of trying again.
            place = self.directory.place_of(ordinal, until_s=time.monotonic() + 0.5, fresh=True, known_will_do=True)
            if place is not None and not place.alive:
                raise lost(ordinal, place)
            if place is not None and place.endpoint != client.endpoint[:2]:
                self.forget(ordinal)
                raise _MovedError

        return look

    def _look_for_fork(self) -> None:
        if self._pid != os.getpid():
            self._guard, self._pid = threading.Lock(), os.getpid()


class _MovedError(Exception):
    pass


def lost(ordinal: int, place: NodePlace | None, what: str = "") -> DataLostError:
    """The error for a node that is lost, or unknown. `what`: what is lost with it."""
    if place is None:
        return DataLostError(f"there is no node {ordinal} in this cluster{what}", node=str(ordinal))
    return DataLostError(f"{place} is lost{what}: its agent was not heard of for too long", node=str(ordinal))
