"""Pulls over Flight when something is wrong with the network, the source, or the token."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from tests.support.certificates import authority
from tests.unit.native.native_session import ROOT, NativeSession, exit_status, fork
from tests.unit.transferqueue.nodes.serving import HOST, TOKEN, Proxy, client_of, serving
from tests.unit.transferqueue.nodes.transport.pulls import check, room_for, soon
from tests.unit.transferqueue.nodes.transport.transports import Room, expected
from transferqueue._native import Store
from transferqueue.errors import CorruptSegmentError, DataLostError, NodeAccessError, NodeUnreachableError
from transferqueue.nodes.place import NodePlace
from transferqueue.nodes.tls import TlsFiles
from transferqueue.nodes.transport.flight import FlightTransport
from transferqueue.nodes.transport.payload_streams import PayloadStreams, ticket_of
from transferqueue.nodes.transport.protocol import FieldDescription, PayloadDescription, PayloadRequest

pytestmark = pytest.mark.timeout(90)
ROWS = 32
ROW_NBYTES = 1 << 20
PLAIN = pytest.param(False, id="plain")
either = pytest.mark.parametrize("tls", [PLAIN, pytest.param(True, id="tls")], indirect=True)
either_in_soak = pytest.mark.parametrize(
    "tls", [PLAIN, pytest.param(True, id="tls", marks=pytest.mark.soak)], indirect=True
)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles | None:
    if shutil.which("openssl") is None:
        return None
    return authority(tmp_path_factory.mktemp("certificates"), "ours")


@pytest.fixture
def tls(request: pytest.FixtureRequest, certificates: TlsFiles | None) -> TlsFiles | None:
    if request.param and certificates is None:
        pytest.skip("certificates are made with openssl")
    return certificates if request.param else None


def at(port: int) -> NodePlace:
    return NodePlace(3, HOST, port, "C.n3", "machine-3")


@contextmanager
def flight(**options: Any) -> Iterator[FlightTransport]:
    transport = FlightTransport(**{"token": TOKEN, **options})
    try:
        yield transport
    finally:
        transport.close()


@either
def test_several_streams_share_the_work(store: Store, what: PayloadRequest, tls: TlsFiles | None) -> None:
    with serving(streams=PayloadStreams(store), tls=tls) as server, flight(streams=3, tls=tls) as transport:
        room = room_for(store, what)
        report = transport.pull(at(server.port), what, room)
        assert (report.nbytes, report.streams) == (ROWS * ROW_NBYTES, 3)
        assert len(room.threads) == 3
        assert report.messages >= 32
        check(room, store, what)


@contextmanager
def proxied(store: Store, tls: TlsFiles | None, **options: Any) -> Iterator[tuple[FlightTransport, Proxy, NodePlace]]:
    """(transport, what is between it and the source, the source itself)."""
    with serving(streams=PayloadStreams(store), tls=tls) as server, Proxy(server.port) as proxy:
        with flight(tls=tls, **options) as transport:
            yield transport, proxy, at(server.port)


@either_in_soak
def test_a_cut_network_delays_a_pull(store: Store, what: PayloadRequest, tls: TlsFiles | None) -> None:
    with proxied(store, tls) as (transport, proxy, _):
        room = room_for(store, what)
        room.fourth_write = proxy.cut
        threading.Timer(0.8, proxy.mend).start()
        began_s = time.monotonic()
        transport.pull(at(proxy.port), what, room, until_s=soon(60))
        assert time.monotonic() - began_s > 0.6
        check(room, store, what)


@either
def test_a_stream_that_stalls_is_begun_again_on_another_connection(
    store: Store, what: PayloadRequest, tls: TlsFiles | None
) -> None:
    with proxied(store, tls, stall_s=0.5) as (transport, dead, source):
        places = [at(dead.port), source]
        transport._where = lambda ordinal: places[1]
        room = room_for(store, what)
        room.fourth_write = dead.cut
        report = transport.pull(places[0], what, room, until_s=soon(60))
        assert report.streams > 2
        check(room, store, what)


@either
def test_broken_connections_are_made_again(store: Store, what: PayloadRequest, tls: TlsFiles | None) -> None:
    with proxied(store, tls) as (transport, proxy, _):
        room = room_for(store, what)
        room.fourth_write = proxy.reset
        report = transport.pull(at(proxy.port), what, room, until_s=soon(60))
        assert report.streams > 2
        check(room, store, what)


SOURCE = """
import sys
from tests.unit.native.native_session import NativeSession
from tests.unit.transferqueue.nodes.serving import serving
from transferqueue.nodes.tls import TlsFiles
from transferqueue.nodes.transport.payload_streams import PayloadStreams
tls = TlsFiles(*sys.argv[2:]) if sys.argv[2:] else None
with serving(streams=PayloadStreams(NativeSession(sys.argv[1]).attach()), tls=tls) as server:
    print(server.port, flush=True)
    sys.stdin.readline()
"""


@either
def test_a_source_that_dies_amid_a_stream(
    session: NativeSession, store: Store, what: PayloadRequest, tls: TlsFiles | None
) -> None:
    source = subprocess.Popen(
        [sys.executable, "-c", SOURCE, session.name, *(() if tls is None else (tls.cert, tls.key, tls.ca))],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert source.stdout is not None
    port = int(source.stdout.readline())
    asked = []

    def where(ordinal: int) -> NodePlace:
        asked.append(ordinal)
        if len(asked) > 2:
            raise DataLostError("node 3 is lost", node="3")
        return at(port)

    with source, flight(where=where, tls=tls) as transport:
        room = room_for(store, what)
        room.fourth_write = source.kill
        with pytest.raises(DataLostError, match="node 3 is lost"):
            transport.pull(at(port), what, room, until_s=soon(60))
        quiet = {name: data.copy() for name, data in room.fields.items()}
        with pytest.raises(NodeUnreachableError, match="node 3") as caught:
            FlightTransport(token=TOKEN, tls=tls).pull(at(port), what, room, until_s=soon(0.5))
        assert "machine-3" in str(caught.value.node)
        time.sleep(0.1)
        assert all(np.array_equal(room.fields[name], data) for name, data in quiet.items()), "written after the end"


@either_in_soak
def test_a_deadline_ends_a_pull_and_nothing_is_written_afterwards(
    store: Store, what: PayloadRequest, tls: TlsFiles | None
) -> None:
    with proxied(store, tls) as (transport, proxy, _):
        room = room_for(store, what)
        room.fourth_write = proxy.cut
        with pytest.raises(NodeUnreachableError):
            transport.pull(at(proxy.port), what, room, until_s=soon(0.6))
        before = room.fields["a"].copy()
        proxy.mend()
        time.sleep(0.2)
        assert np.array_equal(room.fields["a"], before)


def test_an_error_of_the_destination_ends_the_pull(store: Store, what: PayloadRequest) -> None:
    with serving(streams=PayloadStreams(store)) as server, flight() as transport:
        room = room_for(store, what)
        room.write = lambda *_: (_ for _ in ()).throw(MemoryError("no room"))  # type: ignore[method-assign]
        with pytest.raises(MemoryError, match="no room"):
            transport.pull(at(server.port), what, room)


def test_a_pull_can_be_interrupted(store: Store, what: PayloadRequest) -> None:
    with serving(streams=PayloadStreams(store)) as server, Proxy(server.port) as proxy, flight() as transport:
        proxy.cut()
        began_s = time.monotonic()
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            transport.pull(at(proxy.port), what, room_for(store, what), until_s=soon(60))
        assert time.monotonic() - began_s < 10
        proxy.mend()
        with Proxy(server.port) as other:
            room = room_for(store, what)
            room.fourth_write = other.cut
            threading.Timer(0.7, os.kill, (os.getpid(), signal.SIGINT)).start()
            with pytest.raises(KeyboardInterrupt):
                transport.pull(at(other.port), what, room, until_s=soon(60))


def test_without_the_token_nothing_comes(store: Store, what: PayloadRequest) -> None:
    with serving(streams=PayloadStreams(store)) as server, flight(token="another") as transport:
        with pytest.raises(NodeAccessError):
            transport.describe(at(server.port), what)
        with pytest.raises(NodeAccessError, match="node 3"):
            transport.pull(at(server.port), what, room_for(store, what))


class Lying:
    """A source whose streams are what the test says."""

    def __init__(self, *messages: tuple[Any, Any]) -> None:
        self._messages = messages

    def handlers(self) -> dict[str, Any]:
        return {"payload.describe": lambda call: [["a", [[1, b"", 8]], 5, "no array"]]}

    def open(self, ticket: bytes, *, together: bool = False) -> Iterator[tuple[Any, Any]]:
        import pyarrow as pa

        for header, data in self._messages:
            yield header, None if data is None else pa.py_buffer(data)


@pytest.mark.parametrize(
    "messages",
    [
        [([ROWS * ROW_NBYTES + 1, 5], None)],
        [("no announcement", None)],
        [([ROWS * ROW_NBYTES, 8], None), ([[0, ROWS * ROW_NBYTES - 4, 8]], b"12345678")],
        [([ROWS * ROW_NBYTES, 8], None), ([[0, -4, 8]], b"12345678")],
        [([ROWS * ROW_NBYTES, 8], None), ([[7, 0, 8]], b"12345678")],
        [([ROWS * ROW_NBYTES, 8], None), ([[0, 0, 9]], b"12345678")],
        [([ROWS * ROW_NBYTES, 8], None), (["x"], b"12345678")],
    ],
)
def test_a_source_that_contradicts_itself_is_refused(store: Store, what: PayloadRequest, messages: Any) -> None:
    with serving(streams=Lying(*messages)) as server, flight() as transport:
        with pytest.raises(CorruptSegmentError):
            transport.pull(at(server.port), what, room_for(store, what), until_s=soon(10))
        with pytest.raises(CorruptSegmentError):
            transport.describe(at(server.port), what)


@pytest.mark.parametrize("answer", [None, [], [["x", b""]], [[[16, 8], b""]], [[[16, 16], b""], 5]])
def test_a_small_answer_that_contradicts_itself_is_refused(store: Store, what: PayloadRequest, answer: Any) -> None:
    streams = Lying()
    streams.handlers = lambda: {"payload.fetch": lambda call: answer}  # type: ignore[method-assign]
    sizes = np.full(2, 8)
    room = Room(PayloadDescription({"a": FieldDescription((), sizes, sizes)}))
    with serving(streams=streams) as server, flight() as transport, pytest.raises(CorruptSegmentError):
        transport.pull(at(server.port), PayloadRequest("p", what.rows[:2], ("a",)), room, until_s=soon(10))


def test_a_large_request_is_no_answer(store: Store, what: PayloadRequest) -> None:
    with serving(streams=PayloadStreams(store)) as server:
        with pytest.raises(ValueError, match="for a stream"):
            client_of(server).call("payload.fetch", {"request": what.to_parts()}, until_s=soon(20))


def test_hostile_tickets_are_answered_by_errors(store: Store, what: PayloadRequest) -> None:
    streams = PayloadStreams(store)
    good = ticket_of(what, 0, 2, 1 << 20)
    for ticket in (b"", b"\x01\xc1", good[:-5], ticket_of(what, 5, 2, 1), ticket_of(what, 0, 1 << 40, 1)):
        with pytest.raises((CorruptSegmentError, ValueError)):
            next(streams.open(ticket))
    with pytest.raises(ValueError, match="no request"):
        next(streams.open(ticket_of(PayloadRequest("p", what.rows, ("a",), what.rows[:3]), 0, 1, 1 << 20)))


def test_a_forked_child_pulls(store: Store, what: PayloadRequest) -> None:
    with serving(streams=PayloadStreams(store)) as server, flight() as transport:
        some = PayloadRequest("p", what.rows[:3], ("a",))
        right = expected(store, some)["a"]
        transport.pull(at(server.port), some, room_for(store, some))

        def child() -> None:
            described = transport.describe(at(server.port), some, until_s=soon(30))
            room = Room(described)
            transport.pull(at(server.port), some, room, until_s=soon(30))
            assert np.array_equal(room.fields["a"], right)

        assert exit_status(fork(child)) == 0
