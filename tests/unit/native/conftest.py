from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.native.native_session import NativeSession, new_session
from transferqueue._native import Store


@pytest.fixture
def session() -> Iterator[NativeSession]:
    with new_session() as made:
        yield made


@pytest.fixture
def store(session: NativeSession) -> Iterator[Store]:
    attached = session.attach()
    yield attached
    attached.close()
