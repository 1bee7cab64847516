"""The directory through its server: what agents and clients see, through restarts and moves."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from tests.unit.transferqueue.nodes.serving import HOST, TOKEN, Proxy, serving
from transferqueue.errors import DataLostError, NodeUnreachableError, TransferTimeoutError
from transferqueue.nodes.directory.client import DirectoryClient
from transferqueue.nodes.directory.service import DirectoryService
from transferqueue.nodes.node_clients import NodeClients
from transferqueue.nodes.rpc_server import RpcServer

pytestmark = pytest.mark.timeout(60)


def soon(seconds: float) -> float:
    return time.monotonic() + seconds


@contextmanager
def directory(port: int = 0, **options: float) -> Iterator[RpcServer]:
    with serving(DirectoryService(**options).handlers(), port=port) as server:
        yield server


def client_of(server: RpcServer) -> DirectoryClient:
    return DirectoryClient(HOST, server.port, token=TOKEN)


def test_nodes_join_and_are_seen_by_others() -> None:
    with directory() as server:
        agent, other = client_of(server), client_of(server)
        assert other.nodes() == []
        joined = agent.join("machine-1", "C.n0", HOST, 4000)
        assert (joined.ordinal, joined.incarnation, joined.not_home) == (0, 1, ())
        assert agent.heartbeat(0, 1)
        [place] = other.nodes(fresh=True)
        assert (place.endpoint, place.session, place.node_id, place.alive) == ((HOST, 4000), "C.n0", "machine-1", True)
        assert other.nodes() == [place]
        assert not other.is_lost(0)
        assert other.is_lost(5)
        other.mark_lost(0)
        assert other.is_lost(0)
        assert not agent.heartbeat(0, 1)
        with pytest.raises(ValueError, match="has that ordinal"):
            agent.join("machine-2", "C.n0", HOST, 4001, ordinal=0)


def test_a_partition_gets_one_home_whoever_asks() -> None:
    with directory() as server:
        clients = [client_of(server) for _ in range(4)]
        for ordinal, client in enumerate(clients):
            client.join(str(ordinal), f"C.n{ordinal}", HOST, 4000 + ordinal)
        assert clients[0].home_of("p", None) is None
        homes: list[int | None] = []
        threads = [
            threading.Thread(target=lambda at=ordinal, client=client: homes.append(client.home_of("p", at)))
            for ordinal, client in enumerate(clients)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(homes) == 4
        assert len(set(homes)) == 1
        assert clients[0].place("q", 2) == 2
        assert clients[1].homes() == {"p": homes[0], "q": 2}
        assert clients[1].partitions() == ["p", "q"]
        clients[1].move("q", 3)
        assert clients[0].home_of("q", None) == 3
        clients[0].forget("q", ordinal=2)
        clients[0].forget("p")
        assert clients[2].partitions() == ["q"]


def test_a_directory_started_anew_waits_for_the_agents() -> None:
    with directory() as server:
        client, port = client_of(server), server.port
        client.join("a", "C.n0", HOST, 4000)
        client.join("b", "C.n1", HOST, 4001)
        client.home_of("p", 1)
        assert len(client.nodes()) == 2
    with directory(port=port, settle_s=1.0):
        assert not client.heartbeat(0, 1)
        client.join("a", "C.n0", HOST, 4000, ordinal=0, incarnation=1, partitions=["q"])
        with pytest.raises(TransferTimeoutError):
            client.home_of("p", 0, until_s=soon(0.2))
        back = {"ordinal": 1, "incarnation": 1, "partitions": ["p"]}
        threading.Timer(0.3, client_of(server).join, ("b", "C.n1", HOST, 4001), back).start()
        assert client.home_of("p", 0) == 1, "not made anew at node 0"
        assert client.home_of("new", 0) == 0
        assert [place.ordinal for place in client.nodes(fresh=True)] == [0, 1]


def test_calls_find_a_node_that_moved_and_notice_one_that_is_lost() -> None:
    with directory(lost_after_s=60.0) as server, ExitStack() as stack:
        at_directory = client_of(server)
        first = stack.enter_context(serving({"who": lambda call: ("first", call.request_id)}))
        at_directory.join("a", "C.n0", HOST, first.port)
        clients = NodeClients(client_of(server), token=TOKEN)
        assert clients.call(0, "who", {}, until_s=soon(20), request_id=bytes(16)) == ("first", bytes(16))
        assert clients.of(0) is clients.of(0)
        first.shutdown()
        answers = []
        waiting = threading.Thread(
            target=lambda: answers.append(clients.call(0, "who", {}, until_s=soon(30), request_id=b"1234567812345678"))
        )
        waiting.start()
        time.sleep(0.2)
        second = stack.enter_context(serving({"who": lambda call: ("second", call.request_id)}))
        at_directory.join("a", "C.n0", HOST, second.port)
        waiting.join(30)
        assert answers == [("second", b"1234567812345678")]
        second.shutdown()
        at_directory.mark_lost(0)
        with pytest.raises(DataLostError, match="lost") as caught:
            clients.call(0, "who", {}, until_s=soon(30))
        assert caught.value.node == "0"
        with pytest.raises(DataLostError, match="no node 9"):
            clients.call(9, "who", {}, until_s=soon(30))
        clients.close()


def test_calls_go_on_while_the_directory_is_away() -> None:
    with serving({"m": lambda call: 1}) as node, directory() as server, Proxy(node.port) as proxy:
        client_of(server).join("a", "C.n0", HOST, proxy.port)
        at_directory = client_of(server)
        clients = NodeClients(at_directory, token=TOKEN)
        assert clients.call(0, "m", {}, until_s=soon(20)) == 1
        server.shutdown()
        assert clients.call(0, "m", {}, until_s=soon(20)) == 1
        proxy.reset()
        assert clients.call(0, "m", {}, until_s=soon(20)) == 1, "a broken connection is made again"
        with pytest.raises(NodeUnreachableError, match="directory"):
            at_directory.home_of("p", 0, until_s=soon(0.3))
