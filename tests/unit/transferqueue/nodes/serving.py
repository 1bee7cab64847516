"""Servers, clients and a network between them that can be cut, for the tests of calls."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from transferqueue.nodes.rpc_client import RpcClient
from transferqueue.nodes.rpc_server import Handler, RpcServer, StreamSource

TOKEN = "of these tests"
HOST = "127.0.0.1"


@contextmanager
def serving(handlers: Mapping[str, Handler] | None = None, **options: Any) -> Iterator[RpcServer]:
    streams: StreamSource | None = options.pop("streams", None)
    port = options.pop("port", 0)
    server = RpcServer(HOST, port, token=TOKEN, handlers=handlers or {}, streams=streams, **options)
    try:
        yield server
    finally:
        server.shutdown()


def client_of(server: RpcServer | Proxy, **options: Any) -> RpcClient:
    return RpcClient(HOST, server.port, **{"token": TOKEN, **options})


class Proxy:
    """Passes bytes on to a server; can stop doing so without closing anything, as a cut network does."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._flowing = threading.Event()
        self._flowing.set()
        self._ended = False
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server((HOST, 0))
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()
        self.port: int = self._listener.getsockname()[1]
        self.passed_nbytes = 0

    def cut(self) -> None:
        self._flowing.clear()

    def mend(self) -> None:
        self._flowing.set()

    def reset(self) -> None:
        """Breaks all connections."""
        sockets, self._sockets = self._sockets, []
        for each in sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._ended = True
        self.mend()
        self._listener.close()
        self.reset()
        for thread in self._threads[1:]:
            thread.join(5.0)

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
                far = socket.create_connection((HOST, self._to))
            except OSError:
                if self._ended:
                    return
                near.close()  # nobody there
                continue
            self._sockets += [near, far]
            thread = threading.Thread(target=self._pass, args=(near, far), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _pass(self, near: socket.socket, far: socket.socket) -> None:
        other = {near: far, far: near}
        try:
            while not self._ended:
                for ready in select.select(other, [], [], 0.2)[0]:
                    data = ready.recv(1 << 16)
                    if not data:
                        return
                    self._flowing.wait()
                    self.passed_nbytes += len(data)
                    other[ready].sendall(data)
        except OSError:
            pass
        finally:
            near.close()
            far.close()
