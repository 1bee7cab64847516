"""The client side over Arrow Flight: a request in several streams at once, written where they belong as they come."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from transferqueue.errors import NodeAccessError, NodeUnreachableError
from transferqueue.nodes.connection import REFUSED, AttemptError, Connection, Endpoint, Stream, connect
from transferqueue.nodes.envelopes import read_answer
from transferqueue.nodes.place import NodePlace
from transferqueue.nodes.rpc_client import RpcClient
from transferqueue.nodes.tls import TlsFiles
from transferqueue.nodes.transport.payload_streams import MAX_FETCH_NBYTES, MAX_PARTS, ticket_of
from transferqueue.nodes.transport.protocol import Destination, PayloadDescription, PayloadRequest, PullReport
from transferqueue.nodes.transport.received import announced, read_description, write_answer, write_message

STREAMS = 2
CHUNK_NBYTES = 1 << 20
# A further stream is worth its thread from here on.
_LEAST_PART_NBYTES = 4 << 20
FETCH_BELOW = 256 << 10
STALL_S = 15.0
CALL_S = 60.0
# Of one stream; on a slower network later attempts are given longer.
_SLOW_NBYTES_A_S = 20e6
_PAUSES_S = (0.05, 0.1, 0.2, 0.5)
_LOOK_S = 0.1


class FlightTransport:
    """A `Transport`. Thread-safe; in a forked child it makes connections of its own.

    Args:
        token, tls: of the cluster.
        streams: at most so many of one pull at once, each over a connection of its own.
        chunk_nbytes: of one message.
        fetch_below: bytes; less comes as one answer instead of a stream.
        stall_s: a stream on which nothing comes for so long is begun again, on another connection.
        where: asked before an attempt that follows a failed one where the node is now; may raise `DataLostError`.
    """

    def __init__(
        self,
        *,
        token: str,
        tls: TlsFiles | None = None,
        streams: int = STREAMS,
        chunk_nbytes: int = CHUNK_NBYTES,
        fetch_below: int = FETCH_BELOW,
        stall_s: float = STALL_S,
        where: Callable[[int], NodePlace] | None = None,
    ) -> None:
        if not 1 <= streams <= MAX_PARTS:
            raise ValueError(f"cluster.streams must be 1 to {MAX_PARTS}, not {streams}")
        self._token = token
        self._tls = tls
        self._streams = streams
        self._chunk_nbytes = chunk_nbytes
        self._fetch_below = min(fetch_below, MAX_FETCH_NBYTES)
        self.stall_s = stall_s
        self._where = where
        self._pid = os.getpid()
        self._guard = threading.Lock()
        self._idle: dict[tuple[str, int], list[Connection]] = {}
        self._clients: dict[tuple[str, int], RpcClient] = {}

    def describe(self, source: NodePlace, what: PayloadRequest, *, until_s: float | None = None) -> PayloadDescription:
        return read_description(self.ask(source, "payload.describe", {"request": what.to_parts()}, until_s), what)

    def pull(
        self, source: NodePlace, what: PayloadRequest, into: Destination, *, until_s: float | None = None
    ) -> PullReport:
        if into.nbytes < self._fetch_below:
            return self._fetch(source, what, into, until_s)
        parts = min(self._streams, max(1, into.nbytes // _LEAST_PART_NBYTES))
        pull = _Pull(self, source, what, into, parts, until_s)
        pull.run()
        return PullReport(pull.nbytes, pull.messages, pull.streams)

    def close(self) -> None:
        with self._guard:
            idle = [connection for several in self._idle.values() for connection in several]
            clients = list(self._clients.values())
            self._idle, self._clients = {}, {}
        for connection in idle:
            connection.close()
        for client in clients:
            client.close()

    def connection(self, place: NodePlace) -> Connection:
        """One that nobody else uses. AttemptError, or what the certificates raise."""
        self._look_for_fork()
        with self._guard:
            idle = self._idle.get(place.endpoint)
            if idle:
                return idle.pop()
        return connect(Endpoint(place.host, place.port, self._token, self._tls))

    def give_back(self, place: NodePlace, connection: Connection) -> None:
        """It works and is not in use."""
        with self._guard:
            idle = self._idle.setdefault(place.endpoint, [])
            if len(idle) < 2 * self._streams:
                idle.append(connection)
                return
        connection.close()

    def ticket(self, what: PayloadRequest, part: int, parts: int) -> bytes:
        return ticket_of(what, part, parts, self._chunk_nbytes)

    def now_at(self, place: NodePlace) -> NodePlace:
        """Where the node is after it could not be reached. DataLostError."""
        return place if self._where is None else self._where(place.ordinal)

    def _fetch(self, source: NodePlace, what: PayloadRequest, into: Destination, until_s: float | None) -> PullReport:
        """Little is one answer: it costs half of what a stream with its thread does."""
        written, messages = write_answer(
            source, what, into, self.ask(source, "payload.fetch", {"request": what.to_parts()}, until_s)
        )
        return PullReport(written, messages, 0)

    def ask(self, source: NodePlace, method: str, args: Mapping[str, Any], until_s: float | None) -> Any:
        """A call of the node's agent that changes nothing, wherever that is by then."""
        limit_s = time.monotonic() + CALL_S if until_s is None else until_s
        where, client = self._where, self._client(source)

        def look() -> None:
            if where is not None and where(source.ordinal).endpoint != client.endpoint[:2]:
                raise _MovedError

        while True:
            try:
                return client.call(method, args, until_s=limit_s, between=look)
            except _MovedError:
                client = self._client(self.now_at(source))

    def _client(self, place: NodePlace) -> RpcClient:
        self._look_for_fork()
        with self._guard:
            client = self._clients.get(place.endpoint)
            if client is None:
                client = RpcClient(place.host, place.port, token=self._token, tls=self._tls, node=str(place))
                self._clients[place.endpoint] = client
            return client

    def _look_for_fork(self) -> None:
        if self._pid != os.getpid():  # the lock may have been held, and the connections are the parent's
            self._pid, self._guard = os.getpid(), threading.Lock()
            self._idle, self._clients = {}, {}


class _MovedError(Exception):
    pass


class _Pull:
    """One pull: a thread a part, watched by the caller, who stays able to take a Ctrl-C."""

    def __init__(
        self,
        transport: FlightTransport,
        source: NodePlace,
        what: PayloadRequest,
        into: Destination,
        parts: int,
        until_s: float | None,
    ) -> None:
        self._transport = transport
        self._source = source
        self._what = what
        self._into = into
        self._until_s = until_s
        self._parts = [_Part(self, number, parts) for number in range(parts)]
        self._guard = threading.Lock()
        self._error: BaseException | None = None
        self.ended = threading.Event()
        self.nbytes = self.messages = self.streams = 0

    def run(self) -> None:
        threads = [threading.Thread(target=part.run, name="tq-pull", daemon=True) for part in self._parts]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                while thread.is_alive():
                    thread.join(_LOOK_S)
                    self._watch()
        finally:
            # Nothing writes to the destination once this returned, whatever it raises. A thread whose stream has not
            # begun cannot be woken, and need not be: it looks at `ended` before it writes anything.
            self.ended.set()
            for part, thread in zip(self._parts, threads, strict=True):
                if part.cancel():
                    thread.join()
        if self._error is not None:
            raise self._error

    def _watch(self) -> None:
        now_s = time.monotonic()
        for part in self._parts:
            late = self._until_s is not None and now_s > self._until_s
            if self._error is not None or late or now_s - part.heard_s > self._transport.stall_s:
                part.cancel()

    def fail(self, error: BaseException) -> None:
        with self._guard:
            if self._error is None:
                self._error = error
        self.ended.set()

    def count(self, *, nbytes: int = 0, messages: int = 0, streams: int = 0) -> None:
        with self._guard:
            self.nbytes += nbytes
            self.messages += messages
            self.streams += streams

    def left_s(self) -> float:
        return CALL_S if self._until_s is None else self._until_s - time.monotonic()

    def attempt(self, part: _Part, place: NodePlace, tries: int) -> None:
        """One stream of a part, from its beginning, after so many. AttemptError; what the source raised."""
        transport = self._transport
        connection = transport.connection(place)
        # Until its first message comes, only this limit ends a stream on a connection that is dead.
        limit_s = (transport.stall_s + self._into.nbytes / part.parts / _SLOW_NBYTES_A_S) * float(1 << min(tries, 6))
        limit_s = max(min(limit_s, self.left_s()), 0.05)
        stream = connection.stream(transport.ticket(self._what, part.number, part.parts), limit_s)
        part.began(stream)
        self.count(streams=1)
        written, expected = 0, -1
        for header, data in stream:
            part.heard_s = time.monotonic()
            if self.ended.is_set():
                raise AttemptError("unavailable", "given up")
            _, parts = read_answer(header)
            if expected < 0:
                expected = announced(self._source, parts, self._into)
            else:
                written += write_message(self._source, self._what, self._into, parts, memoryview(data))
                self.count(messages=1)
        if written != expected:
            raise AttemptError("failed", f"the stream ended after {written} of {expected} bytes")
        self.count(nbytes=written)
        transport.give_back(place, connection)

    def go_on(self, part: _Part) -> None:
        """A part, until its bytes are there or it is hopeless."""
        place, tries = self._source, 0
        while not self.ended.is_set():
            try:
                self.attempt(part, place, tries)
                return
            except AttemptError as error:
                tries += 1
                if error.kind == REFUSED:
                    raise NodeAccessError(f"{place} refused this process: {error}", node=str(place)) from error
                pause_s = _PAUSES_S[min(tries, len(_PAUSES_S)) - 1]
                if self.left_s() <= pause_s or (self._until_s is None and part.tried_s > CALL_S):
                    raise NodeUnreachableError(
                        f"{place} did not send the payload of {len(self._what.rows)} rows ({tries} attempts; the last: "
                        f"{error})",
                        node=str(place),
                        cause=str(error),
                        timeout_s=part.tried_s,
                    ) from error
                self.ended.wait(pause_s)
                place = self._transport.now_at(place)


class _Part:
    def __init__(self, pull: _Pull, number: int, parts: int) -> None:
        self._pull = pull
        self.number = number
        self.parts = parts
        self.heard_s = self._began_s = time.monotonic()
        self._stream: Stream | None = None

    @property
    def tried_s(self) -> float:
        return time.monotonic() - self._began_s

    def run(self) -> None:
        try:
            self._pull.go_on(self)
        except BaseException as error:
            self._pull.fail(error)

    def began(self, stream: Stream) -> None:
        self._stream = stream
        self.heard_s = time.monotonic()
        if self._pull.ended.is_set():  # whoever ended it did not see this stream
            stream.cancel()

    def cancel(self) -> bool:
        """Whether there is a stream."""
        stream = self._stream
        self.heard_s = time.monotonic()
        if stream is not None:
            stream.cancel()
        return stream is not None
