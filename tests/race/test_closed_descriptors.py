"""A program that closes all descriptors, ours among them, and opens files of its own under their numbers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.race import descriptor_closers as closers
from tests.race.paused import settled
from tests.support.nursery import Nursery
from tests.support.sessions import embedded, left_behind
from transferqueue.storage.names import new_session_name

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery() as found:
        yield found


@pytest.mark.parametrize("reopen", [False, True], ids=["closed", "closed and reopened"])
def test_who_joined(nursery: Nursery, tmp_path: Path, reopen: bool) -> None:
    """Every call raises ClosedError, nothing is written into the program's files and none of them is closed; what was
    read stays readable; attaching again works; nobody else notices, and what was pending is given back."""
    with embedded() as session:
        mine = session.client.put(closers.batch(3), partition_id="mine")
        child = nursery.start(closers.close_and_go_on, session.name, str(tmp_path), False, reopen)
        errors, damage, intact, again = child.receive()
        assert child.wait() == 0
        assert set(errors.values()) == {"ClosedError"}, errors
        assert damage == []
        assert intact
        assert again
        assert torch.equal(session.client.get_data(mine)["x"], closers.batch(3)["x"])
        session.client.clear_partition("p")
        session.client.clear_partition("mine")
        settled(session.client)
        session.client._store.check()
        assert session.client.stats().used_bytes == 0


@pytest.mark.parametrize("reopen", [False, True], ids=["closed", "closed and reopened"])
def test_who_created(nursery: Nursery, tmp_path: Path, reopen: bool) -> None:
    """The creator, which runs the service: the same, and the session is removed."""
    name = new_session_name()
    child = nursery.start(closers.close_and_go_on, name, str(tmp_path), True, reopen)
    errors, damage, intact, _ = child.receive()
    assert child.wait() == 0
    assert set(errors.values()) == {"ClosedError"}, errors
    assert damage == []
    assert intact
    assert left_behind(name) == []
