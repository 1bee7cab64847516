"""Several processes save to one place, some are killed: there is a whole checkpoint at every moment."""

from __future__ import annotations

import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

import transferqueue as tq
from tests.support.nursery import Nursery
from tests.support.sessions import embedded
from tests.support.versioned_rows import rows, versions_of
from transferqueue.checkpoint import directories
from transferqueue.checkpoint.files import CheckpointFiles

pytestmark = pytest.mark.timeout(120)
SECONDS = 1.5


def save_on(pipe: Connection, session: str, place: str, exchange: bool) -> None:
    """Until told to stop; then says how often it saved, and how often somebody else was just doing so."""
    if not exchange:
        directories.exchange = lambda *_: False  # type: ignore[assignment]
    client = tq.init(session=session).client
    saved = blocked = 0
    pipe.send("started")
    while not pipe.poll():
        try:
            client.save_checkpoint(place, metadata="again")
            saved += 1
        except BlockingIOError:
            blocked += 1
    pipe.send((saved, blocked))
    tq.close()


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery() as found:
        yield found


@pytest.mark.parametrize("exchange", [True, False])
def test_savers_of_one_place(nursery: Nursery, tmp_path: Path, exchange: bool) -> None:
    place = tmp_path / "c"
    with embedded() as session:
        session.client.kv_batch_put(["a", "b"], "p", rows([1, 2], 1))
        session.client.save_checkpoint(place, metadata="first")
        savers = [nursery.start(save_on, session.name, str(place), exchange) for _ in range(3)]
        assert [child.receive() for child in savers] == ["started"] * 3
        until_s = time.monotonic() + SECONDS
        looks = 0
        while time.monotonic() < until_s:
            with CheckpointFiles(place) as files:
                files.verify()
            looks += 1
            if looks % 20 == 0:
                savers[0].kill()
                savers[0].wait()
                savers = [*savers[1:], nursery.start(save_on, session.name, str(place), exchange)]
                assert savers[-1].receive() == "started"
        for child in savers:
            child.pipe.send("stop")
        counts = [child.receive() for child in savers]
        assert [child.wait() for child in savers] == [0] * 3
        assert looks > 20
        assert sum(saved for saved, _ in counts) > 0
        assert sum(blocked for _, blocked in counts) > 0
        session.client.save_checkpoint(place, metadata="last")
        assert [entry.name for entry in tmp_path.iterdir()] == ["c"]
        assert session.client.load_checkpoint(place) == "last"
        assert versions_of(session.client.kv_batch_get(["a", "b"], "p", mode="copy")) == [(1, 1), (2, 1)]
