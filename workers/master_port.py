"""A port for the rendezvous of a group, held from the moment it is chosen."""

from __future__ import annotations

import errno
import socket
import threading
from collections.abc import Sequence
from typing import Any

import torch.distributed as dist

from transferqueue.workers.errors import NoFreePortError

_LOOK_FIRST_S, _LOOK_LAST_S = 0.05, 0.5
_TRIES = 64  # another process may begin to listen between the choice of a port and ours
_held: dict[int, MasterPort] = {}


class MasterPort:
    """Holds a TCP port of this host for a rendezvous whose rank 0 is this process.

    Picking a port and closing the socket would leave a window in which another process takes it. So the server of the
    rendezvous listens from the start: torch keeps one server per port and process, and its own rendezvous (``env://``,
    ``tcp://``) in this process finds it. Once torch's process group has it, `hand_over` lets go, so that the server
    ends with that group and a later one starts with an empty one. Until `release` a second socket stays bound to the
    port (with SO_REUSEADDR, and it never listens): the kernel gives the port to nobody who asks for any free one.

    Args:
        port_range: ports from the first up to, not including, the second. None: any that is free.

    Raises:
        NoFreePortError: all ports of the range are taken.
        ValueError: what is no range of ports.
    """

    def __init__(self, port_range: Sequence[int] | None = None) -> None:
        candidates = [0] * _TRIES if port_range is None else range(*check_port_range(port_range))
        self._family = socket.AF_INET6 if _has_ipv6() else socket.AF_INET
        for port in candidates:
            bound = self._bound(port)
            if bound is None:
                continue
            listener = self._listening(bound.getsockname()[1])
            if listener is not None:
                break
            bound.close()
        else:
            raise NoFreePortError(
                f"every port from {candidates[0]} to {candidates[-1]} of {socket.gethostname()} is taken: widen the "
                "range or leave it out",
                first=candidates[0],
                last=candidates[-1],
            )
        self._bound_socket = bound
        self.port: int = bound.getsockname()[1]
        self._store: Any = _serve(listener, self.port, self._family)
        self._released = threading.Event()

    @property
    def serves(self) -> bool:
        """Whether this object keeps the server alive."""
        return self._store is not None

    def hand_over_once_initialized(self) -> None:
        """`hand_over` as soon as this process is in a default process group.

        For a program that joins by torch's own functions, of which nobody tells this object: a thread looks now and
        then, 0.5 s apart at most, until then.
        """
        threading.Thread(target=self._watch, name="master-port", daemon=True).start()

    def hand_over(self) -> None:
        """The process group has the server now. Idempotent."""
        self._store = None

    def release(self) -> None:
        """Gives the port up. Idempotent."""
        self._released.set()
        self._store = None
        self._bound_socket.close()
        if _held.get(self.port) is self:
            del _held[self.port]

    def _bound(self, port: int) -> socket.socket | None:
        bound = socket.socket(self._family, socket.SOCK_STREAM)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if self._family == socket.AF_INET6:
                bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            bound.bind(("", port))
        except OSError as error:
            bound.close()
            if error.errno in (errno.EADDRINUSE, errno.EACCES):
                return None
            raise
        return bound

    def _listening(self, port: int) -> socket.socket | None:
        # Of two sockets bound with SO_REUSEADDR only one can listen: whoever is second here goes to the next port.
        listener = self._bound(port)
        if listener is None:
            return None
        try:
            listener.listen(512)
        except OSError as error:
            listener.close()
            if error.errno == errno.EADDRINUSE:
                return None
            raise
        return listener

    def _watch(self) -> None:
        pause_s = _LOOK_FIRST_S
        while not self._released.wait(pause_s):
            if self._store is None:
                return
            if dist.is_initialized():
                self.hand_over()
                return
            pause_s = min(2 * pause_s, _LOOK_LAST_S)


def reserve_master_port(port_range: Sequence[int] | None = None) -> MasterPort:
    """A `MasterPort` that this process holds until it ends, or until somebody releases it."""
    held = MasterPort(port_range)
    _held[held.port] = held
    return held


def reserved_port(port: int) -> MasterPort:
    """What `reserve_master_port` made. `KeyError` for a port that this process does not hold."""
    return _held[port]


def hand_over_port(port: int) -> None:
    """`MasterPort.hand_over` of the port, when this process holds it."""
    held = _held.get(port)
    if held is not None:
        held.hand_over()


def check_port_range(port_range: Sequence[int]) -> tuple[int, int]:
    """The range as ``(first, end)``, end not included. `ValueError` for what is no range of ports."""
    numbers = [port_range.start, port_range.stop] if isinstance(port_range, range) else list(port_range)
    if len(numbers) != 2 or not all(isinstance(port, int) for port in numbers):
        raise ValueError(f"a port range is (first, end) with end not included, got {port_range!r}")
    first, end = numbers
    if not 1 <= first < end <= 65536:
        raise ValueError(f"a port range lies within 1 to 65535 and holds a port, got first {first} and end {end}")
    return first, end


def _serve(listener: socket.socket, port: int, family: socket.AddressFamily) -> Any:
    descriptor = listener.detach()
    try:
        return dist.TCPStore(  # type: ignore[attr-defined]
            "::1" if family == socket.AF_INET6 else "127.0.0.1",
            port,
            is_master=True,
            wait_for_workers=False,
            multi_tenant=True,
            master_listen_fd=descriptor,
        )
    except BaseException:
        socket.close(descriptor)
        raise


def _has_ipv6() -> bool:
    if not socket.has_ipv6:
        return False
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
            probe.bind(("::1", 0))
    except OSError:  # compiled in, switched off on this host
        return False
    return True
