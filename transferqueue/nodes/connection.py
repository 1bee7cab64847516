"""One connection to a node's server, on which attempts are made; what went wrong with one is told apart by kinds."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

from transferqueue.nodes.flight_library import flight, is_broken_by_fork, keep_for_ever, note_used
from transferqueue.nodes.place import endpoint_text
from transferqueue.nodes.tls import TlsFiles

CALL = "tq.call"
TIMED_OUT, UNAVAILABLE, REFUSED, FAILED = "timed out", "unavailable", "refused", "failed"


class Endpoint(NamedTuple):
    """What a connection needs to know."""

    host: str
    port: int
    token: str
    tls: TlsFiles | None = None

    def __str__(self) -> str:
        return endpoint_text(self.host, self.port)


class AttemptError(Exception):
    """An attempt that got no answer: `kind` is TIMED_OUT, UNAVAILABLE (nobody there, or gone amid it), REFUSED (token
    or certificate) or FAILED (anything else that the library says)."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


class Stream(Protocol):
    """What one `do_get` gives."""

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        """(header, bytes) of each message; both have the buffer protocol, either may be empty. AttemptError."""
        ...

    def cancel(self) -> None:
        """From another thread: whoever waits for the next message gets an AttemptError."""


class Connection(Protocol):
    """From one process to one server; thread-safe."""

    def call(self, body: bytes, timeout_s: float) -> Any:
        """The answer's bytes (anything with their buffer). AttemptError."""
        ...

    def stream(self, ticket: bytes, timeout_s: float) -> Stream:
        """AttemptError, here or at the first message."""
        ...

    def close(self) -> None:
        """Nobody uses it any more. Idempotent."""


def connect(endpoint: Endpoint) -> Connection:
    """A connection that works in this process. Nothing is sent yet.

    In a process that was forked from one with connections the library does not work any more; there the connection is
    a small helper program's, see `relay_connection`.
    """
    if is_broken_by_fork():
        from transferqueue.nodes.relay_connection import RelayConnection

        return RelayConnection(endpoint)
    return DirectConnection(endpoint)


class DirectConnection:
    """By the library, in this process."""

    def __init__(self, endpoint: Endpoint) -> None:
        fl = flight()
        self._client: Any = None  # while it is made: another thread may fork meanwhile
        note_used(self)
        self._pid = os.getpid()
        self._headers = [(b"authorization", f"Bearer {endpoint.token}".encode())]
        options: dict[str, Any] = {}
        tls = endpoint.tls
        if tls is not None:
            options["tls_root_certs"] = tls.read_ca()
            pair = tls.client_pair()
            if pair is not None:
                options["cert_chain"], options["private_key"] = pair
        scheme = "grpc" if tls is None else "grpc+tls"
        self._client = fl.connect(
            f"{scheme}://{endpoint}",
            # Each connection is one of its own: streams are spread over several, and a new one is really new.
            generic_options=[("grpc.use_local_subchannel_pool", 1)],
            **options,
        )

    def call(self, body: bytes, timeout_s: float) -> Any:
        fl = flight()
        try:
            results = self._client.do_action(fl.Action(CALL, body), self._options(timeout_s))
            answer = next(results).body
            next(results, None)  # else the call stays open until it is collected
            return answer
        except StopIteration:
            raise AttemptError(FAILED, "the server did not answer") from None
        except Exception as error:
            raise _attempt_error(error) from error

    def stream(self, ticket: bytes, timeout_s: float) -> Stream:
        try:
            return _DirectStream(self._client.do_get(flight().Ticket(ticket), self._options(timeout_s)))
        except Exception as error:
            raise _attempt_error(error) from error

    def close(self) -> None:
        if os.getpid() == self._pid:
            self._client.close()

    def forked(self) -> None:
        if self._client is not None:
            keep_for_ever(self._client)

    def _options(self, timeout_s: float) -> Any:
        return flight().FlightCallOptions(timeout=max(timeout_s, 0.001), headers=self._headers)


class _DirectStream:
    def __init__(self, reader: Any) -> None:
        self._reader = reader

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        while True:
            try:
                chunk = self._reader.read_chunk()
            except StopIteration:
                return
            except Exception as error:
                raise _attempt_error(error) from error
            columns: list[Any] = [] if chunk.data is None else chunk.data.columns
            if len(columns) != 1 or columns[0].null_count:
                raise AttemptError(FAILED, "the server sent a message of another form")
            column = columns[0]
            data = column.buffers()[1]
            some = b"" if data is None or not len(column) else data.slice(column.offset, len(column))
            yield chunk.app_metadata or b"", some

    def cancel(self) -> None:
        self._reader.cancel()


def _attempt_error(error: Exception) -> AttemptError:
    fl = flight()
    text = str(error).partition(". Detail:")[0].partition(". gRPC client debug")[0][:500]
    if isinstance(error, fl.FlightTimedOutError):
        return AttemptError(TIMED_OUT, text)
    if isinstance(error, (fl.FlightUnauthenticatedError, fl.FlightUnauthorizedError)):
        return AttemptError(REFUSED, text)
    if isinstance(error, (fl.FlightUnavailableError, fl.FlightCancelledError)):
        return AttemptError(UNAVAILABLE, text)
    return AttemptError(FAILED, f"{type(error).__name__}: {text}")
