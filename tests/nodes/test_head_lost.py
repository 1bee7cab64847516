"""`tq node --head` dies: the other nodes go on, and tell the next head what there is."""

from __future__ import annotations

import os
import signal
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from tests.support.nodes import LOST_AFTER_S, NodeProcess, Nodes, nodes_of, run_tq
from tests.support.nursery import Child, Nursery
from tests.support.sessions import janitors, wait_for
from tests.support.versioned_rows import rows, versions_of
from transferqueue import cli
from transferqueue.nodes.cluster_file import read_cluster_file
from transferqueue.storage.names import SessionPaths
from transferqueue.storage.session_dir import remove_if_dead

pytest.importorskip("pyarrow.flight")
pytestmark = [pytest.mark.timeout(180), pytest.mark.soak]
EIGHT = list(range(8))
KEYS = [f"k{number}" for number in EIGHT]
CALL_S = 2.0


def works(pipe: Connection, part: str) -> None:
    """Of a node; told ("place", partition, node), ("put", partition, version), ("get", partition) or ("nodes",)."""
    import transferqueue as tq

    session = tq.attach(part)
    client = session.client
    while (asked := pipe.recv()) is not None:
        try:
            match asked:
                case "place", partition, node:
                    answer: Any = client.place_partition(partition, node)
                case "put", partition, version:
                    answer = client.kv_batch_put(KEYS, partition, rows(EIGHT, version)).keys
                case "get", partition:
                    answer = versions_of(client.kv_batch_get(KEYS, partition))
                case _:
                    answer = [(node.ordinal, node.alive, node.single_rows) for node in session.nodes()]
        except tq.TransferQueueError as error:
            answer = f"{type(error).__name__}: {error}"
        pipe.send(answer)
    tq.close()


def said(child: Child, *asked: Any) -> Any:
    child.pipe.send(asked)
    return child.receive()


def version(number: int) -> list[tuple[int, int]]:
    return [(row, number) for row in EIGHT]


def alive(child: Child) -> Any:
    nodes = said(child, "nodes")
    return nodes if isinstance(nodes, str) else [node[:2] for node in nodes]


def lose_rows_of_head(nodes: Nodes) -> None:
    """As if its machine had been started anew."""
    nodes.processes[0].kill()
    for pid in janitors(nodes.part(0)):
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: remove_if_dead(SessionPaths.of(nodes.part(0))), what="the rows of the head going")


def knows_all(nodes: Nodes, number: int) -> bool:
    """Whether that node's processes find all nodes without the head."""
    file = read_cluster_file(SessionPaths.of(nodes.part(number)))
    return file is not None and len(file.nodes) == len(nodes.processes)


def end(*children: Child) -> None:
    for child in children:
        child.pipe.send(None)
        assert child.wait() == 0


def test_nodes_go_on_with_the_homes_that_they_know_until_the_head_is_back(nursery: Nursery, tmp_path: Path) -> None:
    with nodes_of(nursery, tmp_path, 3, settings={"cluster.call_s": str(CALL_S)}) as nodes:
        near, far = (nursery.start(works, nodes.part(number)) for number in (1, 2))
        assert said(near, "put", "q", 1) == said(far, "put", "q", 2) == KEYS
        wait_for(lambda: all(knows_all(nodes, number) for number in (1, 2)), what="that they know each other")
        nodes.processes[0].kill()
        assert said(far, "put", "q", 3) == KEYS
        assert said(near, "get", "q") == version(3)
        assert said(near, "put", "q", 4) == KEYS
        assert said(far, "get", "q") == version(4)
        began_s = time.monotonic()
        refused = said(far, "put", "new", 1)
        assert refused.startswith("NodeUnreachableError: the directory at"), refused
        assert nodes.processes[0].endpoint in refused
        assert time.monotonic() - began_s >= CALL_S
        nodes.restart(0)
        assert said(far, "put", "new", 1) == KEYS
        assert said(near, "get", "new") == version(1)
        assert alive(near) == [(0, True), (1, True), (2, True)]
        end(near, far)


def test_a_head_that_lost_its_rows_is_told_by_the_others(nursery: Nursery, tmp_path: Path) -> None:
    with nodes_of(nursery, tmp_path, 3, settings={"cluster.replicas": "2"}) as nodes:
        near, far = (nursery.start(works, nodes.part(number)) for number in (1, 2))
        for node, partition in enumerate(("at-head", "at-near", "at-far")):
            assert said(near, "place", partition, node) == node
            assert said(far, "put", partition, 1) == KEYS
            assert said(near, "put", partition, 2) == KEYS
        wait_for(lambda: [node[2] for node in said(near, "nodes")] == [0, 0, 0], 30, "two copies of all")
        lose_rows_of_head(nodes)
        until_s = time.monotonic() + 2 * LOST_AFTER_S
        number = 3
        while time.monotonic() < until_s:  # its standby says that it is the home, since the directory does not
            assert said(far, "put", "at-near", number) == KEYS
            assert said(far, "get", "at-near") == version(number)
            assert said(near, "get", "at-near") == version(number)
            number += 1
            time.sleep(0.02)
        nodes.restart(0)
        assert alive(far)[1:] == [(1, True), (2, True), (3, True)], (
            "its number names rows of others, and is not used again"
        )
        assert said(far, "get", "at-head") == version(2)
        assert said(near, "put", "at-head", 9) == KEYS
        assert said(far, "get", "at-head") == version(9)
        assert said(near, "put", "at-far", 9) == said(near, "put", "new", 9) == KEYS
        wait_for(lambda: alive(far) == [(0, False), (1, True), (2, True), (3, True)], 20, "the old one being lost")
        end(near, far)


def test_another_node_is_made_head(nursery: Nursery, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with nodes_of(nursery, tmp_path, 3, settings={"cluster.replicas": "2"}) as nodes:
        near, far = (nursery.start(works, nodes.part(number)) for number in (1, 2))
        for node, partition in enumerate(("at-head", "at-near", "at-far")):
            assert said(near, "place", partition, node) == node
            assert said(far, "put", partition, 1) == KEYS
        wait_for(lambda: [node[2] for node in said(near, "nodes")] == [0, 0, 0], 30, "two copies of all")
        old, new, other = nodes.processes
        make = ["node", "--token-file", str(nodes.token_file), "--make-head", new.endpoint]
        assert cli.main(make) == 1
        assert f"the head at {old.endpoint} answers" in capsys.readouterr().err
        old.child.kill(signal.SIGSTOP)
        assert cli.main(make) == 0
        assert f"the head is at {new.endpoint} from now on" in capsys.readouterr().out
        wait_for(lambda: alive(far) == [(0, False), (1, True), (2, True)], 40, "the others following the new head")
        for partition in ("at-head", "at-near", "at-far", "new"):
            assert said(near, "put", partition, 2) == KEYS
            assert said(far, "get", partition) == version(2)
        # The old one, which only stood still, is told, and leaves its rows to the node that joins again.
        old.child.kill(signal.SIGCONT)
        assert old.child.wait() == 1
        assert f"has its head at {new.endpoint} now" in old.output()
        head = ["node", "--head", nodes.name, "--token-file", str(nodes.token_file), "--name", "machine-0"]
        again = nursery.start(run_tq, [*head, "--size", "16MiB"], str(tmp_path / "again"), {}, None)
        assert again.wait() == 1
        assert f"join it with --join {new.endpoint}" in (tmp_path / "again").read_text()
        join = ["node", "--join", other.endpoint, "--token-file", str(nodes.token_file), "--name", "machine-0"]
        nodes.processes = [new, NodeProcess(nursery, join, tmp_path / "joined"), other]
        nodes.processes[1].wait_ready()
        assert alive(far) == [(0, True), (1, True), (2, True)]
        assert said(near, "put", "at-head", 3) == KEYS
        back = nursery.start(works, nodes.part(0))
        assert said(back, "get", "at-head") == version(3)
        end(near, far, back)
