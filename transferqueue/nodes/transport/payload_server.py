"""Gives other nodes payload over plain TCP: what `PayloadStreams` has, from the mapping to the socket."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from transferqueue.errors import CorruptSegmentError, TransferQueueError
from transferqueue.logs import get_logger
from transferqueue.nodes import messages
from transferqueue.nodes.connection import AttemptError
from transferqueue.nodes.envelopes import answer_of_error, answer_of_value
from transferqueue.nodes.rpc_server import Call, Handler, StreamSource
from transferqueue.nodes.transport.channel import INSTANCE_NBYTES, Channel

_log = get_logger("nodes")
DESCRIBE, STREAM, CALL = "describe", "stream", "call"
WHERE = "payload.where"
# Who does not prove within that time that it knows the token is closed on.
_PROOF_S = 5.0
# Receivers that take nothing for so long are gone or stopped, and hold leases: they begin again.
_STALL_S = 30.0
# Each process of each node that reads here keeps a connection or two for a while.
_IDLE_S = 60.0
_MOST_UNPROVEN = 64
_MOST = 4096


class PayloadServer:
    """Serves from the moment it is made, a thread a connection, until `close`.

    Args:
        host: the address it is bound to.
        ports: tried in this order; 0: any free one.
        token: of the cluster.
        streams: what it gives.
        answer: what `RpcServer.answer` does, for calls that come here; None: none do.

    Attributes:
        port: the one that it is bound to.
        instance: 16 bytes, this server's alone: who connects names them.

    Raises:
        OSError: none of the ports is free.
    """

    def __init__(
        self,
        host: str,
        ports: Iterable[int],
        *,
        token: str,
        streams: StreamSource,
        answer: Callable[[Any], bytes] | None = None,
    ) -> None:
        if not token:
            raise ValueError("a server between nodes needs a token")
        self._token = token
        self._streams = streams
        self._answer_call = answer
        self._describe = streams.handlers()["payload.describe"]
        self.instance = os.urandom(INSTANCE_NBYTES)
        self._guard = threading.Lock()
        self._channels: dict[Channel, threading.Thread] = {}
        self._unproven = 0
        self._closed = threading.Event()
        self._listener = _bound(host, ports)
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, name="tq-payload-accept", daemon=True)
        self._thread.start()

    def handlers(self) -> Mapping[str, Handler]:
        """The call by which others learn where it is."""
        return {WHERE: lambda call: [self.port, self.instance]}

    def close(self, wait_s: float = 5.0) -> None:
        """Ends it and all connections. Idempotent."""
        if self._closed.is_set():
            return
        self._closed.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes `accept`, which closing does not
        self._listener.close()
        self._thread.join(wait_s)
        with self._guard:
            channels = list(self._channels.items())
        for channel, _ in channels:
            channel.cancel()
        for _, thread in channels:
            thread.join(wait_s)

    def _accept(self) -> None:
        while not self._closed.is_set():
            try:
                sock, _ = self._listener.accept()
            except OSError as error:
                if self._closed.is_set():
                    return
                # Too many files are open, or the caller is gone already: the next one may be luckier.
                _log.debug("no connection for payload was taken: %s", error)
                self._closed.wait(0.05)
                continue
            with self._guard:
                full = self._unproven >= _MOST_UNPROVEN or len(self._channels) >= _MOST or self._closed.is_set()
                if not full:
                    self._unproven += 1
            if full:
                sock.close()
                continue
            self._begin(sock)

    def _begin(self, sock: socket.socket) -> None:
        try:
            channel = Channel(sock, _PROOF_S)
        except (OSError, AttemptError):
            sock.close()
            with self._guard:
                self._unproven -= 1
            return
        thread = threading.Thread(target=self._serve, args=(channel,), name="tq-payload", daemon=True)
        with self._guard:
            self._channels[channel] = thread
        thread.start()

    def _serve(self, channel: Channel) -> None:
        try:
            try:
                channel.limit(time.monotonic() + _PROOF_S)
                known = channel.admit(self._token, self.instance)
                channel.limit(None)
            finally:
                with self._guard:
                    self._unproven -= 1
            while known and not self._closed.is_set():
                channel.wait_for(_IDLE_S)
                request, nbytes = channel.receive()
                if nbytes:
                    return  # requests have no bytes behind them
                channel.wait_for(_STALL_S)
                self._answer(channel, request)
        except AttemptError as error:
            _log.debug("a connection for payload ended: %s", error)
        except Exception:
            _log.warning("a connection for payload failed", exc_info=True)
        finally:
            with self._guard:
                self._channels.pop(channel, None)
            channel.close()

    def _answer(self, channel: Channel, request: bytes) -> None:
        try:
            match messages.decode(request):
                case ["describe", list() as what]:
                    call = Call("payload.describe", {"request": what}, bytes(16), None, "payload")
                    channel.send(answer_of_value(self._describe(call)))
                case ["stream", bytes() as ticket]:
                    for header, data in self._streams.open(ticket, together=True):
                        channel.send(answer_of_value(header), data)
                    channel.send(answer_of_value(None))
                case ["call", bytes() as body] if self._answer_call is not None:
                    channel.send(self._answer_call(body))
                case _:
                    raise CorruptSegmentError("a request for payload is none")
        except AttemptError:
            raise
        except Exception as error:  # it is the caller's, all of it
            if not isinstance(error, (TransferQueueError, ValueError, TypeError, LookupError)):
                _log.warning("payload could not be sent", exc_info=True)
            channel.send(answer_of_error(error))


def _bound(host: str, ports: Iterable[int]) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    last: OSError | None = None
    for port in ports:
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((host, port))
            listener.listen(256)
            return listener
        except OSError as error:
            listener.close()
            last = error
    raise OSError(f"no port for payload is free at {host}: {last or 'none is allowed'}") from last


def request_to_describe(parts: Any) -> bytes:
    """The frame that asks what rows are."""
    return messages.encode([DESCRIBE, parts])


def request_to_call(body: bytes) -> bytes:
    """The frame that makes a call of the agent: a `Request`."""
    return messages.encode([CALL, body])


def request_to_stream(ticket: bytes) -> bytes:
    """The frame that asks for a stream."""
    return messages.encode([STREAM, ticket])
