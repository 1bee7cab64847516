"""Nodes of a session for tests, without Ray: `tq node` processes of a nursery, each of them a node of its own on this
machine.

    with Nursery() as nursery, nodes_of(nursery, tmp_path, 2) as cluster:
        cluster.node(1).kill(); cluster.restart(1)
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

from tests.support.nursery import Child, Nursery
from tests.support.sessions import left_behind, wait_for
from transferqueue.storage.names import new_session_name

READY_WITHIN_S = 60.0
LOST_AFTER_S = 3.0
_SIZE = "16MiB"


def run_tq(_: Connection, arguments: list[str], log: str, environment: dict[str, str], network: str | None) -> None:
    """``tq ARGUMENTS`` in a process of the nursery, its output in a file; `network`: in that network namespace."""
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for number in (1, 2):
        os.dup2(output, number)
    if network is not None:
        from tests.support.network import enter

        enter(network)
    os.environ.update(environment)
    from transferqueue import cli

    status = cli.main(arguments)
    sys.stdout.flush()
    os._exit(status)


class NodeProcess:
    """One `tq node`. `endpoint` once it is ready."""

    def __init__(self, nursery: Nursery, arguments: list[str], log: Path, network: str | None = None) -> None:
        self.log = log
        self.arguments = arguments
        self.network = network
        self._seen_nbytes = len(log.read_bytes()) if log.exists() else 0
        self.child: Child = nursery.start(run_tq, arguments, str(log), {}, network)
        self.endpoint = ""

    @property
    def pid(self) -> int:
        return self.child.pid

    def output(self) -> str:
        """What it has printed."""
        return self.log.read_bytes()[self._seen_nbytes :].decode() if self.log.exists() else ""

    def wait_ready(self) -> None:
        """Until it serves; fails the test with its output."""
        until_s = time.monotonic() + READY_WITHIN_S
        while not (ready := [line for line in self.output().splitlines() if line.startswith("node ")]):
            assert time.monotonic() < until_s, f"tq node does not get ready: {self.output()}"
            assert not self.output().startswith("tq node:"), self.output()
            time.sleep(0.02)
        self.endpoint = ready[0].partition(" at ")[2].partition(";")[0]

    def kill(self) -> None:
        """SIGKILL."""
        self.child.kill()
        self.child.wait()

    def stop(self) -> int:
        """SIGTERM; its exit status."""
        self.child.kill(signal.SIGTERM)
        return self.child.wait()


class Nodes:
    """A session on several nodes of this machine; node k is session ``<name>.n<k>``, unless one was made anew."""

    def __init__(
        self,
        nursery: Nursery,
        folder: Path,
        *,
        name: str | None = None,
        settings: dict[str, str] | None = None,
        everywhere: dict[str, str] | None = None,
        networks: list[tuple[str, str]] | None = None,
    ) -> None:
        self.name = name or new_session_name()
        self._nursery = nursery
        self._folder = folder
        self.token_file = folder / "token"
        self._networks = networks or []
        self._settings = {"cluster.lost_after_s": str(LOST_AFTER_S), **(settings or {})}
        self._everywhere = {"logging.level": "WARNING", **(everywhere or {})}
        self.processes: list[NodeProcess] = []

    def _start(self, number: int, port: str | None = None) -> NodeProcess:
        role = ["--head", self.name] if number == 0 else ["--join", self.processes[0].endpoint]
        arguments = ["node", *role, "--token-file", str(self.token_file), "--name", f"machine-{number}"]
        network = None
        if self._networks:
            network, address = self._networks[number]
            arguments += ["--host", address]
        if port is not None:
            arguments += ["--port", port]
        settings = self._settings if number == 0 else {}
        for key, value in {**self._everywhere, **settings}.items():
            arguments += ["--set", f"{key}={value}"]
        if number == 0:
            arguments += ["--size", _SIZE]
        process = NodeProcess(self._nursery, arguments, self._folder / f"node-{number}.log", network)
        process.wait_ready()
        return process

    def add(self) -> NodeProcess:
        """One more node; the first is the head."""
        self.processes.append(self._start(len(self.processes)))
        return self.processes[-1]

    def restart(self, number: int) -> NodeProcess:
        """Starts a node's process again that was killed, with the same arguments; the head at the same port."""
        port = self.processes[0].endpoint.rpartition(":")[2] if number == 0 else None
        self.processes[number] = self._start(number, port)
        return self.processes[number]

    def part(self, number: int) -> str:
        """The session of a node."""
        return f"{self.name}.n{number}"

    def stop(self) -> None:
        """Ends the session by its head, and checks that nothing of it is left. Every node must be running, or killed
        for good."""
        if self.processes:
            status = self.processes[0].stop()
            for process in self.processes[1:]:
                process.child.wait()
            assert status == 0, self.processes[0].output()
        wait_for(lambda: not left_behind(self.name), LOST_AFTER_S + 40.0, "the end of the session")


@contextmanager
def nodes_of(
    nursery: Nursery,
    folder: Path,
    count: int,
    *,
    name: str | None = None,
    settings: dict[str, str] | None = None,
    everywhere: dict[str, str] | None = None,
    networks: list[tuple[str, str]] | None = None,
) -> Iterator[Nodes]:
    """A session on `count` nodes, ended and checked to leave nothing.

    Args:
        settings: dotted keys of the head, which tells the others.
        everywhere: dotted keys that each node is given itself.
        networks: (network namespace, address) of each node; default: all on loopback.
    """
    nodes = Nodes(nursery, folder, name=name, settings=settings, everywhere=everywhere, networks=networks)
    try:
        for _ in range(count):
            nodes.add()
        yield nodes
    except BaseException:
        for process in nodes.processes:
            process.child.kill()
        raise
    nodes.stop()
