"""The storage service: one per session, outliving failures, keeping memory warm."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import transferqueue as tq
from tests.support.sessions import embedded, in_child, wait_for
from transferqueue.config import build_config
from transferqueue.errors import ClosedError, StorageFullError
from transferqueue.service import StorageService
from transferqueue.service import service as service_module
from transferqueue.storage import session_dir
from transferqueue.storage.names import SessionPaths, new_session_name

pytestmark = pytest.mark.timeout(60)


class Store:
    """Counts its housekeeping; fails when told to."""

    def __init__(self) -> None:
        self.ticks = 0
        self.populated = 0
        self.left_to_make_huge = 40 << 20
        self.error: Exception | None = None

    def reap(self) -> list[tuple[int, int]]:
        self.ticks += 1
        if self.error is not None:
            raise self.error
        return [(7, 4711)] if self.ticks == 1 else []

    def reclaim(self) -> int:
        return 0

    def drop_claims(self) -> int:
        return 0

    def drop_requests(self) -> int:
        return 0

    def sparse_blocks(self, after: int = 0, within: Any = None, spilled: bool = False) -> tuple[Any, ...]:
        return 0, np.empty((0, 6), np.int64), [], np.empty((0, 2), np.int64), np.empty((0, 3), np.int64)

    def populate(self, nbytes: int) -> int:
        granted = min(nbytes, (100 << 20) - self.populated)
        self.populated += granted
        return granted

    def make_huge(self, nbytes: int) -> int:
        granted = min(nbytes, self.left_to_make_huge)
        self.left_to_make_huge -= granted
        return granted


@pytest.fixture
def paths() -> Iterator[SessionPaths]:
    found = SessionPaths.of(new_session_name())
    lock = session_dir.claim_directory(found)
    assert lock is not None
    yield found
    session_dir.remove_session(found)
    lock.close()


def service(paths: SessionPaths, store: Any = None, **options: Any) -> StorageService:
    return StorageService(paths, store or Store(), build_config({"storage.size": 1 << 30, **options}))


def test_one_service_per_session(paths: SessionPaths) -> None:
    first, second = service(paths), service(paths)
    assert first.start()
    assert first.start()
    assert not second.start()
    first.stop()
    assert not first.running
    assert second.start()
    second.stop()
    second.stop()


def test_a_child_does_not_hold_the_service_of_its_parent(paths: SessionPaths) -> None:
    first = service(paths)
    assert first.start()
    # The child lives on while the parent's service ends, and would hold an inherited lock.
    pid = os.fork()
    if pid == 0:
        time.sleep(30)
        os._exit(0)
    first.stop()
    second = service(paths)
    try:
        wait_for(second.start, what="taking the service over")  # once the child has closed what it inherited
    finally:
        second.stop()
        os.kill(pid, 9)
        os.waitpid(pid, 0)


def test_the_dead_are_counted_and_memory_is_touched_ahead(paths: SessionPaths) -> None:
    store = Store()
    found = service(paths, store, **{"storage.populate": "200MiB"})
    found.start()
    # 100 MiB is all there is: populating ends there.
    wait_for(lambda: store.populated == 100 << 20)
    assert found.reaped == 1
    found.stop()


@pytest.mark.parametrize("wanted", [True, False])
def test_memory_in_use_is_made_huge_in_steps_unless_forbidden(paths: SessionPaths, wanted: bool) -> None:
    store = Store()
    before = store.left_to_make_huge
    found = service(paths, store, **{"storage.huge_pages": wanted})
    found.start()
    if wanted:
        wait_for(lambda: store.left_to_make_huge == 0)
        assert store.ticks < 20  # it rests between the steps, and long when nothing is left
    else:
        wait_for(lambda: store.ticks > 1)
        assert store.left_to_make_huge == before
    found.stop()


def test_it_outlives_failures_and_says_each_once(
    paths: SessionPaths, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(service_module, "TICK_S", 0.01)
    store = Store()
    store.error = StorageFullError("the index is full")
    found = service(paths, store)
    found.start()
    wait_for(lambda: store.ticks > 5)
    assert found.running
    store.error = None
    ticks = store.ticks
    wait_for(lambda: store.ticks > ticks + 3)
    found.stop()
    assert len([record for record in caplog.records if "the index is full" in record.getMessage()]) == 1


def test_it_ends_with_its_session(paths: SessionPaths) -> None:
    store = Store()
    store.error = ClosedError("over")
    found = service(paths, store)
    found.start()
    wait_for(lambda: found._thread is not None and not found._thread.is_alive())
    found.stop()


def test_nobody_looks_for_a_missing_service_at_every_call(paths: SessionPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    found = service(paths)
    found.start_if_missing()
    assert found.running
    found.stop()
    found.start_if_missing()  # it was stopped on purpose
    assert not found.running


def test_populating_makes_room_warm() -> None:
    with embedded(**{"storage.populate": "16MiB"}):
        wait_for(lambda: tq.stats().warm_bytes >= 16 << 20, what="populating")


def test_it_frees_what_views_held_without_being_asked() -> None:
    import torch

    with embedded():
        tq.kv_put("k", "p", {"x": torch.zeros(100_000)})
        view = tq.kv_batch_get("k", "p")
        tq.kv_clear("k", "p")
        assert tq.stats().retired_bytes > 0
        del view
        wait_for(lambda: tq.stats().retired_bytes == 0, what="reclaiming")


def test_a_client_that_died_is_gone_after_a_tick() -> None:
    with embedded() as session:
        assert in_child(lambda: (tq.kv_list(), os.kill(os.getpid(), 9))) == -9
        session.service.tick()
        assert [entry.pid for entry in tq.stats().clients] == [os.getpid()]
        leases = Path(session.attachment.paths.directory, "leases")
        assert len(list(leases.iterdir())) <= 1
