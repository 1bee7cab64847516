from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.crash.world import World
from tests.support.nursery import Nursery
from tests.support.quiet import without_service
from tests.support.sessions import embedded


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    with Nursery() as found:
        yield found


@pytest.fixture(scope="module")
def world(nursery: Nursery) -> Iterator[World]:
    """Closed and looked through for leaks at the end."""
    with embedded() as session, without_service(session):
        found = World(session, nursery)
        yield found
        found.nothing_is_lost()
