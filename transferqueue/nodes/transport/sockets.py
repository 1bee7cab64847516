"""The client side over plain TCP: received straight into the room that was reserved, several streams at once."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

from transferqueue.errors import NodeAccessError, NodeUnreachableError, TransferQueueError
from transferqueue.logs import get_logger
from transferqueue.nodes.connection import REFUSED, UNAVAILABLE, AttemptError
from transferqueue.nodes.envelopes import Request, read_answer
from transferqueue.nodes.place import NodePlace
from transferqueue.nodes.transport.channel import INSTANCE_NBYTES, AnotherServerError, Channel
from transferqueue.nodes.transport.flight import CALL_S, STALL_S, FlightTransport
from transferqueue.nodes.transport.payload_server import WHERE, request_to_call, request_to_describe
from transferqueue.nodes.transport.payload_streams import MAX_PARTS, ticket_of
from transferqueue.nodes.transport.protocol import Destination, PayloadDescription, PayloadRequest, PullReport
from transferqueue.nodes.transport.received import read_description
from transferqueue.nodes.transport.socket_pull import SocketPull

T = TypeVar("T")
_log = get_logger("nodes")
# A further stream is worth its thread from here on.
_LEAST_PART_NBYTES = 4 << 20
_CONNECT_S = 3.0
_ASK_S = 5.0
# The other end closes what rests for a minute.
_RESTS_S = 45.0
_PAUSES_S = (0.0, 0.05, 0.1, 0.2, 0.5)
# A port that the agent says it serves and that so many connections did not reach is behind a firewall.
_MISSED = 3
_BY_FLIGHT_S = 60.0


class PayloadPort(NamedTuple):
    """Where a node gives payload; port 0: by Flight only."""

    port: int
    instance: bytes


class SocketTransport:
    """A `Transport`. Thread-safe; in a forked child it makes connections of its own.

    Args:
        flight: for what a node says of itself, and for pulls from nodes that serve no port for payload, or one that
            cannot be reached from here.
        token: of the cluster.
        streams: at most so many of one pull at once, each over a connection of its own.
        chunk_nbytes: of one message.
        stall_s: a stream on which nothing comes for so long is begun again, on another connection.
        port_of: where a node gives payload; None: its agent is asked.
    """

    def __init__(
        self,
        flight: FlightTransport,
        *,
        token: str,
        streams: int,
        chunk_nbytes: int,
        stall_s: float = STALL_S,
        port_of: Callable[[NodePlace], PayloadPort] | None = None,
    ) -> None:
        if not 1 <= streams <= MAX_PARTS:
            raise ValueError(f"cluster.streams must be 1 to {MAX_PARTS}, not {streams}")
        self._flight = flight
        self._token = token
        self._streams = streams
        self._chunk_nbytes = chunk_nbytes
        self.stall_s = stall_s
        self._port_of = port_of
        self._pid = os.getpid()
        self._guard = threading.Lock()
        self._ports: dict[tuple[str, int], PayloadPort] = {}
        self._by_flight_until_s: dict[tuple[str, int], float] = {}
        self._idle: dict[tuple[str, int, bytes], list[tuple[float, Channel]]] = {}

    def describe(self, source: NodePlace, what: PayloadRequest, *, until_s: float | None = None) -> PayloadDescription:
        request = request_to_describe(what.to_parts())

        def ask(channel: Channel) -> Any:
            channel.send(request)
            header, _ = channel.receive()
            return header

        try:
            return read_description(read_answer(self.attempts(source, what, until_s, ask))[1], what)
        except _ByFlightError:
            return self._flight.describe(source, what, until_s=until_s)

    def pull(
        self, source: NodePlace, what: PayloadRequest, into: Destination, *, until_s: float | None = None
    ) -> PullReport:
        parts = max(1, min(self._streams, into.nbytes // _LEAST_PART_NBYTES))

        def attempts(attempt: Callable[[Channel], None], ended: threading.Event) -> None:
            self.attempts(source, what, until_s, attempt, ended)

        tickets = [ticket_of(what, part, parts, self._chunk_nbytes) for part in range(parts)]
        pull = SocketPull(source, what, into, tickets, attempts)
        try:
            pull.run()
        except _ByFlightError:
            return self._flight.pull(source, what, into, until_s=until_s)
        return PullReport(pull.nbytes, pull.messages, pull.streams)

    def ask(self, source: NodePlace, method: str, args: Mapping[str, Any], until_s: float) -> bytes:
        """The answer (`read_answer`) to one attempt at a call that changes nothing, for half of what Flight takes.

        Raises:
            AttemptError: no answer, or not this way: call as ever.
        """
        now_s = time.monotonic()
        try:
            port = self._port(source, until_s)
            channel = self._channel(source, port, min(until_s, now_s + _ASK_S))
        except (_ByFlightError, AnotherServerError, NodeUnreachableError) as error:
            self._forget(source)
            raise AttemptError(UNAVAILABLE, str(error)) from error
        try:
            request = Request(method, dict(args), os.urandom(16), until_s - now_s, f"pid {os.getpid()}")
            channel.send(request_to_call(request.encode()))
            header, _ = channel.receive()
        except BaseException:
            channel.close()
            raise
        self._give_back(source, port, channel)
        return header

    def close(self) -> None:
        with self._guard:
            idle = [channel for several in self._idle.values() for _, channel in several]
            self._idle = {}
        for channel in idle:
            channel.close()
        self._flight.close()

    def attempts(
        self,
        source: NodePlace,
        what: PayloadRequest,
        until_s: float | None,
        attempt: Callable[[Channel], T],
        ended: threading.Event | None = None,
    ) -> T:
        """`attempt` on a channel, until it goes well or is hopeless.

        Raises:
            NodeUnreachableError, NodeAccessError, DataLostError. What `attempt` raises besides AttemptError.
        """
        began_s = time.monotonic()
        limit_s = began_s + CALL_S if until_s is None else until_s
        place, tries, missed = source, 0, 0
        while True:
            try:
                port = self._port(place, limit_s)
                channel = self._channel(place, port, limit_s)
                try:
                    done = attempt(channel)
                except BaseException:
                    channel.close()
                    raise
                self._give_back(place, port, channel)
                return done
            except (AttemptError, AnotherServerError) as error:
                if ended is not None and ended.is_set():
                    raise
                if isinstance(error, AttemptError) and error.kind == REFUSED:
                    raise NodeAccessError(f"{place} refused this process: {error}", node=str(place)) from error
                missed = missed + 1 if isinstance(error, _NotReachedError) else 0
                pause_s = _PAUSES_S[min(tries, len(_PAUSES_S) - 1)]
                tries += 1
                self._forget(place)
                left_s = limit_s - time.monotonic()
                if left_s <= pause_s:
                    raise NodeUnreachableError(
                        f"{place} did not send the payload of {len(what.rows)} rows ({tries} attempts; the last: "
                        f"{error})",
                        node=str(place),
                        cause=str(error),
                        timeout_s=time.monotonic() - began_s,
                    ) from error
                if missed >= _MISSED:
                    self._give_up(place, error)
                if ended is None:
                    time.sleep(pause_s)
                else:
                    ended.wait(pause_s)
                place = self._flight.now_at(place)

    def _port(self, place: NodePlace, limit_s: float) -> PayloadPort:
        """Raises _ByFlightError: none that can be used."""
        self._look_for_fork()
        with self._guard:
            port = self._ports.get(place.endpoint)
            by_flight_s = self._by_flight_until_s.get(place.endpoint, 0.0)
        if by_flight_s > time.monotonic():
            raise _ByFlightError
        if port is None:
            port = self._asked(place, limit_s) if self._port_of is None else self._port_of(place)
            with self._guard:
                self._ports[place.endpoint] = port
        if not port.port:
            raise _ByFlightError
        return port

    def _asked(self, place: NodePlace, limit_s: float) -> PayloadPort:
        try:
            answer = self._flight.ask(place, WHERE, {}, limit_s)
        except NotImplementedError:
            return PayloadPort(0, b"")
        match answer:
            case [int() as port, bytes() as instance] if 0 <= port < 1 << 16 and len(instance) in (0, INSTANCE_NBYTES):
                return PayloadPort(port, instance)
        raise TransferQueueError(f"{place} says of its port for payload what is none")

    def _forget(self, place: NodePlace) -> None:
        """The agent may have been started again, on another port."""
        with self._guard:
            self._ports.pop(place.endpoint, None)

    def _give_up(self, place: NodePlace, error: Exception) -> None:
        port = self._port(place, time.monotonic() + CALL_S).port
        _log.warning(
            "%s cannot be reached at its port %d for payload, perhaps because of a firewall (%s): its rows come over "
            "Flight, at three times the processor time",
            *(place, port, error),
        )
        with self._guard:
            self._by_flight_until_s[place.endpoint] = time.monotonic() + _BY_FLIGHT_S
        raise _ByFlightError

    def _channel(self, place: NodePlace, port: PayloadPort, limit_s: float) -> Channel:
        """One that nobody else uses. AttemptError, AnotherServerError."""
        key = (place.host, port.port, port.instance)
        with self._guard:
            idle = self._idle.get(key)
            resting_s, channel = idle.pop() if idle else (0.0, None)
        if channel is not None:
            if time.monotonic() - resting_s < _RESTS_S:
                channel.limit(limit_s)
                return channel
            channel.close()
        wait_s = max(min(limit_s - time.monotonic(), _CONNECT_S), 0.01)
        try:
            sock = socket.create_connection((place.host, port.port), wait_s)
        except OSError as error:
            raise _NotReachedError(UNAVAILABLE, str(error)) from error
        try:
            channel = Channel(sock, min(_CONNECT_S, self.stall_s))
            channel.limit(limit_s)
            try:
                channel.prove(self._token, port.instance)
            except AttemptError as error:
                if error.kind == UNAVAILABLE:  # the server has as many as it takes
                    raise _NotReachedError(UNAVAILABLE, str(error)) from error
                raise
            channel.wait_for(self.stall_s)
            return channel
        except BaseException:
            sock.close()
            raise

    def _give_back(self, place: NodePlace, port: PayloadPort, channel: Channel) -> None:
        """It works and is not in use."""
        key = (place.host, port.port, port.instance)
        with self._guard:
            idle = self._idle.setdefault(key, [])
            if len(idle) < 2 * self._streams:
                idle.append((time.monotonic(), channel))
                return
        channel.close()

    def _look_for_fork(self) -> None:
        if self._pid != os.getpid():  # the lock may have been held, and the connections are the parent's
            self._pid, self._guard = os.getpid(), threading.Lock()
            self._idle = {}


class _ByFlightError(Exception):
    """The node's payload comes over Flight."""


class _NotReachedError(AttemptError):
    """Nobody took the connection."""
