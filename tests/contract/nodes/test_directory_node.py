"""The node that dies is the one on which Ray runs the session's directory: the creator's, which is not the driver's."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

import transferqueue as tq
from tests.contract.nodes import jobs
from tests.contract.nodes.ray_nodes import RayNodes, kill, node_of, pid_of, ray_nodes_of
from tests.support.sessions import left_behind, wait_for
from transferqueue.cluster.directory_handle import ask, directory_name, find_directory

pytest.importorskip("ray")
pytest.importorskip("pyarrow.flight")
pytestmark = [pytest.mark.timeout(400), pytest.mark.soak]


@pytest.fixture
def ray_nodes() -> Iterator[RayNodes]:
    with ray_nodes_of("a", "b", "c") as nodes:
        os.environ.pop("TRANSFERQUEUE_SESSION", None)
        yield nodes


def alive(session: tq.Session) -> dict[str, bool]:
    return {node.node_id: node.alive for node in session.nodes()}


def moved_off(nodes: RayNodes, letter: str, actor: str) -> str:
    """The letter of the node on which the actor is, which Ray starts again until it is not the given one.

    It is asked to be on its creator's node, and comes to another while Ray's nodes do not know of each other yet.
    """
    while True:
        wait_for(lambda: node_of(actor) is not None, 60.0, f"the start of {actor}")
        if (there := nodes.letter_of(node_of(actor))) != letter:
            return there
        kill(pid_of(actor))


@pytest.mark.parametrize("replicas", [1, 2])
def test_the_rest_goes_on(ray_nodes: RayNodes, replicas: int) -> None:
    settings = {"storage.size": "16MiB", "cluster.lost_after_s": 4.0, "cluster.replicas": replicas}
    creator = ray_nodes.ray.remote(jobs.Creator).options(num_cpus=0, resources={"b": 1.0}).remote(settings)
    name = ray_nodes.ray.get(creator.made.remote(), timeout=120.0)
    session = tq.init()
    try:
        assert (session.name, session.creator) == (name, False)
        directory = directory_name(name)
        dying = moved_off(ray_nodes, "a", directory)
        [other] = {"b", "c"} - {dying}
        here = ray_nodes.on("a", jobs.put_rows, "here", 16)
        there = ray_nodes.on(other, jobs.put_rows, "there", 16)
        gone = ray_nodes.on(dying, jobs.put_rows, "gone", 16)
        taken = {part: tq.get_meta("row", 4, part, task_name="t", polling_mode=True) for part in ("here", "gone")}
        if replicas == 2:
            wait_for(lambda: [(n.single_rows, n.single_partitions) for n in session.nodes()] == [(0, 0)] * 3, 60.0)
        lost = ray_nodes.id_of(dying)
        ray_nodes.remove(dying)
        # Whose homes are known goes on while there is no directory.
        assert tq.get_data(here)["row"].tolist() == list(range(16))
        assert tq.get_data(there)["row"].tolist() == list(range(16))
        assert len(tq.get_meta("row", 4, "here", task_name="t", timeout=60).global_indexes) == 4
        wait_for(lambda: node_of(directory) not in (None, lost), 120.0, "a directory elsewhere")
        wait_for(lambda: alive(session).get(lost) is False, 60.0, "that the node is lost")
        new = ray_nodes.on(other, jobs.put_rows, "new", 8)
        assert tq.get_data(new, timeout=60)["row"].tolist() == list(range(8))
        if replicas == 2:
            assert tq.get_data(gone, timeout=60)["row"].tolist() == list(range(16))
            rest = tq.get_meta("row", 12, "gone", task_name="t", timeout=60)
            assert set(rest.global_indexes) == set(gone.global_indexes) - set(taken["gone"].global_indexes)
        else:
            with pytest.raises(tq.DataLostError, match="'gone'"):
                tq.get_data(gone, timeout=60)
            tq.get_client().clear_partition("gone")
            assert "gone" not in tq.get_client().get_partition_list()
        # The new directory sees to it that nodes that come have an agent.
        ray_nodes.add("d")
        assert ray_nodes.on("d", jobs.read_rows, there)[1:] == (list(range(16)), True)
    finally:
        tq.close()
        ask(find_directory(name), "end")  # its creator is dead
        wait_for(lambda: find_directory(name) is None, 60.0, "the end of the directory")
        wait_for(lambda: not left_behind(name), 60.0, "the parts of all nodes going")
