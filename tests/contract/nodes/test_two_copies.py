"""``cluster.replicas=2`` on Ray: nodes die as machines do, and with them the directory."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

import pytest

import transferqueue as tq
from tests.contract.nodes import jobs
from tests.contract.nodes.ray_nodes import RayNodes, kill, pid_of, ray_nodes_of
from tests.support.sessions import left_behind, wait_for
from transferqueue.cluster.directory_handle import directory_name

pytest.importorskip("ray")
pytest.importorskip("pyarrow.flight")
pytestmark = [pytest.mark.timeout(400), pytest.mark.soak]
SETTINGS: dict[str, Any] = {"storage.size": "16MiB", "cluster.lost_after_s": 4.0, "cluster.replicas": 2}


@pytest.fixture
def ray_nodes() -> Iterator[RayNodes]:
    with ray_nodes_of("a", "b", "c") as nodes:
        os.environ.pop("TRANSFERQUEUE_SESSION", None)
        yield nodes


def homes(session: tq.Session) -> dict[str, int]:
    return {name: node.ordinal for node in session.nodes() for name in node.partitions}


def wait_for_two_copies(session: tq.Session, nodes: int) -> None:
    """Of all partitions and rows, told by `nodes` living nodes, and told again by what they say a while later."""

    def single() -> list[Any]:
        return [(node.single_rows, node.single_partitions) for node in session.nodes() if node.alive]

    for _ in range(3):
        wait_for(lambda: single() == [(0, 0)] * nodes, 60.0, "two copies of all")
        time.sleep(1.5)  # a node says once a second what it has


def test_nodes_die(ray_nodes: RayNodes) -> None:
    session = tq.init(**SETTINGS)
    try:
        first = ray_nodes.on("b", jobs.put_rows, "first", 16)
        taken = tq.get_meta("row", 4, "first", task_name="t", polling_mode=True)
        second = ray_nodes.on("c", jobs.put_rows, "second", 16)
        before = homes(session)
        wait_for_two_copies(session, 3)
        ray_nodes.remove("b")
        assert ray_nodes.on("c", jobs.read_rows, first)[1:] == (list(range(16)), True)
        wait_for(lambda: homes(session).get("first", before["first"]) != before["first"], 60.0, "another home")
        assert ray_nodes.on("c", jobs.read_rows, first)[1:] == (list(range(16)), True)
        wait_for_two_copies(session, 2)
        kill(pid_of(directory_name(session.name)))
        ray_nodes.remove("c")
        for metadata in (first, second):
            found = tq.get_data(metadata, timeout=120)
            assert found["row"].tolist() == list(range(16))
        rest = tq.get_meta("row", 12, "first", task_name="t", timeout=60)
        assert set(rest.global_indexes) == set(first.global_indexes) - set(taken.global_indexes)
        [here] = [node.ordinal for node in session.nodes() if node.here]
        assert set(homes(session).values()) == {here}
    finally:
        tq.close()
        wait_for(lambda: not left_behind(session.name), 60.0, "the parts of the nodes that died going")
