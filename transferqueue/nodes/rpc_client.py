"""Calls of another node's methods, made again until they are answered."""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from transferqueue.errors import NodeAccessError, NodeUnreachableError
from transferqueue.nodes.connection import REFUSED, TIMED_OUT, AttemptError, Connection, Endpoint, connect
from transferqueue.nodes.envelopes import Request, read_answer
from transferqueue.nodes.place import endpoint_text
from transferqueue.nodes.tls import TlsFiles, mismatch

# Python handles signals between attempts, and only in the main thread: attempts there begin short. A second one joins
# the first at the server, which answers within `_JOIN_S` whether that is done.
_MAIN_THREAD_ATTEMPT_S = 0.5
_JOIN_S = 0.4
_PAUSES_S = (0.02, 0.05, 0.1, 0.2, 0.4, 0.5)
_UPLOAD_NBYTES_A_S = 20e6  # a slow network; large messages are given the time that they take
_MOST_FAILED = 4


class RpcClient:
    """To the server at one address. Thread-safe; in a forked child it makes connections of its own.

    Args:
        host, port, token, tls: of the server.
        node: what errors call it; default: its address.
    """

    def __init__(
        self, host: str, port: int, *, token: str, tls: TlsFiles | None = None, node: str | None = None
    ) -> None:
        self.endpoint = Endpoint(host, port, token, tls)
        self.node = node or f"the node at {endpoint_text(host, port)}"
        self._machine = socket.gethostname()
        self._guard = threading.Lock()
        self._connection: Connection | None = None
        self._pid = os.getpid()

    def call(
        self,
        method: str,
        args: Mapping[str, Any],
        *,
        until_s: float | None,
        request_id: bytes | None = None,
        attempt_s: float = 5.0,
        between: Callable[[], None] | None = None,
    ) -> Any:
        """What the handler of `method` returned.

        An attempt that gets no answer (nobody there, a network that does not deliver, a server that ended) is followed
        by another with the same request id, until `until_s`; the server works on each id once, as far as it remembers.

        Args:
            method: name of the handler.
            args: by name; what a message carries.
            until_s: monotonic time of the deadline; None: none.
            request_id: 16 bytes that name this call for ever; None: made here.
            attempt_s: how long an attempt may take before another one is made. Large messages are given more.
            between: called before each further attempt that follows a connection that failed; what it raises ends
                the call.

        Raises:
            what the handler raised. NodeUnreachableError: no answer until the deadline. NodeAccessError: refused.
            TypeError, ValueError: values that no message carries.
        """
        request = Request(method, dict(args), request_id or uuid.uuid4().bytes, None, self._caller())
        attempts = _Attempts(attempt_s)
        while True:
            left_s = None if until_s is None else until_s - time.monotonic()
            if left_s is not None and left_s <= 0 and attempts.count:
                raise self._unreachable(method, attempts)
            body = Request(
                request.method, request.args, request.request_id, left_s, request.caller, attempts.join_s
            ).encode()
            limit_s = attempts.limit_s(len(body))
            if left_s is not None:
                limit_s = max(min(limit_s, left_s), 0.05)
            connection = self._connected()
            try:
                answer = connection.call(body, limit_s)
            except AttemptError as error:
                if error.kind == REFUSED:
                    raise NodeAccessError(
                        f"{self.node} refused this process: its token is of another cluster, or of the same one before "
                        "it was started again",
                        node=self.node,
                    ) from error
                attempts.failed(error)
                if attempts.is_hopeless or (left_s is not None and left_s <= limit_s and error.kind == TIMED_OUT):
                    raise self._unreachable(method, attempts) from error
                if attempts.needs_connection:
                    self._drop(connection)
                    attempts.pause(until_s)
                    if between is not None:
                        between()
                continue
            over, value = read_answer(answer)
            if over:
                return value
            attempts.joined()

    def close(self) -> None:
        """Calls after it make a new connection."""
        with self._guard:
            connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _caller(self) -> str:
        return f"pid {os.getpid()} on {self._machine}"

    def _connected(self) -> Connection:
        if self._pid != os.getpid():  # forked: the lock may have been held, and the connection is the parent's
            self._guard, self._connection, self._pid = threading.Lock(), None, os.getpid()
        with self._guard:
            if self._connection is None:
                try:
                    self._connection = connect(self.endpoint)
                except Exception as error:
                    raise NodeUnreachableError(
                        f"no connection to {self.node}: {error}", node=self.node, cause=str(error)
                    ) from error
            return self._connection

    def _drop(self, connection: Connection) -> None:
        with self._guard:  # others may still use it: it goes with the last of them
            if self._connection is connection:
                self._connection = None

    def _unreachable(self, method: str, attempts: _Attempts) -> NodeUnreachableError:
        waited_s = time.monotonic() - attempts.began_s
        meaning = mismatch(str(attempts.last), self.endpoint.tls)
        return NodeUnreachableError(
            f"{self.node} did not answer {method!r} within {waited_s:.1f} s ({attempts.count} attempts; the last: "
            f"{attempts.last}). Whether it was done is not known{'' if meaning is None else f'. {meaning}'}",
            timeout_s=waited_s,
            node=self.node,
            cause=str(attempts.last),
        )


class _Attempts:
    """Of one call: how many there were, and what the next one is given."""

    def __init__(self, attempt_s: float) -> None:
        self.began_s = time.monotonic()
        self.count = 0
        self.last: AttemptError | None = None
        self.needs_connection = False
        self.join_s = _JOIN_S if _takes_signals() else max(attempt_s - 1.0, _JOIN_S)
        self._attempt_s = attempt_s
        self._first_s = _MAIN_THREAD_ATTEMPT_S if _takes_signals() else attempt_s
        self._late = self._unavailable = self._failed = 0

    def limit_s(self, nbytes: int) -> float:
        base_s = self._first_s if not self.count else self._attempt_s
        return base_s * float(1 << min(self._late, 6)) + nbytes / _UPLOAD_NBYTES_A_S

    def failed(self, error: AttemptError) -> None:
        first = self.count == 0
        self.count += 1
        self.last = error
        # A first attempt that is late may be one that is worked on. A further one would have been told so.
        self.needs_connection = not (first and error.kind == TIMED_OUT)
        if error.kind == TIMED_OUT:
            self._late += not first
        else:
            self._unavailable += 1
            self._failed += error.kind not in (TIMED_OUT, REFUSED) and error.kind != "unavailable"

    @property
    def is_hopeless(self) -> bool:
        """The library says something else than that nobody is there."""
        return self._failed >= _MOST_FAILED

    def joined(self) -> None:
        self.count += 1
        self._late = self._unavailable = self._failed = 0

    def pause(self, until_s: float | None) -> None:
        pause_s = _PAUSES_S[min(self._unavailable, len(_PAUSES_S) - 1)]
        if until_s is not None:
            pause_s = min(pause_s, max(until_s - time.monotonic(), 0.0))
        time.sleep(pause_s)


def _takes_signals() -> bool:
    return threading.current_thread() is threading.main_thread() and not sys.is_finalizing()
