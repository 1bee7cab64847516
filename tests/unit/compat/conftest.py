"""The compatible face on a session of this process: what it says does not depend on Ray."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.sessions import embedded
from transferqueue.compat import transfer_queue as tq


@pytest.fixture(scope="module")
def system() -> Iterator[None]:
    with embedded(**{"controller.polling_mode": True}):
        yield
        tq.close()


@pytest.fixture
def client(system: None) -> Iterator[tq.TransferQueueClient]:
    """An empty store."""
    tq.kv_list()  # attaches
    found = tq.get_client()
    yield found
    for partition in found.get_partition_list():
        found.clear_partition(partition)
