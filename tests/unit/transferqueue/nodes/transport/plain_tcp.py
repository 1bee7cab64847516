"""Servers of payload over plain TCP, and transports to them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tests.unit.transferqueue.nodes.serving import HOST, TOKEN
from transferqueue.nodes.place import NodePlace
from transferqueue.nodes.transport.flight import FlightTransport
from transferqueue.nodes.transport.payload_server import PayloadServer
from transferqueue.nodes.transport.sockets import PayloadPort, SocketTransport


@contextmanager
def server_of(streams: Any, ports: tuple[int, ...] = (0,)) -> Iterator[PayloadServer]:
    served = PayloadServer(HOST, ports, token=TOKEN, streams=streams)
    try:
        yield served
    finally:
        served.close()
        assert not served._channels


PLACE = NodePlace(3, HOST, 1, "C.n3", "machine-3")


@contextmanager
def sockets(
    port_of: PayloadServer | Callable[[NodePlace], PayloadPort], port: int = 0, **options: Any
) -> Iterator[SocketTransport]:
    """To that server, at `port` where something is between."""
    if isinstance(port_of, PayloadServer):
        known = PayloadPort(port or port_of.port, port_of.instance)
        port_of = lambda _: known  # noqa: E731
    token = options.pop("token", TOKEN)
    flight = FlightTransport(token=token, where=options.pop("where", None))
    transport = SocketTransport(
        flight, **{"token": token, "streams": 2, "chunk_nbytes": 1 << 20, "port_of": port_of, **options}
    )
    try:
        yield transport
    finally:
        transport.close()
