"""A port for the rendezvous of a group, kept free for it."""

from __future__ import annotations

import socket


class MasterPort:
    """Reserves a TCP port of this host until `release` or the end of the process.

    The socket is bound with SO_REUSEADDR and never listens: the kernel does not hand the port to another process that
    asks for any free one, while a listener that names the port (torch's TCPStore sets SO_REUSEADDR too) gets it.
    Picking a port and closing the socket would leave a window in which two groups pick the same.
    """

    def __init__(self) -> None:
        family = socket.AF_INET6 if _has_ipv6() else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                self._socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            self._socket.bind(("", 0))
        except OSError:
            self._socket.close()
            raise
        self.port: int = self._socket.getsockname()[1]

    def release(self) -> None:
        """Gives the port up. Idempotent."""
        self._socket.close()


def _has_ipv6() -> bool:
    if not socket.has_ipv6:
        return False
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
            probe.bind(("::1", 0))
    except OSError:  # compiled in, switched off on this host
        return False
    return True
