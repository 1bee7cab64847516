"""Two network namespaces of one machine, each with an address of its own, joined by a link whose bandwidth is shaped,
and which can be cut and mended. Needs root and the kernel's namespaces; `unavailable` says why there are none.

    with shaped_network(megabits_a_second=100) as network:
        network.places          # [(namespace, address), (namespace, address)]
        network.cut(); network.mend()
"""

from __future__ import annotations

import os
import secrets
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

_CLONE_NEWNET = 0x40000000


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, timeout=30)


def unavailable() -> str | None:
    """Why this machine cannot have such a network; None: it can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    name = f"tq{secrets.token_hex(3)}"
    try:
        _ip("netns", "add", name)
        try:
            _ip("link", "add", f"{name}a", "type", "veth", "peer", "name", f"{name}b", "netns", name)
            _ip("link", "del", f"{name}a")
        finally:
            _ip("netns", "del", name)
    except FileNotFoundError:
        return "there is no program ip (package iproute2)"
    except subprocess.SubprocessError as error:
        said = getattr(error, "stderr", None) or b""
        return f"this machine gives out no network namespaces: {said.decode().strip() or error}"
    return None


def enter(namespace: str) -> None:
    """This process's threads made from now on, and the calling one, use that namespace's network."""
    import ctypes

    library = ctypes.CDLL(None, use_errno=True)
    fd = os.open(f"/run/netns/{namespace}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        if library.setns(fd, _CLONE_NEWNET) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), namespace)
    finally:
        os.close(fd)


class ShapedNetwork:
    """Two namespaces; `places` are (namespace, address)."""

    def __init__(self, megabits_a_second: float | None) -> None:
        unique = secrets.token_hex(3)
        self._names = [f"tq{unique}-{side}" for side in "ab"]
        self._links = [f"tq{unique}{side}" for side in "ab"]
        # Documentation addresses: nothing else on the machine has them, and they are in the namespaces only.
        self.places = [(self._names[0], "198.51.100.1"), (self._names[1], "198.51.100.2")]
        self._megabits = megabits_a_second

    def make(self) -> None:
        """Everything, or nothing."""
        try:
            for name in self._names:
                _ip("netns", "add", name)
                _ip("-n", name, "link", "set", "lo", "up")
            _ip(
                *("link", "add", self._links[0], "netns", self._names[0], "type", "veth"),
                *("peer", "name", self._links[1], "netns", self._names[1]),
            )
            for (name, address), link in zip(self.places, self._links, strict=True):
                _ip("-n", name, "addr", "add", f"{address}/24", "dev", link)
                _ip("-n", name, "link", "set", link, "up")
                if self._megabits is not None:
                    self._tc(name, "add", "dev", link, "root", *self._shape())
        except BaseException:
            self.remove()
            raise

    def _shape(self) -> list[str]:
        return ["tbf", "rate", f"{self._megabits}mbit", "burst", "256kb", "latency", "100ms"]

    def _tc(self, name: str, *arguments: str) -> None:
        command = ["ip", "netns", "exec", name, "tc", "qdisc", *arguments]
        subprocess.run(command, check=True, capture_output=True, timeout=30)

    def cut(self) -> None:
        """From now on nothing arrives, in either direction; connections stay open and are told nothing."""
        for name, address in self.places:
            # A neighbour that is nobody: packets leave and reach no one. The routes stay, so no error is told either.
            self._neighbour(name, self._other(address), "replace", "lladdr", "02:00:00:00:00:01", "nud", "permanent")

    def mend(self) -> None:
        """Packets arrive again."""
        for name, address in self.places:
            self._neighbour(name, self._other(address), "del")

    def _other(self, address: str) -> str:
        return next(other for _, other in self.places if other != address)

    def _neighbour(self, name: str, address: str, verb: str, *rest: str) -> None:
        link = self._links[self._names.index(name)]
        _ip("-n", name, "neigh", verb, address, "dev", link, *rest)

    def remove(self) -> None:
        """Quiet about what is not there."""
        for name in self._names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True, timeout=30)


@contextmanager
def shaped_network(megabits_a_second: float | None = None) -> Iterator[ShapedNetwork]:
    """Made, and removed at the end. Processes in it must have ended by then."""
    network = ShapedNetwork(megabits_a_second)
    network.make()
    try:
        yield network
    finally:
        network.remove()
