"""A cluster of plain processes on this machine: an agent for each node, workers, all forked by a nursery.

with processes(nursery, 3) as cluster:
    client = cluster.client(1)                      # of this process, on node 1
    worker = cluster.start(2, work, argument)       # work(pipe, client, argument) in a process of node 2
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import secrets
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from tests.support.nursery import Child, Nursery
from tests.support.sessions import wait_for
from transferqueue import _native
from transferqueue.client.cluster_client import ClusterClient
from transferqueue.config import Config, build_config
from transferqueue.errors import TransferQueueError
from transferqueue.node_service.home_service import HomeService
from transferqueue.node_service.members import MemberClient, Members
from transferqueue.nodes.directory.client import DirectoryClient
from transferqueue.nodes.directory.service import DirectoryService
from transferqueue.nodes.link import NodeLink
from transferqueue.nodes.names import first_row, is_hidden
from transferqueue.nodes.node_clients import NodeClients
from transferqueue.nodes.node_sources import NodeSources
from transferqueue.nodes.place import NodePlace
from transferqueue.nodes.rpc_server import RpcServer
from transferqueue.nodes.transport.flight import FlightTransport
from transferqueue.nodes.transport.payload_streams import PayloadStreams
from transferqueue.service import StorageService
from transferqueue.storage.attachment import Attachment, attach
from transferqueue.storage.creation import create_session
from transferqueue.storage.names import SessionPaths, new_session_name
from transferqueue.storage.session_dir import remove_if_dead

HOST = "127.0.0.1"
LOST_AFTER_S = 3.0
GRACE_S = 1.5  # puts of these tests are done sooner
SIZE = "32MiB"


@dataclass(frozen=True)
class Spec:
    """What every process of one node has to know."""

    cluster: str
    ordinal: int
    token: str
    directory_port: int
    size: str = SIZE
    call_s: float = 20.0
    replicas: int = 1

    @property
    def session(self) -> str:
        return f"{self.cluster}.n{self.ordinal}"

    def link(self) -> NodeLink:
        directory = DirectoryClient(HOST, self.directory_port, token=self.token, call_s=self.call_s)
        return NodeLink(
            self.ordinal,
            self.cluster,
            NodeClients(directory, token=self.token),
            directory,
            call_s=self.call_s,
            replicas=self.replicas,
        )

    def config(self) -> Config:
        return build_config({"storage.size": self.size, "cluster.lost_after_s": LOST_AFTER_S})


class Counted(PayloadStreams):
    """Counts the bytes of payload that it gives out."""

    sent_nbytes = 0

    def open(self, ticket: bytes, *, together: bool = False) -> Iterator[tuple[Any, Any]]:
        for header, buffer in super().open(ticket):
            self.sent_nbytes += 0 if buffer is None else buffer.size
            yield header, buffer


def agent(pipe: Connection, spec: Spec, port: int) -> None:
    """The agent of a node, until it is told to stop. Takes its session over where there is one."""
    config = spec.config()
    attachment = create_session(spec.session, config, first_row=first_row(spec.ordinal)) or attach(spec.session)
    service = StorageService(attachment.paths, attachment.store, config)
    service.start()
    streams = Counted(attachment.store)
    server = RpcServer(HOST, port, token=spec.token, handlers={}, streams=streams)
    link = spec.link()
    fetcher = made_client(spec, attachment, service)._fetcher if spec.replicas > 1 else None
    home = HomeService(attachment, config, service, link, fetcher=fetcher)
    home.upkeep.grace_s = GRACE_S
    member = MemberClient(lambda: (HOST, spec.directory_port), token=spec.token, tls=None)
    tested = {"test.sent_nbytes": lambda call: streams.sent_nbytes, "test.replicas": lambda call: replicas_of(home)}
    tested["test.knows"] = lambda call: call.args["partition"] in member.mirror.roles
    tested["test.arm"] = lambda call: _native.arm_pause(call.args["point"], call.args["action"])
    server.add_handlers({**home.handlers(), **tested})
    stopping = threading.Event()

    def join() -> None:
        homes = [name for name in attachment.store.partitions() if not is_hidden(name)]
        roles = {} if home.replicas is None else home.replicas.replication.roles()
        member.join(NodePlace(spec.ordinal, HOST, server.port, spec.session, spec.session), homes, roles)

    def beat() -> None:
        while not stopping.wait(0.5):
            with contextlib.suppress(TransferQueueError):
                if not member.beat(spec.ordinal, {}).known:
                    join()

    join()

    threading.Thread(target=beat, daemon=True).start()
    home.start()
    pipe.send(("ready", server.port))
    with contextlib.suppress(EOFError):
        while pipe.recv() != "stop":
            pass
    faulthandler.dump_traceback_later(20)  # where it hangs, if it does
    stopping.set()
    home.stop()
    server.shutdown()
    service.stop()
    attachment.end()


def directory_process(pipe: Connection, token: str, port: int) -> None:
    """The directory in a process of its own, so that any agent may be killed; started again at the port that it had."""
    directory = DirectoryService(lost_after_s=LOST_AFTER_S, again=port != 0)
    server = RpcServer(HOST, port, token=token, handlers=Members(directory).handlers())
    pipe.send(server.port)
    with contextlib.suppress(EOFError):
        pipe.recv()
    server.shutdown()


def client_of(spec: Spec) -> ClusterClient:
    """As a process of the node makes one."""
    attachment = attach(spec.session)
    return made_client(spec, attachment, StorageService(attachment.paths, attachment.store, spec.config()))


def made_client(spec: Spec, attachment: Attachment, service: StorageService) -> ClusterClient:
    link = spec.link()
    transport = FlightTransport(token=spec.token, where=link.nodes.place)
    return ClusterClient(attachment, spec.config(), service, link, NodeSources(link, transport))


def replicas_of(home: HomeService) -> list[Any]:
    """[partition -> standby of those that the node is home of, rows with one copy]."""
    assert home.replicas is not None
    home.replicas.heal()
    return [dict(home.replicas.replication.homes()), home.replicas.under_replicated]


def worker(pipe: Connection, spec: Spec, work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    """A process of a node."""
    client = client_of(spec)
    try:
        work(pipe, client, *arguments)
    finally:
        client.close()
        client._attachment.detach()


class Processes:
    """A running cluster.

    Attributes:
        agents: by ordinal.
    """

    def __init__(self, nursery: Nursery, nodes: int, size: str, replicas: int = 1) -> None:
        self._nursery = nursery
        self.name = new_session_name()
        token = secrets.token_hex(16)
        self.directory = nursery.start(directory_process, token, 0)
        port = self.directory.receive()
        self.specs = [Spec(self.name, ordinal, token, port, size, replicas=replicas) for ordinal in range(nodes)]
        self.agents: list[Child] = []
        self.ports: list[int] = [0] * nodes
        self._clients: dict[int, ClusterClient] = {}
        for ordinal in range(nodes):
            self.agents.append(nursery.start(agent, self.specs[ordinal], 0))
        for ordinal in range(nodes):
            self.ports[ordinal] = self.agents[ordinal].receive()[1]

    def client(self, ordinal: int) -> ClusterClient:
        """One of this process on that node, made once."""
        found = self._clients.get(ordinal)
        if found is None:
            found = self._clients[ordinal] = client_of(self.specs[ordinal])
        return found

    def start(self, ordinal: int, work: Callable[..., Any], *arguments: Any) -> Child:
        """``work(pipe, client, *arguments)`` in a process of that node."""
        return self._nursery.start(worker, self.specs[ordinal], work, arguments)

    def kill_agent(self, ordinal: int) -> None:
        self.agents[ordinal].kill(signal.SIGKILL)
        self.agents[ordinal].wait()

    def restart_directory(self) -> None:
        """After it was killed."""
        spec = self.specs[0]
        self.directory = self._nursery.start(directory_process, spec.token, spec.directory_port)
        self.directory.receive()

    def restart_agent(self, ordinal: int) -> None:
        self.agents[ordinal] = self._nursery.start(agent, self.specs[ordinal], self.ports[ordinal])
        self.agents[ordinal].receive()

    def sent_nbytes(self) -> int:
        """Bytes of payload that agents have sent."""
        link = self.specs[0].link()
        until_s = time.monotonic() + 10
        return sum(link.call(node.ordinal, "test.sent_nbytes", {}, until_s=until_s) for node in self.specs)

    def replicas(self, ordinal: int) -> list[Any]:
        """See `replicas_of`."""
        found: list[Any] = self.specs[ordinal].link().call(ordinal, "test.replicas", {}, until_s=time.monotonic() + 10)
        return found

    def follower(self, home: int, partition: str) -> int:
        """The ordinal of the partition's standby, once it has one and there are two copies of all rows."""
        wait_for(lambda: self.replicas(home)[1] == 0 and self.replicas(home)[0].get(partition) is not None, 40)
        return int(self.replicas(home)[0][partition])

    def agents_know(self, partition: str) -> None:
        """Returns when all agents remember the partition's home."""
        link, nodes = self.specs[0].link(), [spec.ordinal for spec in self.specs]
        args = {"partition": partition}
        wait_for(lambda: all(link.call(at, "test.knows", args, until_s=time.monotonic() + 10) for at in nodes), 20)

    def arm(self, ordinal: int, point: str, action: str = "kill") -> None:
        """See `arm_pause`: of the node's agent."""
        args = {"point": point, "action": action}
        self.specs[ordinal].link().call(ordinal, "test.arm", args, until_s=time.monotonic() + 10)

    def close(self) -> None:
        for client in self._clients.values():
            client.close()
            client._attachment.detach()
        for child in self.agents:
            with contextlib.suppress(OSError):
                child.pipe.send("stop")
        for child in self.agents:
            child.wait()
        with contextlib.suppress(OSError):
            self.directory.pipe.send("stop")
        self.directory.wait()
        for spec in self.specs:
            remove_if_dead(SessionPaths.of(spec.session))
        assert not [entry for entry in os.listdir("/dev/shm") if self.name in entry]


@contextlib.contextmanager
def processes(nursery: Nursery, nodes: int = 3, size: str = SIZE, replicas: int = 1) -> Iterator[Processes]:
    """A cluster that is ended, and checked to leave nothing."""
    cluster = Processes(nursery, nodes, size, replicas)
    try:
        yield cluster
    finally:
        cluster.close()
