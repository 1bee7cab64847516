"""A session on all nodes of a Ray cluster: started by `init`, found by workers, kept through deaths, ended by close."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

import transferqueue as tq
from tests.contract.nodes import jobs
from tests.contract.nodes.ray_nodes import RayNodes, kill, pid_of, ray_nodes_of
from tests.support.nursery import ROOT
from tests.support.sessions import janitors, left_behind, wait_for
from transferqueue import cluster
from transferqueue.cluster.directory_handle import agent_name, directory_name, find_directory
from transferqueue.node_service.node_report import NodeStats
from transferqueue.nodes.local_sessions import local_sessions
from transferqueue.workers.session_client import client_for

pytest.importorskip("pyarrow.flight")
pytestmark = pytest.mark.timeout(300)
LOST_AFTER_S = 4.0
_gone: dict[str, str] = {}  # what was killed -> a name of which nothing may be left at the end


@pytest.fixture(scope="module")
def ray_nodes() -> Iterator[RayNodes]:
    with ray_nodes_of("a", "b", "c") as started:
        yield started


@pytest.fixture(scope="module")
def session(ray_nodes: RayNodes) -> Iterator[tq.Session]:
    """The one that all tests look at, in the order of this file; they change it."""
    os.environ.pop("TRANSFERQUEUE_SESSION", None)
    made = tq.init(**{"storage.size": "16MiB", "cluster.lost_after_s": LOST_AFTER_S})
    # Each test's fixture would take it away, and put it back when the session has ended.
    assert os.environ.pop("TRANSFERQUEUE_SESSION") == made.name
    yield made
    tq.close()


def part_on(ray_nodes: RayNodes, session: tq.Session, letter: str) -> str:
    [found] = local_sessions(session.name, node_id=ray_nodes.id_of(letter))
    return found.paths.name


def agent_on(ray_nodes: RayNodes, session: tq.Session, letter: str) -> str:
    """The name of that node's agent."""
    assert session.attachment.cluster is not None
    return agent_name(session.name, session.attachment.cluster.token, ray_nodes.id_of(letter))


def test_init_starts_it_on_every_node(ray_nodes: RayNodes, session: tq.Session) -> None:
    assert session.creator
    assert cluster.find_session() == session.name
    nodes = session.nodes()
    assert sorted(node.ordinal for node in nodes) == [0, 1, 2]
    assert {node.node_id for node in nodes} == {ray_nodes.id_of(letter) for letter in "abc"}
    assert all(node.alive and node.port and node.session == f"{session.name}.n{node.ordinal}" for node in nodes)
    [here] = [node for node in nodes if node.here]
    assert here.session == session.attachment.paths.name == part_on(ray_nodes, session, "a")
    assert tq.init() is session


def test_a_node_that_comes_later_gets_its_part_and_is_lost_when_it_dies(
    ray_nodes: RayNodes, session: tq.Session
) -> None:
    added = ray_nodes.add("d")
    name, part, *_ = ray_nodes.on("d", jobs.whereabouts)
    assert (name, part) == (session.name, f"{session.name}.n3")
    ray_nodes.remove("d")
    wait_for(lambda: not session.nodes()[3].alive, 60.0, "that the node is lost")
    assert session.nodes()[3].node_id == added
    assert all(node.alive for node in session.nodes()[:3])
    _gone["a node"] = part


def said(job: subprocess.Popen[str], what: str) -> list[str]:
    """The next line of a job that begins so; Ray prints lines of its own between."""
    assert job.stdout is not None
    for line in job.stdout:
        first, *rest = line.split() or [""]
        if first == what:
            return rest
    raise AssertionError(f"the job ended before it said what is {what}")


def test_other_jobs_share_it_by_name_and_have_their_own_without(ray_nodes: RayNodes, session: tq.Session) -> None:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("TRANSFERQUEUE_")}
    job = subprocess.Popen(
        [sys.executable, "-m", "tests.contract.nodes.jobs", ray_nodes.cluster.address, "elsewhere", session.name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**environment, "PYTHONPATH": str(ROOT)},
    )
    try:
        assert said(job, "shared") == [session.name, "False", session.attachment.paths.name]
        own, creator, *parts = said(job, "own")
        assert creator == "True"
        assert own != session.name == cluster.find_session()
        # It spans the nodes that have the resource, and the one of its creator.
        assert sorted(parts) == [f"{own}.n0", f"{own}.n1"]
        assert ray_nodes.on("b", jobs.attach_outcome, own, fresh=True) in parts
        refused = ray_nodes.on("c", jobs.attach_outcome, own, fresh=True)
        assert refused.startswith("SessionNotFoundError")
        assert "cluster.resource is 'b'" in refused
    finally:
        job.kill()  # with its session open
        job.communicate()
    _gone["a job"] = own


def test_workers_find_their_nodes_part_by_themselves(ray_nodes: RayNodes, session: tq.Session) -> None:
    for letter in "abc":
        name, part, environment, _ = ray_nodes.on(letter, jobs.whereabouts)
        assert (name, part, environment) == (session.name, part_on(ray_nodes, session, letter), None)
    metadata = tq.BatchMeta()
    metadata.session = session.name
    assert client_for(metadata).session == session.name


def test_rows_of_nodes_have_indexes_of_their_own(ray_nodes: RayNodes, session: tq.Session) -> None:
    for letter in "ab":
        [found] = local_sessions(session.name, node_id=ray_nodes.id_of(letter))
        first = found.file.ordinal << 50
        assert ray_nodes.on(letter, jobs.make_rows, session.name, f"of-{letter}", 2) == [first, first + 1]


def test_rows_put_on_one_node_are_read_on_the_others(ray_nodes: RayNodes, session: tq.Session) -> None:
    metadata = ray_nodes.on("b", jobs.put_rows, "across", 16)
    assert metadata.session == session.name
    for letter in "ca":
        part, rows, whole = ray_nodes.on(letter, jobs.read_rows, metadata)
        assert (part, rows, whole) == (part_on(ray_nodes, session, letter), list(range(16)), True)
    more = ray_nodes.on("c", jobs.add_field, metadata)
    assert tq.get_data(more, fields=["double"])["double"].tolist() == list(range(0, 32, 2))
    [home] = [node for node in session.nodes() if "across" in node.partitions]
    assert home.session == part_on(ray_nodes, session, "b")


def test_a_killed_agent_comes_back_with_its_rows(ray_nodes: RayNodes, session: tq.Session) -> None:
    rows = ray_nodes.on("b", jobs.make_rows, session.name, "kept", 3)
    agent = agent_on(ray_nodes, session, "b")
    before = pid_of(agent)
    [found] = local_sessions(session.name, node_id=ray_nodes.id_of("b"))
    kill(before)
    wait_for(lambda: pid_of(agent) not in (None, before), 60.0, "a new agent")
    [again] = local_sessions(session.name, node_id=ray_nodes.id_of("b"))
    assert again.file.ordinal == found.file.ordinal
    assert ray_nodes.on("b", jobs.list_rows, session.name, "kept") == rows
    wait_for(lambda: all(node.alive for node in session.nodes()[:3]), what="that everybody knows it")
    assert len(session.nodes()) == 4


def test_a_killed_directory_comes_back_and_is_told_of_all(ray_nodes: RayNodes, session: tq.Session) -> None:
    before = session.nodes()
    directory = pid_of(directory_name(session.name))
    assert directory is not None
    kill(directory)
    wait_for(lambda: len(session.nodes()) == 4, 60.0, "that all agents have joined again")

    def told(nodes: list[NodeStats]) -> list[tuple[int, str, int, bool]]:
        return [(node.ordinal, node.node_id, node.port, node.alive) for node in nodes]

    assert told(session.nodes()) == told(before), "also of the one that was lost"


def test_close_ends_it_on_all_nodes(ray_nodes: RayNodes, session: tq.Session) -> None:
    ray_nodes.on("c", jobs.whereabouts)
    tq.close()
    assert cluster.find_session() is None
    assert [name for name in left_behind(session.name) if f"{session.name}.n3" not in name] == []
    wait_for(lambda: find_directory(session.name) is None, what="the end of the directory")
    agents = [agent_on(ray_nodes, session, letter) for letter in "abc"]
    wait_for(lambda: not any(map(pid_of, agents)), what="the end of the agents")
    assert ray_nodes.on("c", jobs.attach_outcome, session.name, fresh=True).startswith("SessionNotFoundError")
    wait_for(lambda: not janitors(f"{session.name}.n0"), what="the end of the keepers")


@pytest.mark.soak  # a start of its own
@pytest.mark.usefixtures("ray_nodes")
def test_what_keeps_a_node_from_starting_is_told_and_nothing_stays() -> None:
    tq.close()
    with pytest.raises(tq.StorageFullError, match=r"node 1?\d+\..*storage\.size is 1\.0 TiB") as caught:
        tq.init(**{"storage.size": "1TiB"})
    assert caught.value.wanted_bytes is not None
    with pytest.raises(OSError, match=r"node .*no port of cluster\.port=42424"):
        tq.init(session="one-port", **{"storage.size": "16MiB", "cluster.port": 42424})
    wait_for(lambda: not left_behind("one-port"), 60.0, "that nothing is left")
    wait_for(lambda: find_directory("one-port") is None, what="the end of the directory")
    assert cluster.find_session() is None


def test_what_was_killed_leaves_nothing(ray_nodes: RayNodes, session: tq.Session) -> None:
    assert set(_gone) == {"a node", "a job"}
    for what, name in _gone.items():
        wait_for(lambda name=name: not left_behind(name), 60.0, f"that nothing is left of {what}")  # type: ignore[misc]
    wait_for(lambda: find_directory(_gone["a job"]) is None, what="the end of its directory")
