from __future__ import annotations

from collections.abc import Iterator

import pytest

import transferqueue as tq
from tests.race.paused import settled
from tests.support.nursery import Nursery
from tests.support.quiet import without_service
from tests.support.sessions import embedded


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery() as found:
        yield found


@pytest.fixture(scope="module")
def session() -> Iterator[tq.Session]:
    with embedded() as found, without_service(found):
        yield found


@pytest.fixture
def client(session: tq.Session) -> Iterator[tq.TransferQueueClient]:
    """An empty store, and one that is empty again afterwards: no lease, no reservation, no retired block stays."""
    yield session.client
    for partition in session.client.get_partition_list():
        session.client.clear_partition(partition)
    settled(session.client)
    assert session.client.stats().used_bytes == 0
