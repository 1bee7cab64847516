"""One connection for payload: plain TCP, frames of a length, both ends shown to know the cluster's token.

A frame is a small header (a message) and bytes that go straight from memory to memory: the sender's from the mapping of
a block, the receiver's into the room that was reserved for them. Before the first frame both ends answer a challenge
with the token, which is never sent; who cannot is closed on. The receiver names the server that it was told of, so that
it is not served by another that has the same port by now.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import socket
import struct
import sys
import time
from collections.abc import Sequence
from typing import Any

from transferqueue.nodes.connection import FAILED, REFUSED, TIMED_OUT, UNAVAILABLE, AttemptError

MAGIC = b"TQP1"
INSTANCE_NBYTES = 16
# Of a header: requests and descriptions have a few bytes a row.
MAX_HEADER_NBYTES = 256 << 20
# Of the bytes behind one: a message's, and a row more.
MAX_DATA_NBYTES = 1 << 30
_PREFIX = struct.Struct("<IQ")
_NONCE_NBYTES = 32
_HELLO = struct.Struct(f"4s{_NONCE_NBYTES}s")
_PROOF = struct.Struct(f"4s{INSTANCE_NBYTES}s{_NONCE_NBYTES}s32s")
_VERDICT = struct.Struct("B32s")
_WELCOME, _REFUSED, _ANOTHER = 1, 2, 3
_MOST_BUFFERS = 256
_LEAST_WAIT_S = 0.01
# A connection that rests is known to be dead within a minute, and the next request goes over another at once.
_KEEP_ALIVE = ((socket.TCP_KEEPIDLE, 30), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 3))
# What is between two near ends is to fit into the processors' caches, as it is copied in and out: larger buffers, which
# the kernel would make, cost half as much time again. Over a longer way they are what keeps it full.
_NEAR_US = 150
_NEAR_BUFFER_NBYTES = 256 << 10
_RTT_OFFSET = 68  # of tcp_info
_TIMEVAL = struct.Struct("ll")


class AnotherServerError(Exception):
    """The port is served, by somebody else than the one that was announced."""


class Channel:
    """One end. Used by one thread at a time; `cancel` by any.

    Args:
        sock: connected, blocking; the channel's from now on.
        stall_s: no byte for so long ends it.
    """

    def __init__(self, sock: socket.socket, stall_s: float) -> None:
        self._sock = sock
        self._stall_s = stall_s
        self._wait_s = -1.0
        self._until_s: float | None = None
        sock.settimeout(None)  # the kernel's own limits: a wait in Python would be one more call each time
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _KEEP_ALIVE:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
        if _round_trip_us(sock) <= _NEAR_US:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _NEAR_BUFFER_NBYTES)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _NEAR_BUFFER_NBYTES)
        self.limit(None)

    def limit(self, until_s: float | None) -> None:
        """What is sent and received from now on ends at that monotonic time."""
        self._until_s = until_s
        self._look_at_time()

    def wait_for(self, stall_s: float) -> None:
        """From now on that long without a byte ends it."""
        self._stall_s = stall_s
        self._look_at_time()

    def send(self, header: bytes, data: Any = None) -> None:
        """One frame, `data` of anything with the buffer protocol, or a list of such. When it returns `data` may change.
        AttemptError."""
        several = data if type(data) is list else [] if data is None else [data]
        views = [memoryview(each).cast("B") for each in several]
        nbytes = sum(map(len, views))
        buffers = [memoryview(_PREFIX.pack(len(header), nbytes) + header), *filter(len, views)]
        self._look_at_time()
        while buffers:
            try:
                sent = self._sock.sendmsg(buffers[:_MOST_BUFFERS])
            except OSError as error:
                raise self._failed(error) from error
            buffers = _behind(buffers, sent)
            if buffers:
                self._look_at_time()

    def receive(self) -> tuple[bytes, int]:
        """(header, how many bytes follow it) of the next frame. AttemptError."""
        self._look_at_time()
        prefix = bytearray(_PREFIX.size)
        self.receive_into([prefix])
        header_nbytes, data_nbytes = _PREFIX.unpack(prefix)
        if header_nbytes > MAX_HEADER_NBYTES or data_nbytes > MAX_DATA_NBYTES:
            raise AttemptError(FAILED, f"a frame of {header_nbytes} and {data_nbytes} bytes is none")
        return self.receive_bytes(header_nbytes), data_nbytes

    def receive_bytes(self, nbytes: int) -> bytes:
        """So many. Memory is taken as they come, not as they are announced. AttemptError."""
        got = bytearray()
        while len(got) < nbytes:
            self._look_at_time()
            part = bytearray(min(nbytes - len(got), 1 << 20))
            self.receive_into([part])
            got += part
        return bytes(got)

    def receive_into(self, buffers: Sequence[Any]) -> None:
        """Fills them, one after another; each is writable and has the buffer protocol. AttemptError."""
        left = [memoryview(buffer).cast("B") for buffer in buffers]
        left = [view for view in left if len(view)]
        while left:
            try:
                if len(left) == 1:
                    got = self._sock.recv_into(left[0], 0, socket.MSG_WAITALL)
                else:
                    got = self._sock.recvmsg_into(left[:_MOST_BUFFERS], 0, socket.MSG_WAITALL)[0]
            except OSError as error:
                raise self._failed(error) from error
            if not got:
                raise AttemptError(UNAVAILABLE, "the other end closed the connection")
            left = _behind(left, got)
            if left:  # it came slowly: the kernel's limit is of one call, and begins again with the next one
                self._look_at_time()

    def cancel(self) -> None:
        """From any thread: whoever sends or receives gets an AttemptError, once what has arrived is read."""
        try:
            self._sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # it is not connected any more

    def close(self) -> None:
        """Idempotent."""
        self._sock.close()

    def prove(self, token: str, instance: bytes) -> None:
        """Of who connects. AttemptError; AnotherServerError: it is not `instance` that answers."""
        hello = bytearray(_HELLO.size)
        self.receive_into([hello])
        magic, challenge = _HELLO.unpack(hello)
        if magic != MAGIC:
            raise AnotherServerError
        own = os.urandom(_NONCE_NBYTES)
        proof = _PROOF.pack(MAGIC, instance, own, _mac(token, b"client", instance, challenge))
        self._send_plain(proof)
        verdict = bytearray(_VERDICT.size)
        self.receive_into([verdict])
        said, shown = _VERDICT.unpack(verdict)
        if said == _ANOTHER:
            raise AnotherServerError
        if said != _WELCOME or not hmac.compare_digest(shown, _mac(token, b"server", instance, own)):
            raise AttemptError(REFUSED, "the token is not this cluster's")

    def admit(self, token: str, instance: bytes) -> bool:
        """Of who was connected to: whether the other end knows the token; it was told. AttemptError."""
        challenge = os.urandom(_NONCE_NBYTES)
        self._send_plain(_HELLO.pack(MAGIC, challenge))
        proof = bytearray(_PROOF.size)
        self.receive_into([proof])
        magic, meant, theirs, shown = _PROOF.unpack(proof)
        if magic != MAGIC:
            return False
        if not hmac.compare_digest(shown, _mac(token, b"client", meant, challenge)):
            self._send_plain(_VERDICT.pack(_REFUSED, bytes(32)))
            return False
        if meant != instance:
            self._send_plain(_VERDICT.pack(_ANOTHER, bytes(32)))
            return False
        self._send_plain(_VERDICT.pack(_WELCOME, _mac(token, b"server", instance, theirs)))
        return True

    def _send_plain(self, data: bytes) -> None:
        try:
            self._sock.sendall(data)
        except OSError as error:
            raise self._failed(error) from error

    def _look_at_time(self) -> None:
        wait_s = self._stall_s
        if self._until_s is not None:
            left_s = self._until_s - time.monotonic()
            if left_s <= 0:
                raise AttemptError(TIMED_OUT, "the time is over")
            wait_s = min(wait_s, left_s)
        if self._wait_s < 0 or wait_s < self._wait_s or wait_s > 2 * self._wait_s:
            wait_s = self._wait_s = max(wait_s, _LEAST_WAIT_S)
            whole = int(wait_s)
            limit = _TIMEVAL.pack(whole, int((wait_s - whole) * 1e6))
            try:
                self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
                self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
            except OSError as error:
                raise self._failed(error) from error

    def _failed(self, error: OSError) -> AttemptError:
        if isinstance(error, BlockingIOError):
            return AttemptError(TIMED_OUT, f"nothing went over the connection for {self._wait_s:.3g} s")
        return AttemptError(UNAVAILABLE, str(error))


def _round_trip_us(sock: socket.socket) -> int:
    """As the kernel has measured it while it connected."""
    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _RTT_OFFSET + 4)
    return int.from_bytes(info[_RTT_OFFSET:], sys.byteorder)


def _mac(token: str, who: bytes, instance: bytes, challenge: bytes) -> bytes:
    return hmac.new(token.encode(), MAGIC + who + instance + challenge, hashlib.sha256).digest()


def _behind(buffers: list[memoryview], nbytes: int) -> list[memoryview]:
    """What is left of them after so many bytes."""
    for at, view in enumerate(buffers):
        if nbytes < len(view):
            return [view[nbytes:], *buffers[at + 1 :]]
        nbytes -= len(view)
    return []
