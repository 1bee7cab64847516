"""A node's server: calls by name, and streams of payload, over Arrow Flight."""

from __future__ import annotations

import functools
import hmac
import os
import socket
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from transferqueue.errors import TransferQueueError
from transferqueue.logs import get_logger
from transferqueue.nodes.call_record import CallRecord
from transferqueue.nodes.connection import CALL
from transferqueue.nodes.envelopes import RUNNING, Request, answer_of_error, answer_of_value
from transferqueue.nodes.flight_library import flight, is_broken_by_fork, keep_for_ever, note_used
from transferqueue.nodes.place import endpoint_text
from transferqueue.nodes.tls import TlsFiles
from transferqueue.printable import printable

_log = get_logger("nodes")
_AUTHORIZATION = "authorization"


@dataclass(frozen=True)
class Call:
    """What a handler is given.

    Attributes:
        method, args: of the call; args by name.
        request_id: 16 bytes, the same in all attempts.
        left_s: seconds that the caller waits at most, counted from the arrival; None: no limit.
        caller: who it is, for messages.
        stopping: set when the server ends; a handler that waits looks at it.
    """

    method: str
    args: dict[str, Any]
    request_id: bytes
    left_s: float | None
    caller: str
    stopping: threading.Event = field(default_factory=threading.Event)


Handler = Callable[[Call], Any]


class StreamSource(Protocol):
    """What a server gives out besides answers."""

    def handlers(self) -> Mapping[str, Handler]:
        """Calls that belong to the streams; they change nothing."""
        ...

    def open(self, ticket: bytes, *, together: bool = False) -> Iterator[tuple[Any, Any]]:
        """The stream of a ticket: (header, buffer of bytes or None) one after another. Errors of ours travel.

        Args:
            together: there may be a list of buffers instead of one.
        """
        ...


class RpcServer:
    """Serves from the moment it is made, in threads of the library, until `shutdown`.

    A handler gets a `Call` and returns what a message carries; what it raises is raised at the caller. Attempts of one
    request id that arrive while it is worked on wait for that one's answer.

    Args:
        host, port: the one address it is bound to; port 0: any free one.
        token: every call must show it.
        tls: certificates; None: plain connections.
        handlers: method -> handler. Called from several threads at once.
        streams: what `do_get` serves.
        is_complete: False: calls of methods that are not known wait for `complete`.

    Attributes:
        port: the one that it is bound to.

    Raises:
        OSError: the address cannot be bound.
        RuntimeError: this process was forked from one that has connections to nodes; start a new program instead.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        token: str,
        tls: TlsFiles | None = None,
        handlers: Mapping[str, Handler],
        streams: StreamSource | None = None,
        is_complete: bool = True,
    ) -> None:
        if not token:
            raise ValueError("a server between nodes needs a token")
        if is_broken_by_fork():
            raise RuntimeError(
                "this process was forked from one that has connections to other nodes, and gRPC does not survive that: "
                "start the server in a program of its own (multiprocessing: the spawn method)"
            )
        self.host = host
        self._handlers = dict(handlers)
        self._streams = streams
        self._reads: frozenset[str] = frozenset()
        if streams is not None:
            self._handlers.update(streams.handlers())
            self._reads = frozenset(streams.handlers())
        self._complete = threading.Event()
        if is_complete:
            self._complete.set()
        self._record = CallRecord()
        self._stopping = threading.Event()
        self._pid = os.getpid()
        # While it is made: another thread may fork meanwhile.
        self._at_exit: weakref.finalize[..., RpcServer] | None = None
        note_used(self)
        self._server: Any = _start(host, port, token, tls, self.answer, streams)
        self.port: int = self._server.port
        # The library's server is stopped and never destroyed: its destructor keeps the interpreter's lock while it
        # waits for its threads, and one that is just about to leave a call needs that lock.
        keep_for_ever(self._server)
        self._at_exit = weakref.finalize(self, _stop, self._stopping, self._server, self._pid)

    def add_handlers(self, handlers: Mapping[str, Handler]) -> None:
        """More methods, or other handlers of known ones."""
        self._handlers = {**self._handlers, **handlers}

    def add_streams(self, streams: StreamSource) -> None:
        """What `do_get` serves from now on."""
        self._server.serve_streams(streams)
        self._reads = self._reads | frozenset(streams.handlers())
        self.add_handlers(streams.handlers())

    def complete(self) -> None:
        """All methods are known."""
        self._complete.set()

    def serve_in_thread(self) -> None:
        """Nothing is left to do: it serves since it was made. Here so that callers can say when they are ready."""

    def shutdown(self, wait_s: float = 10.0) -> None:
        """No new calls; those being worked on are told (`Call.stopping`) and waited for, `wait_s` at most. Idempotent;
        nothing happens in a child process."""
        self._stopping.set()
        self._complete.set()
        server, self._server = self._server, None
        if server is None or os.getpid() != self._pid:
            return
        if self._at_exit is not None:
            self._at_exit.detach()
        ending = threading.Thread(target=server.shutdown, name="tq-nodes-shutdown", daemon=True)
        ending.start()
        ending.join(wait_s)
        if ending.is_alive():
            _log.warning("calls of other nodes did not end within %g s; the server is left to them", wait_s)
        else:
            server.forget()

    def forked(self) -> None:
        """In a child process, where nothing of the library's may be touched."""
        if self._at_exit is not None:
            self._at_exit.detach()

    def answer(self, body: Any) -> bytes:
        """To an attempt of a call, however it came."""
        try:
            request = Request.decode(body)
        except TransferQueueError as error:
            return answer_of_error(error)
        answer = self._record.answer(request.request_id, lambda: self._work(request), request.join_s)
        return RUNNING if answer is None else answer

    def _work(self, request: Request) -> tuple[bytes, bool]:
        """(answer, whether to keep it). What failed changed nothing, and may go well when it is tried again."""
        if request.method not in self._handlers:
            self._complete.wait(request.left_s)
        handler = self._handlers.get(request.method)
        call = Call(request.method, request.args, request.request_id, request.left_s, request.caller, self._stopping)
        try:
            if handler is None:
                raise NotImplementedError(
                    f"this node has no method {printable(request.method)!r}: use one version of transferqueue-shm on "
                    "all nodes"
                )
            return answer_of_value(handler(call)), request.method not in self._reads
        except Exception as error:  # it is the caller's, all of it
            if not isinstance(error, (TransferQueueError, ValueError, TypeError, LookupError, NotImplementedError)):
                _log.warning("%s for %s failed", printable(request.method), printable(request.caller), exc_info=True)
            return answer_of_error(error), False


def _stop(stopping: threading.Event, server: Any, pid: int) -> None:
    """At exit, of a server that nobody shut down; waits for the calls that are being worked on, which are told."""
    stopping.set()
    if os.getpid() == pid:
        server.shutdown()


def _start(
    host: str,
    port: int,
    token: str,
    tls: TlsFiles | None,
    answer: Callable[[Any], bytes],
    streams: StreamSource | None,
) -> Any:
    fl = flight()
    _check_free(host, port)
    options: dict[str, Any] = {}
    if tls is not None:
        options["tls_certificates"] = [tls.server_pair()]
        if tls.verify_clients:
            options.update(verify_client=True, root_certificates=tls.read_ca())
    scheme = "grpc" if tls is None else "grpc+tls"
    server_class, access = _classes()
    try:
        return server_class(
            f"{scheme}://{endpoint_text(host, port)}", answer, streams, middleware={"access": access(token)}, **options
        )
    except fl.FlightError as error:
        raise OSError(f"a server for other nodes cannot be bound to {endpoint_text(host, port)}: {error}") from error


def _check_free(host: str, port: int) -> None:
    """The library shares a port with whoever has it and allows that, another server of this user above all."""
    if port:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))


@functools.cache
def _classes() -> tuple[Any, Any]:
    """(server, its check of tokens): classes that inherit the library's, made when it is there."""
    import pyarrow as pa

    fl = flight()
    schema = pa.schema([("bytes", pa.uint8())])
    factory_class: Any = fl.ServerMiddlewareFactory
    server_class: Any = fl.FlightServerBase

    class Access(factory_class):  # type: ignore[misc]
        def __init__(self, token: str) -> None:
            super().__init__()
            self._expected = f"Bearer {token}".encode()

        def start_call(self, info: Any, headers: Mapping[str, list[Any]]) -> None:
            given = headers.get(_AUTHORIZATION) or [""]
            shown = given[0].encode() if isinstance(given[0], str) else bytes(given[0])
            if len(given) != 1 or not hmac.compare_digest(shown, self._expected):
                raise fl.FlightUnauthenticatedError("the token is not this cluster's")

    class Server(server_class):  # type: ignore[misc]
        def __init__(self, location: str, answer: Callable[[Any], bytes], streams: StreamSource | None, **options: Any):
            self._answer = answer
            self._streams = streams
            super().__init__(location, **options)

        def serve_streams(self, streams: StreamSource) -> None:
            self._streams = streams

        def forget(self) -> None:
            """What served no longer has to stay."""
            del self._answer, self._streams

        def do_action(self, context: Any, action: Any) -> Iterator[Any]:
            if action.type != CALL:
                raise NotImplementedError(f"no action of type {action.type!r}")
            yield fl.Result(pa.py_buffer(self._answer(action.body)))

        def do_get(self, context: Any, ticket: Any) -> Any:
            if self._streams is None:
                raise NotImplementedError("this server has no streams")
            return fl.GeneratorStream(schema, self._batches(self._streams, bytes(ticket.ticket)))

        def _batches(self, streams: StreamSource, ticket: bytes) -> Iterator[Any]:
            try:
                for header, buffer in streams.open(ticket):
                    data = pa.py_buffer(b"") if buffer is None else buffer
                    column = pa.Array.from_buffers(pa.uint8(), data.size, [None, data])
                    yield pa.record_batch([column], schema=schema), answer_of_value(header)
            except Exception as error:  # it is the caller's; the library would send its text only
                yield pa.record_batch([pa.array([], pa.uint8())], schema=schema), answer_of_error(error)

    return Server, Access
