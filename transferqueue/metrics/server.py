"""A small HTTP server for metrics: the request handling is the standard library's, the page `prometheus_client`'s.

Not `prometheus_client.start_http_server`, which looks the host's name up (seconds where DNS is slow), says on which
port it listens only in newer versions, and is stopped by polling.
"""

from __future__ import annotations

import contextlib
import socket
import socketserver
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, make_wsgi_app

from transferqueue.metrics.collector import SessionCollector

if TYPE_CHECKING:
    from transferqueue._native import Store
    from transferqueue.nodes.replica_figures import ReplicaFigures

_REST_S = 0.1
# Each has a thread of the process that trains: who opens more is hung up on.
_MAX_CONNECTIONS = 64
_WILDCARDS = ("0.0.0.0", "::", "")


class _Handler(WSGIRequestHandler):
    timeout = 10.0  # seconds that a silent connection keeps its thread

    def log_message(self, format: str, *args: Any) -> None:
        """A scrape every few seconds is no news."""


class _Server(socketserver.ThreadingMixIn, WSGIServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, family: socket.AddressFamily, address: Any) -> None:
        self.address_family = family
        self.slots = threading.BoundedSemaphore(_MAX_CONNECTIONS)
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        # Not WSGIServer's, which asks DNS for the host's name.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]  # type: ignore[assignment]
        self.setup_environ()

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Frees the connection's slot at the end."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.slots.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is no error of ours."""


class MetricsServer:
    """Bound when made; answers once `serve` runs.

    Attributes:
        address: ``host:port`` to scrape, ``[host]:port`` for IPv6.

    Raises:
        OSError: no such host, or the port is taken.
    """

    def __init__(
        self,
        store: Store,
        *,
        session: str,
        version: str,
        host: str,
        port: int,
        replicas: Callable[[], ReplicaFigures | None] = lambda: None,
    ) -> None:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = found[0]
        registry = CollectorRegistry(auto_describe=False)
        registry.register(SessionCollector(store, session=session, version=version, replicas=replicas))
        self._server = _Server(family, address)
        self._server.set_app(make_wsgi_app(registry))
        self._closed = False
        reached = _own_address(family) if host in _WILDCARDS else host
        self.address = f"[{reached}]:{self.port}" if ":" in reached else f"{reached}:{self.port}"

    @property
    def port(self) -> int:
        """The TCP port, also where any was asked for."""
        return self._server.server_port

    def serve(self) -> None:
        """Answers until `close`. Asleep in accept in between."""
        while not self._closed:
            try:
                request, client = self._server.get_request()
            except OSError:
                if not self._closed:
                    time.sleep(_REST_S)  # no descriptors left, or the client is gone
                continue
            if not self._server.slots.acquire(blocking=False):
                self._server.shutdown_request(request)
                continue
            try:
                self._server.process_request(request, client)
            except RuntimeError:  # no thread to be had
                self._server.slots.release()
                self._server.shutdown_request(request)
                time.sleep(_REST_S)

    def close(self) -> None:
        """Frees the port and ends `serve`. Idempotent."""
        self._closed = True
        with contextlib.suppress(OSError):
            self._server.socket.shutdown(socket.SHUT_RDWR)  # wakes who sleeps in accept, which close would not
        self._server.server_close()

    def close_inherited(self) -> None:
        """In a forked child: closes the descriptor and leaves the parent's port alone."""
        self._closed = True
        self._server.socket.close()


def _own_address(family: socket.AddressFamily) -> str:
    """Under which others reach this machine: of the interface by which packets to the world leave. None is sent."""
    v6 = family == socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(("2001:db8::1", 9) if v6 else ("192.0.2.1", 9))
            return str(probe.getsockname()[0])
    except OSError:
        return "::1" if v6 else "127.0.0.1"
