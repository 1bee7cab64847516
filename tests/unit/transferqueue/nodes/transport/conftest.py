"""A store with payload to pull, and a server of it over plain TCP."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tests.unit.native.native_session import NativeSession, new_session, put
from tests.unit.transferqueue.nodes.transport.plain_tcp import server_of
from transferqueue._native import Store
from transferqueue.nodes.transport.payload_server import PayloadServer
from transferqueue.nodes.transport.payload_streams import PayloadStreams
from transferqueue.nodes.transport.protocol import PayloadRequest


@pytest.fixture(scope="module")
def session() -> Iterator[NativeSession]:
    with new_session(96 << 20) as made:
        yield made


@pytest.fixture(scope="module")
def store(session: NativeSession) -> Iterator[Store]:
    attached = session.attach()
    yield attached
    attached.close()


@pytest.fixture(scope="module")
def what(request: pytest.FixtureRequest, store: Store) -> PayloadRequest:
    """One field of the module's `ROWS` rows of `ROW_NBYTES`."""
    rows, row_nbytes = request.module.ROWS, request.module.ROW_NBYTES
    values = np.random.default_rng(1).integers(0, 256, (rows, row_nbytes), dtype=np.uint8)
    return PayloadRequest("p", put(store, "p", {"a": values}).indexes, ("a",))


@pytest.fixture
def server(store: Store) -> Iterator[PayloadServer]:
    with server_of(PayloadStreams(store)) as served:
        yield served
