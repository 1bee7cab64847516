"""Pulls over plain TCP when something is wrong with the network, the source, the receiver, or the token."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.support.sessions import wait_for
from tests.unit.native.native_session import ROOT, NativeSession, exit_status, fork, put
from tests.unit.transferqueue.nodes.serving import HOST, TOKEN, Proxy, serving
from tests.unit.transferqueue.nodes.transport.plain_tcp import PLACE, server_of, sockets
from tests.unit.transferqueue.nodes.transport.pulls import check, room_for, soon
from tests.unit.transferqueue.nodes.transport.transports import Room, expected
from transferqueue._native import Store
from transferqueue.errors import CorruptSegmentError, DataLostError, NodeUnreachableError
from transferqueue.nodes.errors import GoneError
from transferqueue.nodes.link import LOCATE, NodeLink
from transferqueue.nodes.place import NodePlace
from transferqueue.nodes.rpc_server import Call
from transferqueue.nodes.transport import payload_streams
from transferqueue.nodes.transport.flight import FlightTransport
from transferqueue.nodes.transport.payload_server import PayloadServer
from transferqueue.nodes.transport.payload_streams import PayloadStreams
from transferqueue.nodes.transport.protocol import PayloadRequest
from transferqueue.nodes.transport.sockets import PayloadPort, SocketTransport

pytestmark = pytest.mark.timeout(90)
ROWS = 24
ROW_NBYTES = 1 << 20


def test_several_streams_share_the_work(store: Store, what: PayloadRequest, server: PayloadServer) -> None:
    with sockets(server, streams=3) as transport:
        room = room_for(store, what)
        report = transport.pull(PLACE, what, room)
        assert (report.nbytes, report.streams) == (ROWS * ROW_NBYTES, 3)
        assert len(room.threads) == 3
        assert threading.get_ident() in room.threads
        check(room, store, what)
        transport.pull(PLACE, what, room_for(store, what))
        assert len(server._channels) == 3, "connections are used again"


def test_what_lies_in_mappings_comes_together(store: Store, what: PayloadRequest, server: PayloadServer) -> None:
    values = np.random.default_rng(2).integers(0, 256, (4, 1 << 20), dtype=np.uint8)
    small = np.arange(4 * 100, dtype=np.int32).reshape(4, 100)
    rows = put(store, "together", {"a": values, "b": values[::-1].copy(), "few": small}).indexes
    request = PayloadRequest("together", rows, ("a", "few", "b"))
    with sockets(server, streams=1, chunk_nbytes=1 << 20) as transport:
        room = room_for(store, request)
        report = transport.pull(PLACE, request, room)
        assert (report.nbytes, report.messages) == (2 * values.nbytes + small.nbytes, 2)  # with what is gathered
        check(room, store, request)
        room = room_for(store, what)
        assert transport.pull(PLACE, what, room).messages == 1
        check(room, store, what)


def test_more_than_a_message_holds_comes_in_several(
    store: Store, what: PayloadRequest, server: PayloadServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(payload_streams, "_MOST_TOGETHER", 5)
    with sockets(server, streams=1, chunk_nbytes=1 << 20) as transport:
        room = room_for(store, what)
        assert transport.pull(PLACE, what, room).messages == -(-ROWS // 5)
        check(room, store, what)
    monkeypatch.setattr(payload_streams, "_TOGETHER_NBYTES", 2 << 20)
    with sockets(server, streams=1, chunk_nbytes=1 << 20) as transport:
        assert transport.pull(PLACE, what, room_for(store, what)).messages == ROWS // 2


def test_a_cut_network_delays_a_pull(store: Store, what: PayloadRequest, server: PayloadServer) -> None:
    with Proxy(server.port) as proxy, sockets(server, proxy.port) as transport:
        room = room_for(store, what)
        room.fourth_write = proxy.cut
        threading.Timer(0.8, proxy.mend).start()
        began_s = time.monotonic()
        transport.pull(PLACE, what, room, until_s=soon(60))
        assert time.monotonic() - began_s > 0.6
        check(room, store, what)


def test_a_stream_that_stalls_is_begun_again_on_another_connection(
    store: Store, what: PayloadRequest, server: PayloadServer
) -> None:
    with Proxy(server.port) as dead:
        ports = [dead.port]

        def port_of(_: NodePlace) -> PayloadPort:
            return PayloadPort(ports.pop() if ports else server.port, server.instance)

        with sockets(port_of, stall_s=0.4) as transport:
            room = room_for(store, what)
            room.fourth_write = dead.cut
            report = transport.pull(PLACE, what, room, until_s=soon(60))
            assert report.streams > 2
            check(room, store, what)


def test_broken_connections_are_made_again(store: Store, what: PayloadRequest, server: PayloadServer) -> None:
    with Proxy(server.port) as proxy, sockets(server, proxy.port) as transport:
        room = room_for(store, what)
        room.fourth_write = proxy.reset
        report = transport.pull(PLACE, what, room, until_s=soon(60))
        assert report.streams > 2
        check(room, store, what)
        proxy.reset()  # those that rest
        transport.pull(PLACE, what, room, until_s=soon(60))


SOURCE = """
import sys
from tests.unit.native.native_session import NativeSession
from tests.unit.transferqueue.nodes.transport.plain_tcp import server_of
from transferqueue.nodes.transport.payload_streams import PayloadStreams
with server_of(PayloadStreams(NativeSession(sys.argv[1]).attach())) as server:
    print(server.port, server.instance.hex(), flush=True)
    sys.stdin.readline()
"""


def program(code: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_a_source_that_dies_amid_a_stream(session: NativeSession, store: Store, what: PayloadRequest) -> None:
    asked = []

    def where(ordinal: int) -> NodePlace:
        asked.append(ordinal)
        if len(asked) > 2:
            raise DataLostError("node 3 is lost", node="3")
        return PLACE

    with program(SOURCE, session.name) as source:
        assert source.stdout is not None
        port, instance = source.stdout.readline().split()
        known = PayloadPort(int(port), bytes.fromhex(instance))
        with sockets(lambda _: known, where=where) as transport:
            room = room_for(store, what)
            room.fourth_write = source.kill
            with pytest.raises(DataLostError, match="node 3 is lost"):
                transport.pull(PLACE, what, room, until_s=soon(60))
            quiet = {name: data.copy() for name, data in room.fields.items()}
        with sockets(lambda _: known) as transport, pytest.raises(NodeUnreachableError, match="node 3") as caught:
            transport.pull(PLACE, what, room, until_s=soon(0.1))
        assert "machine-3" in str(caught.value.node)
        assert all(np.array_equal(room.fields[name], data) for name, data in quiet.items()), "written after the end"


RECEIVER = """
import sys
from tests.unit.transferqueue.nodes.transport.plain_tcp import PLACE, sockets
from tests.unit.transferqueue.nodes.transport.transports import Room
from transferqueue.nodes.transport.sockets import PayloadPort
from transferqueue.nodes.transport.payload_streams import PayloadRequest
import numpy as np
known = PayloadPort(int(sys.argv[1]), bytes.fromhex(sys.argv[2]))
what = PayloadRequest("p", np.arange(int(sys.argv[3]), int(sys.argv[4])), ("a",))
with sockets(lambda _: known) as transport:
    room = Room(transport.describe(PLACE, what))
    def told():
        print("amid", flush=True)
        sys.stdin.readline()
    room.fourth_write = told
    transport.pull(PLACE, what, room)
"""


def leased(store: Store) -> list[Any]:
    return [lease for lease in store.leases() if lease["owner"] == store.owner]


def test_the_lease_of_a_receiver_that_is_killed_ends(store: Store, what: PayloadRequest, server: PayloadServer) -> None:
    first = int(what.rows[0])
    with program(RECEIVER, str(server.port), server.instance.hex(), str(first), str(first + ROWS)) as receiver:
        assert receiver.stdout is not None
        assert receiver.stdout.readline() == "amid\n"
        assert leased(store), "the rows are leased while they are sent"
        receiver.kill()
    wait_for(lambda: not server._channels and not leased(store), 10.0, "the end of its streams")


def test_a_deadline_ends_a_pull_and_nothing_is_written_afterwards(
    store: Store, what: PayloadRequest, server: PayloadServer
) -> None:
    with Proxy(server.port) as proxy, sockets(server, proxy.port) as transport:
        room = room_for(store, what)
        room.fourth_write = proxy.cut
        began_s = time.monotonic()
        with pytest.raises(NodeUnreachableError):
            transport.pull(PLACE, what, room, until_s=soon(0.6))
        assert time.monotonic() - began_s > 0.5
        before = room.fields["a"].copy()
        proxy.mend()
        time.sleep(0.2)
        assert np.array_equal(room.fields["a"], before)


def test_an_error_of_the_destination_ends_the_pull(store: Store, what: PayloadRequest, server: PayloadServer) -> None:
    with sockets(server) as transport:
        room = room_for(store, what)
        room.windows = lambda *_: (_ for _ in ()).throw(MemoryError("no room"))  # type: ignore[method-assign]
        with pytest.raises(MemoryError, match="no room"):
            transport.pull(PLACE, what, room)


def test_what_is_gone_is_said(what: PayloadRequest, server: PayloadServer) -> None:
    gone = PayloadRequest("p", np.concatenate([what.rows, np.array([what.rows[-1] + 1000])]), ("a",))
    with sockets(server) as transport:
        with pytest.raises(GoneError) as caught:
            transport.describe(PLACE, gone)
        assert caught.value.rows == (int(gone.rows[-1]),)
        assert transport.describe(PLACE, what).nbytes == ROWS * ROW_NBYTES


def test_a_pull_can_be_interrupted(store: Store, what: PayloadRequest, server: PayloadServer) -> None:
    with Proxy(server.port) as proxy, sockets(server, proxy.port) as transport:
        room = room_for(store, what)
        room.fourth_write = proxy.cut
        threading.Timer(0.4, os.kill, (os.getpid(), signal.SIGINT)).start()
        began_s = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            transport.pull(PLACE, what, room, until_s=soon(60))
        assert time.monotonic() - began_s < 10


def test_where_there_is_no_port_flight_serves(store: Store, what: PayloadRequest) -> None:
    with serving(streams=PayloadStreams(store)) as agent:
        place = NodePlace(3, HOST, agent.port, "C.n3", "machine-3")
        closed = socket.create_server((HOST, 0))
        unreachable = PayloadPort(closed.getsockname()[1], bytes(16))
        closed.close()
        for port_of in (None, lambda _: PayloadPort(0, b""), lambda _: unreachable):
            flight = FlightTransport(token=TOKEN)
            transport = SocketTransport(flight, token=TOKEN, streams=2, chunk_nbytes=1 << 20, port_of=port_of)
            room = Room(transport.describe(place, what))
            transport.pull(place, what, room)
            check(room, store, what)
            transport.close()


def test_ports_are_tried_in_order(store: Store) -> None:
    streams = PayloadStreams(store)
    with server_of(streams) as first:
        with server_of(streams, (first.port, 0)) as second:
            assert second.port != first.port
        with pytest.raises(OSError, match="no port for payload"):
            PayloadServer(HOST, [first.port], token=TOKEN, streams=streams)
        with pytest.raises(OSError, match="none is allowed"):
            PayloadServer(HOST, [], token=TOKEN, streams=streams)
        with pytest.raises(ValueError, match="token"):
            PayloadServer(HOST, [0], token="", streams=streams)


class Lying:
    """A source whose streams are what the test says."""

    def __init__(self, *messages: tuple[Any, Any]) -> None:
        self._messages = messages

    def handlers(self) -> dict[str, Any]:
        return {"payload.describe": lambda call: [["a", [[1, b"", 8]], 5, "no array"]]}

    def open(self, ticket: bytes, *, together: bool = False) -> Iterator[tuple[Any, Any]]:
        yield from self._messages


@pytest.mark.parametrize(
    "messages",
    [
        [([ROWS * ROW_NBYTES + 1, 5], None)],
        [("no announcement", None)],
        [([ROWS * ROW_NBYTES, 8], None), ([[0, ROWS * ROW_NBYTES - 4, 8]], b"12345678")],
        [([ROWS * ROW_NBYTES, 8], None), ([[0, -4, 8]], b"12345678")],
        [([ROWS * ROW_NBYTES, 8], None), ([[7, 0, 8]], b"12345678")],
        [([ROWS * ROW_NBYTES, 8], None), ([[-1, 0, 8]], b"12345678")],
        [([ROWS * ROW_NBYTES, 8], None), ([[0, 0, 9]], b"12345678")],
        [([ROWS * ROW_NBYTES, 8], None), ([[0, 0, 7]], b"12345678")],
        [([ROWS * ROW_NBYTES, 8], None), (["x"], b"12345678")],
        [([ROWS * ROW_NBYTES, 8], None), (None, b"12345678")],
    ],
)
def test_a_source_that_contradicts_itself_is_refused(store: Store, what: PayloadRequest, messages: Any) -> None:
    with server_of(Lying(*messages)) as server, sockets(server) as transport:
        with pytest.raises(CorruptSegmentError):
            transport.pull(PLACE, what, room_for(store, what), until_s=soon(10))
        with pytest.raises(CorruptSegmentError):
            transport.describe(PLACE, what)


def test_a_forked_child_pulls(store: Store, what: PayloadRequest, server: PayloadServer) -> None:
    with sockets(server) as transport:
        some = PayloadRequest("p", what.rows[:3], ("a",))
        right = expected(store, some)["a"]
        transport.pull(PLACE, some, room_for(store, some))

        def child() -> None:
            room = Room(transport.describe(PLACE, some, until_s=soon(30)))
            transport.pull(PLACE, some, room, until_s=soon(30))
            assert np.array_equal(room.fields["a"], right)

        assert exit_status(fork(child)) == 0
        room = room_for(store, some)
        transport.pull(PLACE, some, room)
        check(room, store, some)


def test_a_look_goes_over_the_rows_connection_and_else_as_any_call(store: Store) -> None:
    def look(call: Call) -> Any:
        if call.args["timeout"] is None:
            raise GoneError("no such row", rows=(7,))
        return ["seen", call.args["timeout"], round(call.left_s or 0.0)]

    streams, calls = PayloadStreams(store), []

    class Others:
        """As `NodeClients`, of one node."""

        def call(self, ordinal: int, method: str, args: Any, **_: Any) -> Any:
            calls.append(method)
            return "over Flight"

        def last_place(self, ordinal: int, *, until_s: float | None = None) -> NodePlace:
            return PLACE

    with serving({LOCATE: look}, streams=streams) as agent:
        served = PayloadServer(HOST, [0], token=TOKEN, streams=streams, answer=agent.answer)
        with sockets(served) as transport:
            link = NodeLink(0, "C", Others(), Others())  # type: ignore[arg-type]
            link.look = transport.ask
            assert link.call(3, LOCATE, {"timeout": 1.5}, until_s=soon(20)) == ["seen", 1.5, 20]
            with pytest.raises(GoneError) as caught:
                link.call(3, LOCATE, {"timeout": None}, until_s=None)
            assert caught.value.rows == (7,)
            assert link.call(3, "home.call", {}, until_s=None) == "over Flight"
            assert calls == ["home.call"]
            served.close()
            assert link.call(3, LOCATE, {"timeout": 1.5}, until_s=soon(20)) == "over Flight"
        with sockets(lambda _: PayloadPort(0, b"")) as transport:
            link.look = transport.ask
            assert link.call(3, LOCATE, {}, until_s=None) == "over Flight"
