from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.crash.world import World
from tests.support.nursery import Nursery
from tests.support.sessions import embedded


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery() as found:
        yield found


@pytest.fixture(scope="module")
def world(nursery: Nursery) -> Iterator[World]:
    """Closed and looked through for leaks at the end."""
    with embedded() as session:
        found = World(session, nursery)
        try:
            yield found
            found.nothing_is_lost()
        finally:
            found.close()
