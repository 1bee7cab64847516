"""The same tests against a session of this process, against a `tq serve` in another one, and (with ``TQ_ELSEWHERE=1``)
against a node whose partitions all have their home on another one."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

import transferqueue as tq
from tests.nodes.one_process import one_process
from tests.support.sessions import SIZE, embedded, served
from transferqueue.session import _process
from transferqueue.storage.names import new_session_name

_WHERE = ["elsewhere"] if os.environ.get("TQ_ELSEWHERE") else ["embedded", "served"]


@pytest.fixture(scope="module", params=_WHERE)
def session(request: pytest.FixtureRequest) -> Iterator[tq.Session]:
    if request.param == "elsewhere":
        with one_process(2, **{"storage.size": SIZE}) as cluster:
            cluster.all_homes = 0
            for node in cluster.at:
                node.home.start()
            node = cluster.at[1]
            found = tq.Session(node.attachment, node.config, creator=False)
            found._client = node.client
            monkeypatch = pytest.MonkeyPatch()
            monkeypatch.setattr(_process, "session", found)
            yield found
            monkeypatch.undo()
        return
    if request.param == "embedded":
        with embedded() as found:
            yield found
        return
    name = new_session_name()
    with served(name):
        found = tq.init(session=name)
        assert not found.creator
        try:
            yield found
        finally:
            tq.close()


@pytest.fixture
def client(session: tq.Session) -> Iterator[tq.TransferQueueClient]:
    """An empty store; a test that leaves rows or leases in use is one that left views alive."""
    found = tq.get_client()
    yield found
    for partition in found.get_partition_list():
        found.clear_partition(partition)
