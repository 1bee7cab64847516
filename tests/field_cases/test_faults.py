"""Section D of the field cases: processes that die, leave or hang; shared memory that is short, taken or removed."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import posix_ipc
import pytest
import torch
from tensordict import NonTensorStack, TensorDict

import transferqueue as tq
from tests.field_cases import fault_deeds
from tests.support.nursery import Child, Nursery
from tests.support.other_users import AS_ROOT, OTHER
from tests.support.sessions import embedded, left_behind, run_python, wait_for, wait_until_gone
from transferqueue.storage import creation
from transferqueue.storage.names import SessionPaths, new_session_name

pytestmark = pytest.mark.timeout(120)
MIB = 1 << 20


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery() as found:
        yield found


@pytest.fixture
def session() -> Iterator[tq.Session]:
    with embedded() as found:
        yield found


def end(child: Child) -> None:
    child.pipe.send("go on")
    assert child.wait() == 0


@pytest.mark.parametrize("rounds", [30, pytest.param(450, marks=pytest.mark.soak)])
def test_field_case_62_children_attach_and_close_a_thousand_times(
    nursery: Nursery, session: tq.Session, rounds: int
) -> None:
    """As often in the soak."""
    tq.kv_put("k", "p", {"x": torch.arange(3)})
    forked = [nursery.start(fault_deeds.attach_and_close, session.name, rounds) for _ in range(2)]
    spawned = "import sys, transferqueue as tq\nfor _ in range(40):\n    tq.attach(sys.argv[1]).close()\nprint('done')"
    assert run_python(spawned, session.name) == "done\n"  # and nothing on stderr
    for child in forked:
        assert child.receive() == "done"
        assert child.wait() == 0
    assert tq.kv_batch_get("k", "p")["x"].tolist() == [[0, 1, 2]]
    assert len(left_behind(session.name)) == 4
    session.close()
    assert left_behind(session.name) == []


def test_field_case_63_an_attach_that_fails_removes_nothing(nursery: Nursery, session: tq.Session) -> None:
    tq.kv_put("k", "p", {"x": torch.arange(3)})
    child = nursery.start(fault_deeds.attach_under_a_limit, session.name)
    failed, found = child.receive()
    assert failed
    assert found == [[0, 1, 2]]
    assert child.wait() == 0
    assert len(left_behind(session.name)) == 4
    assert tq.kv_batch_get("k", "p")["x"].tolist() == [[0, 1, 2]]


def test_field_case_64_closing_with_live_views_neither_raises_nor_hides_an_error() -> None:
    name = new_session_name()
    views: list[torch.Tensor] = []

    def step() -> None:
        with tq.init(session=name, **fault_deeds.SMALL) as session:
            tq.kv_put("k", "p", {"x": torch.arange(100_000)})
            views.append(tq.kv_batch_get("k", "p")["x"])
            session.client.close()
            views[0][0, 0] = 7
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        step()
    assert left_behind(name) == []
    assert views[0][0].tolist() == [7, *range(1, 100_000)]
    views.clear()


def test_field_case_68_services_start_at_once_beside_stale_segments(nursery: Nursery) -> None:
    stale = [new_session_name() for _ in range(4)]
    children = [nursery.start(fault_deeds.leave_a_dead_session, name) for name in stale]
    for child in children:
        child.receive()
    for child in children:
        child.kill()
        child.wait()
    with contextlib.suppress(FileNotFoundError):  # other tests may clean up at the same time
        os.rename(SessionPaths.of(stale[0]).directory, f"/dev/shm/.tq-gone-{os.getuid()}-0-{stale[0]}")
    names = [new_session_name() for _ in range(8)]
    services = [nursery.start(fault_deeds.serve, name) for name in names]
    for service in services:
        service.receive()
    for service in services:
        service.pipe.send("start")
    assert [service.receive() for service in services] == [True] * 8
    for name in stale:
        wait_until_gone(name)
    for service, name in zip(services, names, strict=True):
        assert left_behind(name)
        end(service)
        assert left_behind(name) == []


@AS_ROOT
def test_field_case_69_another_users_leftovers_are_skipped_with_one_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    name = new_session_name()
    ours, theirs = SessionPaths(name, os.getuid()), SessionPaths(name, OTHER)
    stale = Path(f"/dev/shm{SessionPaths(f'{name}-stale', os.getuid()).segment('.ctl')}")
    files = [stale, *(Path(f"/dev/shm{theirs.segment(ending)}") for ending in (".ctl", ".tbl", ".dat"))]
    try:
        for file in files:
            file.touch()
            os.chown(file, OTHER, OTHER)
        for _ in range(2):
            with tq.init(session=name, **fault_deeds.SMALL) as session:
                assert session.attachment.paths == ours
                tq.kv_put("k", "p", {"x": torch.tensor(1)})
                assert tq.kv_batch_get("k", "p")["x"].tolist() == [1]
        assert all(file.exists() for file in files)
        assert caplog.text.count(str(stale)) == 1
        assert f"uid {OTHER}" in caplog.text
    finally:
        for file in files:
            file.unlink()
    assert left_behind(name) == []


def test_field_case_70_killed_readers_leave_nothing(nursery: Nursery, session: tq.Session) -> None:
    tq.kv_put("k", "p", {"x": torch.ones(100_000)})

    def state() -> tuple[list[str], list[str], int]:
        leases = os.listdir(f"{session.attachment.paths.directory}/leases")
        names = fault_deeds.names_with("tq-") + fault_deeds.names_with(session.name)
        return [name for name in names if session.name in name], leases, len(tq.stats().clients)

    before = state()
    for _ in range(10):
        readers = [nursery.start(fault_deeds.read_only, session.name) for _ in range(10)]
        assert [reader.receive() for reader in readers] == [100_000] * 10
        for reader in readers:
            reader.kill()
        assert [reader.wait() for reader in readers] == [-signal.SIGKILL] * 10
    session.service.tick()
    assert state() == before
    assert tq.stats().leased_bytes == 0


def test_field_case_72_what_an_aborted_step_did_not_read_is_counted_and_freed(
    nursery: Nursery, session: tq.Session
) -> None:
    tq.put(TensorDict({"x": torch.ones(4, 100_000)}, [4]), partition_id="p")
    step = nursery.start(fault_deeds.take_a_batch, session.name)
    assert step.receive() == 4
    step.kill()
    step.wait()
    found = tq.stats("p")
    assert found.rows["unconsumed"] == 4
    assert found.used_bytes >= 4 * 100_000 * 4
    tq.clear_partition("p")
    wait_for(lambda: tq.stats().used_bytes == 0, what="freeing")
    assert tq.stats().rows.get("unconsumed", 0) == 0


def test_field_case_74_a_small_dev_shm_is_said_at_the_start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With a file system of that size mounted: `tests/hostile/test_small_shm.py`."""
    real = creation.free_bytes
    small = {"/dev/shm": (60 * MIB, 64 * MIB)}
    monkeypatch.setattr(creation, "free_bytes", lambda directory: small.get(directory) or real(directory))
    name = new_session_name()
    with pytest.raises(tq.StorageFullError, match=r"1\.0 GiB.*60\.0 MiB free of 64\.0 MiB.*--shm-size.*storage\.dir"):
        tq.init(session=name, **{"storage.size": "1GiB"})
    assert left_behind(name) == []
    with embedded(**{"storage.size": "32MiB", "storage.dir": str(tmp_path)}):  # what the message proposes
        assert [path.suffix for path in tmp_path.iterdir()] == [".dat"]
    assert not list(tmp_path.iterdir())


def test_field_case_75_a_put_that_does_not_fit_leaves_nothing_of_itself() -> None:
    def rows(count: int) -> TensorDict:
        return TensorDict({"x": torch.ones(count, MIB, dtype=torch.uint8)}, [count])

    with embedded(**{"storage.size": "17MiB", "put.timeout_s": 0}) as session:
        client = session.client
        first = client.put(rows(12), partition_id="first")
        with pytest.raises(tq.StorageFullError) as caught:
            client.put(rows(8), partition_id="second")
        assert (caught.value.wanted_bytes or 0) >= 8 * MIB
        assert client.get_partition_list() == ["first"]
        assert client.get_data(first)["x"].shape == (12, MIB)
        assert client.stats().pending_bytes == 0
        client.clear_partition("first")
        assert int(client.get_data(client.put(rows(16), partition_id="third"))["x"].sum()) == 16 * MIB


def test_field_case_77_cold_rows_go_to_disk_and_come_back(tmp_path: Path) -> None:
    sizes = {"storage.size": "16MiB", "spill.dir": str(tmp_path), "spill.size": "64MiB"}
    with embedded(**sizes) as session:
        client = session.client
        metas = [
            client.put(
                TensorDict({"x": torch.full((4, MIB), number, dtype=torch.uint8)}, [4]), partition_id=f"p{number}"
            )
            for number in range(8)
        ]
        stats = client.stats()
        assert stats.spilled_bytes >= 16 * MIB
        assert stats.used_bytes >= 32 * MIB - stats.spilled_bytes
        for number, meta in enumerate(metas):
            rows = client.get_data(meta)["x"]
            assert rows.shape == (4, MIB)
            assert bool((rows == number).all())
            del rows
    assert not list(tmp_path.iterdir())


def test_field_case_79_segments_removed_by_the_system(nursery: Nursery) -> None:
    for ending in (".ctl", ".tbl", ".dat"):
        with embedded() as session:
            tq.kv_put("k", "p", {"x": torch.arange(50_000)})
            view = tq.kv_batch_get("k", "p")["x"]
            segment = session.attachment.paths.segment(ending)
            posix_ipc.unlink_shared_memory(segment)
            assert view.sum() == tq.kv_batch_get("k", "p")["x"].sum() == sum(range(50_000))
            tq.kv_put("l", "p", {"x": torch.arange(3)})
            child = nursery.start(fault_deeds.join_and_read, session.name)
            kind, text = child.receive()
            assert kind == "CorruptSegmentError"
            assert segment in text
            assert child.wait() == 0
        # The end of the block closed the session, whose segment is gone, without an error.


def test_field_case_81_a_row_that_cannot_be_read_is_an_error_and_never_none(session: tq.Session) -> None:
    rows = ["a", None, 2, fault_deeds.Breaks(), "e", None, {"f": 1}, "h"]
    meta = tq.put(TensorDict({"x": NonTensorStack(*rows), "y": torch.arange(8)}, [8]), partition_id="p")
    with pytest.raises(tq.RowDecodeError, match=r"row 3 .*lost on the way") as caught:
        list(tq.get_data(meta)["x"])
    assert caught.value.row == 3
    others = [0, 1, 2, 4, 5, 6, 7]
    assert list(tq.get_data(meta.select_samples(others))["x"]) == [rows[row] for row in others]
    tq.clear_samples(meta.select_samples([5]))
    with pytest.raises(tq.StaleMetadataError) as gone:
        tq.get_data(meta, fields=["y"])
    assert gone.value.rows == (meta.global_indexes[5],)


def test_field_case_82_a_process_that_holds_the_interpreters_lock_is_alive(
    nursery: Nursery, session: tq.Session
) -> None:
    tq.kv_put("k", "p", {"x": torch.ones(500_000)})
    busy = nursery.start(fault_deeds.hold_the_gil, session.name, 2)
    assert busy.receive() == "holding"
    reaped = session.service.reaped
    tq.kv_clear("k", "p")
    tq.kv_put("k", "p", {"x": torch.ones(500_000)})
    for _ in range(40):  # as much housekeeping as 40 s bring
        session.service.tick()
        tq.kv_put("other", "q", {"x": torch.full((500_000,), 5.0)})
        tq.kv_clear("other", "q")
    assert [client.pid for client in tq.stats().clients if client.pid == busy.pid] == [busy.pid]
    assert busy.receive() == (500_000, True)
    assert session.service.reaped == reaped
    assert busy.wait() == 0


def test_field_case_83_data_stays_when_its_writer_has_ended(nursery: Nursery, session: tq.Session) -> None:
    producer = nursery.start(fault_deeds.put_and_exit, session.name)
    meta = producer.receive()
    assert producer.wait() == 0
    assert fault_deeds.is_locked(session.attachment.paths.service_lock), "its owner is the service, here"
    reader = nursery.start(fault_deeds.get_all, meta)
    assert reader.receive() == sum(range(50_000))
    assert reader.wait() == 0


def test_field_case_86_a_view_in_a_cycle_is_listed_and_freed_when_collected(session: tq.Session) -> None:
    tq.kv_put("k", "p", {"x": torch.ones(500_000)})
    gc.collect()
    gc.disable()
    try:
        cycle: list[object] = [tq.kv_batch_get("k", "p")["x"]]
        cycle.append(cycle)
        tq.clear_partition("p")
        del cycle
        session.service.tick()
        (lease,) = session.leases()  # what `tq leases` shows
        assert (lease.pid, lease.partition, lease.retired) == (os.getpid(), "p", True)
        assert lease.pinned_bytes >= 2_000_000
        gc.collect()
    finally:
        gc.enable()
    wait_for(lambda: tq.stats().leased_bytes == 0, what="giving the lease back")
    session.service.tick()
    assert tq.stats().used_bytes + tq.stats().retired_bytes == 0
