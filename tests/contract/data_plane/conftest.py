"""The same tests against a session of this process and against a `tq serve` in another one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import transferqueue as tq
from tests.support.sessions import embedded, served
from transferqueue.storage.names import new_session_name


@pytest.fixture(scope="module", params=["embedded", "served"])
def session(request: pytest.FixtureRequest) -> Iterator[tq.Session]:
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
