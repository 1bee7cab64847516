"""Connections of a forked child: made by a small helper program, to which calls go over Unix sockets.

gRPC does not survive a fork: its threads are not in the child and its locks are as they happened to be, so that any use
of it there waits for ever. A program that is started anew has none of that. It is started at the child's first call
(about half a second), serves all its connections, and ends with the child.

One socket serves one call at a time; calls at the same time have one each. Frames on them: length (8 B), MessagePack.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from typing import Any

import msgspec

from transferqueue.nodes.connection import FAILED, TIMED_OUT, UNAVAILABLE, AttemptError, Endpoint, Stream
from transferqueue.own_programs import program_environment

_LENGTH = struct.Struct("<Q")
_GRACE_S = 2.0
_guard = threading.Lock()
_relay: _Relay | None = None


class RelayConnection:
    """To one server, through this process's relay."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._guard = threading.Lock()
        self._free: list[socket.socket] = []
        self._pid = os.getpid()
        self._name = uuid.uuid4().hex

    def call(self, body: bytes, timeout_s: float) -> Any:
        line = self._line()
        try:
            line.settimeout(timeout_s + _GRACE_S)
            send_frame(line, ["call", timeout_s, body])
            kind, *answer = receive_frame(line)
        except (OSError, EOFError, ValueError) as error:
            line.close()
            raise AttemptError(TIMED_OUT if isinstance(error, TimeoutError) else UNAVAILABLE, str(error)) from error
        except BaseException:  # an answer may still come: nobody may read it as another call's
            line.close()
            raise
        self._give_back(line)
        if kind == "error":
            raise AttemptError(*answer)
        return answer[0]

    def stream(self, ticket: bytes, timeout_s: float) -> Stream:
        line = self._line()
        try:
            line.settimeout(timeout_s + _GRACE_S)
            send_frame(line, ["stream", timeout_s, ticket])
        except OSError as error:
            line.close()
            raise AttemptError(UNAVAILABLE, str(error)) from error
        return _RelayStream(line)

    def close(self) -> None:
        with self._guard:
            lines, self._free = self._free, []
        for line in lines:
            line.close()

    def _line(self) -> socket.socket:
        with self._guard:
            if self._free and self._pid == os.getpid():
                return self._free.pop()
        return _this_relay().line(self._endpoint, self._name)

    def _give_back(self, line: socket.socket) -> None:
        with self._guard:
            self._free.append(line)


class _RelayStream:
    def __init__(self, line: socket.socket) -> None:
        self._line = line

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        try:
            while True:
                kind, *parts = receive_frame(self._line)
                if kind == "end":
                    return
                if kind == "error":
                    raise AttemptError(*parts)
                yield parts[0], parts[1]
        except (OSError, EOFError, ValueError) as error:
            raise AttemptError(TIMED_OUT if isinstance(error, TimeoutError) else UNAVAILABLE, str(error)) from error
        finally:
            self._line.close()

    def cancel(self) -> None:
        with contextlib.suppress(OSError):  # it is over
            self._line.shutdown(socket.SHUT_RDWR)


class _Relay:
    """The helper program of this process."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._control, theirs = socket.socketpair()
        with theirs:
            self._program = subprocess.Popen(
                [sys.executable, "-m", "transferqueue.nodes.relay"],
                env=program_environment(os.environ),
                cwd="/",
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                start_new_session=True,  # a Ctrl-C is the child's, which may want to finish its call
            )

    @property
    def alive(self) -> bool:
        return self._program.poll() is None

    def line(self, endpoint: Endpoint, name: str) -> socket.socket:
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                socket.send_fds(self._control, [b"+"], [theirs.fileno()])
                tls = None if endpoint.tls is None else vars(endpoint.tls)
                send_frame(ours, [endpoint.host, endpoint.port, endpoint.token, tls, name])
            except OSError as error:
                ours.close()
                raise AttemptError(UNAVAILABLE, f"the helper program of this process ended: {error}") from error
        return ours

    def leave(self) -> None:
        """In a child: it is the parent's."""
        self._control.close()
        self._program.returncode = 0  # not ours to wait for


def _this_relay() -> _Relay:
    global _relay
    with _guard:
        if _relay is None or not _relay.alive:
            try:
                _relay = _Relay()
            except OSError as error:
                raise AttemptError(FAILED, f"the helper program after a fork did not start: {error}") from error
        return _relay


def _forked() -> None:
    global _guard, _relay
    _guard = threading.Lock()
    if _relay is not None:
        _relay.leave()
        _relay = None


os.register_at_fork(after_in_child=_forked)


def send_frame(line: socket.socket, parts: list[Any]) -> None:
    """Raises OSError."""
    body = msgspec.msgpack.encode(parts)
    line.sendall(_LENGTH.pack(len(body)))
    line.sendall(body)


def receive_frame(line: socket.socket) -> list[Any]:
    """Raises OSError, EOFError when the other side is gone, ValueError for what is no frame."""
    (nbytes,) = _LENGTH.unpack(_receive(line, _LENGTH.size))
    if nbytes > 1 << 32:
        raise ValueError(f"a frame of {nbytes} bytes")
    parts = msgspec.msgpack.decode(_receive(line, nbytes))
    if type(parts) is not list or not parts:
        raise ValueError("no frame")
    return parts


def _receive(line: socket.socket, nbytes: int) -> bytearray:
    data = bytearray(nbytes)
    view = memoryview(data)
    while len(view):
        received = line.recv_into(view)
        if not received:
            raise EOFError("the other side is gone")
        view = view[received:]
    return data
