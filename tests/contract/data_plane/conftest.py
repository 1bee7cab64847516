"""The same tests against a session of this process, against a `tq serve` in another one, and against a node whose
partitions all have their home on another one. There the modules that take long are `soak`;
``pytest tests/contract/data_plane -m "soak or not soak" -k elsewhere`` runs all of them, within a minute.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

import transferqueue as tq
from tests.nodes.one_process import OneProcess, one_process
from tests.support.sessions import SIZE, embedded, served, wait_for
from transferqueue.node_service.references import References
from transferqueue.session import _process
from transferqueue.storage.names import new_session_name

_LONG_ELSEWHERE = ("test_async", "test_huge_pages", "test_space", "test_threads")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "place" in metafunc.fixturenames:
        marks = [pytest.mark.soak] if metafunc.module.__name__.endswith(_LONG_ELSEWHERE) else []
        places = ["embedded", "served", pytest.param("elsewhere", marks=marks)]
        metafunc.parametrize("place", places, indirect=True, scope="module")


@dataclass(frozen=True)
class Place:
    """Where the tests of a module work.

    Attributes:
        session: of this process.
        nodes: of a session of several nodes, whose partitions have their home on the first, while `session` is a
            process's on the second.
    """

    session: tq.Session
    nodes: OneProcess | None = None


@pytest.fixture(scope="module")
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    if request.param == "elsewhere":
        with one_process(2, **{"storage.size": SIZE}) as nodes:
            nodes.all_homes = 0
            for node in nodes.at:
                node.home.start()
            node = nodes.at[1]
            found = tq.Session(node.attachment, node.config, creator=False)
            found._client = node.client
            monkeypatch = pytest.MonkeyPatch()
            monkeypatch.setattr(_process, "session", found)
            yield Place(found, nodes)
            monkeypatch.undo()
        return
    if request.param == "embedded":
        with embedded() as found:
            yield Place(found)
        return
    name = new_session_name()
    with served(name):
        found = tq.init(session=name)
        assert not found.creator
        try:
            yield Place(found)
        finally:
            tq.close()


@pytest.fixture
def session(place: Place) -> tq.Session:
    return place.session


@pytest.fixture
def client(place: Place) -> Iterator[tq.TransferQueueClient]:
    """An empty store; a test that leaves rows or leases in use is one that left views alive."""
    found = tq.get_client()
    yield found
    for partition in found.get_partition_list():
        found.clear_partition(partition)


@pytest.fixture
def client_at_home(place: Place, client: tq.TransferQueueClient) -> tq.TransferQueueClient:
    """Whose methods look at the partitions' index and run samplers: those of the home's agent where that is elsewhere.
    For tests that reach into them."""
    return client if place.nodes is None else place.nodes.at[0].home.client


@pytest.fixture
def until_freed(place: Place) -> Callable[[], None]:
    """Returns when the room of what was cleared is given back. That is at once where index and payload are of one
    node; else the home tells the node of the payload ten times a second what it names no more."""
    nodes = place.nodes
    if nodes is None:
        return lambda: None
    home, payload = References(nodes.at[0].store), nodes.at[1].client._payload
    return lambda: wait_for(lambda: home.named(payload.all_names()).all(), what="the release of names")


@pytest.fixture
def forkable(place: Place) -> None:
    """For tests whose child puts something."""
    if place.nodes is not None:
        pytest.skip("the home's agent is a part of this process: a child has a copy of it, which the others never ask")
