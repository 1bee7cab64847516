"""Connections for payload: who is let in, and what garbage does."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from tests.support.sessions import wait_for
from tests.unit.transferqueue.nodes.serving import HOST, TOKEN, serving
from tests.unit.transferqueue.nodes.transport.plain_tcp import PLACE, sockets
from tests.unit.transferqueue.nodes.transport.pulls import room_for
from transferqueue._native import Store
from transferqueue.errors import NodeAccessError
from transferqueue.nodes.connection import TIMED_OUT, AttemptError
from transferqueue.nodes.transport.channel import MAGIC, MAX_DATA_NBYTES, Channel
from transferqueue.nodes.transport.payload_server import PayloadServer, request_to_stream
from transferqueue.nodes.transport.payload_streams import PayloadStreams, ticket_of
from transferqueue.nodes.transport.protocol import PayloadRequest
from transferqueue.nodes.transport.sockets import PayloadPort

pytestmark = pytest.mark.timeout(60)
ROWS = 4
ROW_NBYTES = 1 << 16


def test_without_the_token_nothing_comes(store: Store, what: PayloadRequest, server: PayloadServer) -> None:
    with sockets(server, token="another") as transport:
        with pytest.raises(NodeAccessError, match="node 3"):
            transport.describe(PLACE, what)
        with pytest.raises(NodeAccessError):
            transport.pull(PLACE, what, room_for(store, what))


def test_a_server_without_the_token_is_not_believed(store: Store, what: PayloadRequest) -> None:
    false = PayloadServer(HOST, [0], token="guessed", streams=PayloadStreams(store))
    original = Channel.admit

    def admit(self: Channel, token: str, instance: bytes) -> bool:
        """Takes everybody, as an impostor would."""
        self._send_plain(struct.pack("4s32s", MAGIC, bytes(32)))
        self.receive_into([bytearray(4 + 16 + 32 + 32)])
        self._send_plain(struct.pack("B32s", 1, bytes(32)))
        return True

    Channel.admit = admit  # type: ignore[method-assign]
    try:
        with sockets(false) as transport, pytest.raises(NodeAccessError):
            transport.describe(PLACE, what)
    finally:
        Channel.admit = original  # type: ignore[method-assign]
        false.close()


def test_another_server_at_the_port_is_not_asked(store: Store, what: PayloadRequest, server: PayloadServer) -> None:
    """A node's agent went, and that of another node of the cluster was given its port."""
    answers = [PayloadPort(server.port, bytes(16)), PayloadPort(server.port, server.instance)]
    with sockets(lambda _: answers.pop(0)) as transport:
        assert transport.describe(PLACE, what).nbytes == ROWS * ROW_NBYTES
        assert not answers


def proven(server: PayloadServer) -> Channel:
    channel = Channel(socket.create_connection((HOST, server.port), 5.0), 5.0)
    channel.prove(TOKEN, server.instance)
    return channel


def read_all(sock: socket.socket) -> bytes:
    return b"".join(iter(lambda: sock.recv(4096), b""))


def test_garbage_is_answered_by_nothing_or_an_error(store: Store, what: PayloadRequest, server: PayloadServer) -> None:
    """Before the proof: closed on. Behind it: an error, or closed on. The server goes on in any case."""
    source = random.Random(8)
    good = request_to_stream(ticket_of(what, 0, 1, 1 << 20))
    for number in range(60):
        with socket.create_connection((HOST, server.port), 5.0) as raw:
            raw.settimeout(5.0)
            with contextlib.suppress(OSError):  # it may be closed on amid this
                raw.sendall(source.randbytes(source.choice((1, 84, 300))))
                raw.shutdown(socket.SHUT_WR)
                assert len(read_all(raw)) <= 36 + 33  # its challenge, its refusal
        channel = proven(server)
        damaged = bytearray(good)
        for _ in range(source.randint(1, 4)):
            damaged[source.randrange(len(damaged))] = source.randrange(256)
        try:
            if number % 3 == 0:
                channel._send_plain(struct.pack("<IQ", source.choice((1 << 31, 5)), source.choice((0, 1 << 62))))
            channel.send(bytes(damaged) if number % 2 else source.randbytes(source.randint(1, 200)))
            channel._sock.shutdown(socket.SHUT_WR)
            while True:
                _, nbytes = channel.receive()
                channel.receive_bytes(nbytes)
        except (AttemptError, OSError):
            channel.close()
    with sockets(server) as transport:
        assert transport.describe(PLACE, what).nbytes == ROWS * ROW_NBYTES


def test_who_shows_nothing_is_closed_on(server: PayloadServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transferqueue.nodes.transport.payload_server._PROOF_S", 0.2)
    monkeypatch.setattr("transferqueue.nodes.transport.payload_server._MOST_UNPROVEN", 3)
    idle = [socket.create_connection((HOST, server.port), 5.0) for _ in range(5)]
    for each in idle:
        each.settimeout(5.0)
        assert len(read_all(each)) in (0, 36)
        each.close()
    wait_for(lambda: not server._channels and not server._unproven, 5.0, "the end of the connections")
    proven(server).close()


def test_who_shows_it_a_byte_at_a_time_is_closed_on(server: PayloadServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transferqueue.nodes.transport.payload_server._PROOF_S", 0.3)
    shown = 0
    with socket.create_connection((HOST, server.port), 5.0) as slow:
        slow.settimeout(0.05)
        with contextlib.suppress(ConnectionError):
            while shown < 84:
                with contextlib.suppress(TimeoutError):
                    if not slow.recv(4096):
                        break
                shown += slow.send(MAGIC[shown : shown + 1] or b"x")
    assert 0 < shown < 84
    wait_for(lambda: not server._channels and not server._unproven, 5.0, "the end of the connection")


@pytest.mark.parametrize("takes", [True, False])
def test_a_deadline_holds_where_bytes_go_slowly(takes: bool) -> None:
    """The kernel's limit is of one call: each that brought a little would have had the whole time again."""
    over = threading.Event()

    def go_slowly() -> None:
        with contextlib.suppress(OSError):
            while not over.wait(0.02):
                if takes:
                    far.send(b"x")
                else:
                    far.recv(20_000)

    with socket.create_server((HOST, 0)) as listener:
        far = socket.create_connection(listener.getsockname(), 5.0)
        near, _ = listener.accept()
    thread = threading.Thread(target=go_slowly)
    with far:
        channel = Channel(near, 30.0)
        channel.limit(time.monotonic() + 0.5)
        thread.start()
        try:
            act: Callable[[], object] = partial(channel.receive_bytes, 1 << 20)
            with pytest.raises(AttemptError) as raised:
                (act if takes else partial(channel.send, b"", bytes(64 << 20)))()
            assert raised.value.kind == TIMED_OUT
        finally:
            over.set()
            thread.join()
            channel.close()


def test_connections_that_rest_are_closed_and_made_again(
    store: Store, what: PayloadRequest, server: PayloadServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("transferqueue.nodes.transport.payload_server._IDLE_S", 0.1)
    with sockets(server) as transport:
        transport.pull(PLACE, what, room_for(store, what))
        wait_for(lambda: not server._channels, 5.0, "the end of the connection that rests")
        assert transport.pull(PLACE, what, room_for(store, what)).streams == 2, "the first was closed already"
        monkeypatch.setattr("transferqueue.nodes.transport.sockets._RESTS_S", 0.0)
        assert transport.pull(PLACE, what, room_for(store, what)).streams == 1


def test_where_no_more_connections_are_taken_flight_serves(
    store: Store, what: PayloadRequest, server: PayloadServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("transferqueue.nodes.transport.payload_server._MOST", 0)
    with serving(streams=PayloadStreams(store)) as agent, sockets(server) as transport:
        place = replace(PLACE, port=agent.port)
        assert transport.pull(place, what, room_for(store, what)).nbytes == ROWS * ROW_NBYTES


def test_a_frame_without_end_is_none() -> None:
    with socket.create_server((HOST, 0)) as listener:
        far = socket.create_connection(listener.getsockname(), 5.0)
        near, _ = listener.accept()
    with near, far:
        far.sendall(struct.pack("<IQ", 4, MAX_DATA_NBYTES + 1))
        with pytest.raises(AttemptError, match="is none"):
            Channel(near, 5.0).receive()
