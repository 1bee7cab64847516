"""Transports to hold to the contract, sources to pull from, and destinations to pull into."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.unit.transferqueue.nodes.serving import HOST, TOKEN, serving
from transferqueue import _native
from transferqueue._native import DENSE, RAGGED, FieldLayout, Store
from transferqueue.nodes.envelopes import answer_of_value, read_answer
from transferqueue.nodes.place import NodePlace
from transferqueue.nodes.rpc_server import Call
from transferqueue.nodes.transport.flight import FlightTransport
from transferqueue.nodes.transport.payload_server import PayloadServer
from transferqueue.nodes.transport.payload_streams import PayloadStreams, ticket_of
from transferqueue.nodes.transport.protocol import (
    Destination,
    PayloadDescription,
    PayloadRequest,
    PullReport,
    Transport,
)
from transferqueue.nodes.transport.received import read_description
from transferqueue.nodes.transport.sockets import SocketTransport

Bytes = npt.NDArray[np.uint8]


class InProcess:
    """A transport without a network, from the stores of this process: the least that keeps the contract."""

    def __init__(self, streams: Mapping[int, PayloadStreams], chunk_nbytes: int) -> None:
        self._streams = streams
        self._chunk_nbytes = chunk_nbytes

    def describe(self, source: NodePlace, what: PayloadRequest, *, until_s: float | None = None) -> PayloadDescription:
        handler = self._streams[source.ordinal].handlers()["payload.describe"]
        answer = handler(Call("payload.describe", {"request": what.to_parts()}, bytes(16), None, "test"))
        return read_description(read_answer(answer_of_value(answer))[1], what)

    def pull(
        self, source: NodePlace, what: PayloadRequest, into: Destination, *, until_s: float | None = None
    ) -> PullReport:
        written = messages = 0
        for part in range(3):
            stream = self._streams[source.ordinal].open(ticket_of(what, part, 3, self._chunk_nbytes))
            next(stream)
            for header, data in stream:
                at = 0
                for field, start, nbytes in header:
                    into.write(what.fields[field], start, memoryview(data)[at : at + nbytes])
                    at += nbytes
                written, messages = written + at, messages + 1
        return PullReport(written, messages, 3)

    def close(self) -> None:
        pass


@contextmanager
def transport_to(kind: str, stores: list[Store], *, chunk_nbytes: int = 64 << 10, **options: Any) -> Iterator[Any]:
    """(transport, places of the sources)."""
    streams = {number: PayloadStreams(store) for number, store in enumerate(stores)}
    if kind == "in_process":
        yield InProcess(streams, chunk_nbytes), [NodePlace(number, "", 0, "", str(number)) for number in streams]
        return
    if kind == "flight_streams":
        options.setdefault("fetch_below", 0)
    with ExitStack() as ends:
        transport: Transport
        transport = flight = FlightTransport(token=TOKEN, chunk_nbytes=chunk_nbytes, **options)
        if kind == "sockets":
            transport = SocketTransport(flight, token=TOKEN, streams=3, chunk_nbytes=chunk_nbytes)
        ends.callback(transport.close)
        places = []
        for number in streams:
            server = ends.enter_context(serving(streams=streams[number]))
            if kind == "sockets":
                payload = PayloadServer(HOST, [0], token=TOKEN, streams=streams[number])
                ends.callback(payload.close)
                server.add_handlers(payload.handlers())
            places.append(NodePlace(number, HOST, server.port, "", str(number)))
        yield transport, places


class Room:
    """A destination in private memory, for one request."""

    def __init__(self, described: PayloadDescription) -> None:
        self.fields: dict[str, Bytes] = {
            name: np.full(field.nbytes, 0xAA, np.uint8) for name, field in described.fields.items()
        }
        self.threads: set[int] = set()
        self.window_nbytes = 7919  # no field is in one place
        self.fourth_write: Callable[[], None] = lambda: None
        self._writes = itertools.count(1)

    @property
    def nbytes(self) -> int:
        return sum(len(field) for field in self.fields.values())

    def write(self, field: str, offset: int, data: Any) -> None:
        source = np.frombuffer(data, np.uint8)
        at = 0
        for window in self.windows(field, offset, len(source)):
            window[:] = source[at : at + len(window)]
            at += len(window)

    def windows(self, field: str, offset: int, nbytes: int) -> list[Bytes]:
        self.threads.add(threading.get_ident())
        if next(self._writes) == 4:
            self.fourth_write()
        target = self.fields[field][offset : offset + nbytes]
        if not 0 <= offset <= offset + nbytes <= len(self.fields[field]):
            raise ValueError(f"{field} ends before {offset + nbytes}")
        return [target[at : at + self.window_nbytes] for at in range(0, nbytes, self.window_nbytes)]


def expected(store: Store, what: PayloadRequest) -> dict[str, Bytes]:
    """The bytes of each field, as the native core gathers them."""
    resolved = store.resolve(what.partition, indexes=what.rows, fields=what.fields)
    found = {}
    for number, name in enumerate(what.fields):
        pieces = resolved.pieces(number)
        data = np.empty(int(resolved.row_nbytes(number, pieces).sum()), np.uint8)
        resolved.copy_rows(number, pieces, data.ctypes.data, len(data))
        found[name] = data
    resolved.release()
    return found


def put_rows(
    store: Store,
    partition: str,
    rows: int,
    seed: int,
    *,
    dense_nbytes: int = 16,
    longest: int = 400,
    schema: bytes = b"d",
    **publish: Any,
) -> npt.NDArray[np.int64]:
    """A block with a dense field `d` and a ragged field `r` of random bytes; the rows' indexes."""
    source = np.random.default_rng(seed)
    sizes = source.integers(0, longest + 1, rows)
    offsets = np.zeros(rows + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    dense = source.integers(0, 256, rows * dense_nbytes, dtype=np.uint8)
    ragged = source.integers(0, 256, int(offsets[-1]), dtype=np.uint8)
    ends = np.cumsum([-(-part.nbytes // 64) * 64 for part in (dense, ragged, offsets)]).tolist()
    fields = [
        FieldLayout("d", DENSE, 0, dense.nbytes, dense_nbytes, schema=schema),
        FieldLayout("r", RAGGED, ends[0], ragged.nbytes, offsets_offset=ends[1], schema=b"r"),
    ]
    reservation = store.reserve(ends[2], 10.0)
    reservation.copy_in(
        [
            (at, part.ctypes.data, part.nbytes)
            for at, part in ((0, dense), (ends[0], ragged), (ends[1], offsets))
            if part.nbytes
        ]
    )
    result: _native.PublishResult = store.publish(
        partition, reservation=reservation, fields=fields, **(publish or {"count": rows})
    )
    return result.indexes
