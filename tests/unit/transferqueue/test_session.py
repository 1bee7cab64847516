"""The life of a session: who creates, joins, inherits, ends and removes it."""

from __future__ import annotations

import ctypes
import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import torch
from tensordict import TensorDict

import transferqueue as tq
from tests.support.sessions import (
    SIZE,
    Forked,
    embedded,
    in_child,
    left_behind,
    run_python,
    served,
    start_service,
    stop,
    wait_for,
)
from transferqueue.process_state import ProcessState
from transferqueue.storage.names import new_session_name

pytestmark = pytest.mark.timeout(120)
SMALL = {"storage.size": SIZE}


def numbers(rows: int = 4) -> TensorDict:
    return TensorDict({"x": torch.arange(rows)}, [rows])


@pytest.fixture(autouse=True)
def no_session_before_or_after() -> Iterator[None]:
    tq.close()
    yield
    tq.close()


def test_init_twice_is_one_session_and_close_twice_is_quiet() -> None:
    session = tq.init(**SMALL)
    assert tq.init() is session
    assert tq.init(session=session.name) is session
    with pytest.raises(ValueError, match=f"{session.name}.*another"):
        tq.init(session="another")
    tq.close()
    tq.close()
    session.close()
    assert left_behind(session.name) == []


def test_after_close_calls_say_so_until_init() -> None:
    session = tq.init(**SMALL)
    client = tq.get_client()
    tq.close()
    for call in (lambda: client.put(numbers(), partition_id="p"), tq.get_client, lambda: tq.kv_list()):
        with pytest.raises(tq.ClosedError, match=session.name):
            call()
    again = tq.init(**SMALL)
    assert again.name != session.name
    assert tq.kv_list() == {}


def test_use_before_init_says_call_init(monkeypatch: pytest.MonkeyPatch) -> None:
    from transferqueue import session as session_module

    monkeypatch.setattr(session_module, "_process", ProcessState())
    with pytest.raises(tq.SessionNotFoundError, match=r"transferqueue\.init\(\)"):
        tq.get_client()
    with pytest.raises(tq.SessionNotFoundError, match=r"transferqueue\.init\(\)"):
        tq.kv_list()


def test_a_session_is_a_context_manager() -> None:
    with tq.init(**SMALL) as session:
        tq.kv_put("k", "p", {"x": 1})
    assert session.closed
    assert left_behind(session.name) == []


def test_views_outlive_the_session() -> None:
    tq.init(**SMALL)
    meta = tq.put(TensorDict({"x": torch.arange(100_000)}, [100_000]), partition_id="p")
    view = tq.get_data(meta)["x"]
    tq.close()
    assert torch.equal(view, torch.arange(100_000))
    view.add_(1)
    del view


def test_a_closed_session_that_nobody_holds_is_unmapped() -> None:
    def use_and_close() -> str:
        with tq.init(**SMALL) as session:
            tq.get_data(tq.put(numbers(), partition_id="p"))["x"].add_(1)
        return session.name

    name = use_and_close()
    gc.collect()
    assert name not in Path("/proc/self/maps").read_text()


def test_closing_one_client_leaves_the_session() -> None:
    with embedded():
        client = tq.get_client()
        client.kv_put("k", "p", {"x": 1})
        client.close()
        client.close()
        with pytest.raises(tq.ClosedError):
            client.kv_list()
        assert tq.kv_list() == {"p": {"k": {}}}


def join_and_answer(connection: Connection) -> None:
    os.environ["TRANSFERQUEUE_SESSION"] = connection.recv()
    client = tq.get_client()
    connection.send((client.session, client.kv_batch_get("k", "p")["x"].tolist()))
    client.kv_put("back", "p", {"x": torch.tensor(5)})


def test_a_child_process_joins_by_itself() -> None:
    child = Forked(join_and_answer)
    with embedded() as session:
        tq.kv_put("k", "p", {"x": torch.tensor(3)})
        child.say(session.name)
        assert child.hear() == (session.name, [3])
        assert child.join() == 0
        assert tq.kv_batch_get("back", "p")["x"].tolist() == [5]


def test_the_creator_exports_the_name_and_takes_it_back() -> None:
    session = tq.init(**SMALL)
    assert os.environ["TRANSFERQUEUE_SESSION"] == session.name
    tq.close()
    assert "TRANSFERQUEUE_SESSION" not in os.environ


def test_a_name_in_the_environment_that_is_gone_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    from transferqueue import session as session_module

    monkeypatch.setattr(session_module, "_process", ProcessState())  # as one that had no session yet
    monkeypatch.setenv("TRANSFERQUEUE_SESSION", "gone-since")
    for call in (tq.init, tq.get_client, lambda: tq.kv_list()):
        with pytest.raises(tq.SessionNotFoundError, match=r"gone-since.* TRANSFERQUEUE_SESSION .* unset it"):
            call()


def child_of_multiprocessing(name: str, connection: Any) -> None:
    client = tq.get_client()
    assert client.session == name
    view = client.kv_batch_get("k", "p")["x"]
    connection.send(view.tolist())
    client.kv_put(f"from {os.getpid()}", "p", {"x": view[0] + 1})


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_children_of_multiprocessing_work(method: str) -> None:
    with embedded() as session:
        # The fixture that protects tests from the shell's session removed it for this test.
        os.environ["TRANSFERQUEUE_SESSION"] = session.name
        tq.kv_put("k", "p", {"x": torch.tensor(3)})
        context = multiprocessing.get_context(method)
        ours, theirs = context.Pipe()
        child = context.Process(target=child_of_multiprocessing, args=(session.name, theirs))
        child.start()
        child.join()
        assert child.exitcode == 0
        assert ours.recv() == [3]
        assert len(tq.kv_list("p")["p"]) == 2


def test_a_fork_with_a_live_client_works_in_the_child_and_harms_nothing() -> None:
    with embedded() as session:
        client = tq.get_client()
        meta = client.put(TensorDict({"x": torch.arange(50_000)}, [50_000]), partition_id="p")
        views = [client.get_data(meta)["x"]]

        def child() -> None:
            assert torch.equal(views[0], torch.arange(50_000))
            views[0].fill_(-1)
            assert torch.equal(client.get_data(meta)["x"], torch.arange(50_000))
            client.kv_put("child", "q", {"x": torch.tensor(1)})
            session.close()  # not the creator here: lets go, ends nothing

        for _ in range(3):
            assert in_child(child) == 0
        assert torch.equal(views[0], torch.arange(50_000))
        assert client.kv_batch_get("child", "q")["x"].tolist() == [1]
        views.clear()


def watch_the_end(connection: Connection) -> None:
    client = tq.attach(connection.recv()).client
    view = client.kv_batch_get("k", "p")["x"]
    waiting = Thread(target=lambda: connection.send(error_of(lambda: client.wait("q", fields="x", count=1))))
    waiting.start()
    connection.send("ready")
    waiting.join()
    connection.send(error_of(client.kv_list))
    connection.send(view.unique().tolist())
    tq.close()


def error_of(call: Callable[[], object]) -> str:
    try:
        return f"returned {call()}"
    except tq.TransferQueueError as error:
        return type(error).__name__


def test_closing_ends_the_session_for_others_also_for_those_that_wait() -> None:
    child = Forked(watch_the_end)
    name = new_session_name()
    session = tq.init(session=name, **SMALL)
    tq.kv_put("k", "p", {"x": torch.full((100_000,), 4)})
    child.say(name)
    assert child.hear() == "ready"
    session.close()
    assert left_behind(name) == []
    assert [child.hear() for _ in range(3)] == ["SessionNotFoundError", "SessionNotFoundError", [4]]
    assert child.join() == 0


def create(connection: Connection) -> None:
    tq.init(session=connection.recv(), **SMALL)
    tq.kv_put("k", "p", {"x": torch.tensor(3)})
    connection.send("ready")
    connection.recv()


def start_creator(name: str) -> Forked:
    """A process that created session `name` with one row, and waits."""
    child = Forked(create)
    child.say(name)
    assert child.hear() == "ready"
    return child


EXITING_CREATOR = """
import sys, torch, transferqueue as tq
tq.init(session=sys.argv[1], **{"storage.size": "64MiB"})
tq.kv_put("k", "p", {"x": torch.tensor(3)})
print("ready", flush=True)
sys.stdin.readline()
"""


def test_creators_that_merely_exit() -> None:
    """The one whose session nobody else uses leaves nothing; the other leaves it to us, the last ones out."""
    names = [new_session_name(), new_session_name()]
    creators = [
        subprocess.Popen(
            [sys.executable, "-c", EXITING_CREATOR, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for name in names
    ]
    for creator in creators:
        assert creator.stdout is not None
        assert creator.stdout.readline() == "ready\n"
    tq.init(session=names[0])
    for creator in creators:
        creator.communicate("\n")
        assert creator.returncode == 0
    assert left_behind(names[1]) == []
    assert left_behind(names[0])
    assert tq.kv_batch_get("k", "p")["x"].tolist() == [3]
    tq.close()
    assert left_behind(names[0]) == []


@pytest.mark.alone
@pytest.mark.parametrize("adopt", [True, False])
def test_a_dead_session_is_taken_over_with_its_rows_or_started_empty(adopt: bool) -> None:
    name = new_session_name()
    creator = start_creator(name)
    creator.kill()
    assert left_behind(name)
    session = tq.init(session=name, adopt=adopt, **SMALL)
    assert session.creator
    assert session.service.running
    assert tq.kv_list() == ({"p": {"k": {}}} if adopt else {})
    tq.close()
    assert left_behind(name) == []


@pytest.mark.alone
def test_a_dead_session_is_removed_by_the_next_init() -> None:
    name = new_session_name()
    creator = start_creator(name)
    creator.kill()
    with embedded():
        assert left_behind(name) == []


def test_the_service_of_a_killed_creator_is_taken_over_by_the_next_call() -> None:
    name = new_session_name()
    creator = start_creator(name)
    session = tq.init(session=name)
    assert not session.service.running
    creator.kill()

    def taken_over() -> bool:
        tq.kv_list()
        return session.service.running

    wait_for(taken_over, what="the take-over")
    wait_for(lambda: session.service.reaped >= 1, what="reaping the creator")
    assert not session.creator
    assert tq.kv_batch_get("k", "p")["x"].tolist() == [3]
    assert [entry.pid for entry in tq.stats().clients] == [os.getpid()]
    tq.close()
    assert left_behind(name) == []


def test_a_killed_stand_alone_service_loses_no_row_and_another_one_takes_over() -> None:
    name = new_session_name()
    process = start_service(name)
    session = tq.init(session=name)
    meta = tq.put(numbers(), partition_id="p")
    stop(process, signal.SIGKILL)
    assert tq.get_data(meta)["x"].tolist() == [0, 1, 2, 3]
    tq.put(numbers(), partition_id="p")
    session.service.stop()  # so that this process does not take over
    second = start_service(name)
    assert tq.get_data(meta)["x"].tolist() == [0, 1, 2, 3]
    stop(second)
    assert tq.get_data(meta)["x"].tolist() == [0, 1, 2, 3]
    tq.close()
    assert left_behind(name) == []


def test_an_init_that_fails_half_way_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    from transferqueue import _native
    from transferqueue.storage import creation

    name = new_session_name()

    def fail(*_: Any, **__: Any) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(creation, "write_description", fail)
    with pytest.raises(OSError, match="Input/output"):
        tq.init(session=name, **SMALL)
    assert left_behind(name) == []
    monkeypatch.undo()
    monkeypatch.setattr(_native.Store, "format", staticmethod(fail))
    with pytest.raises(OSError, match="Input/output"):
        tq.init(session=name, **SMALL)
    assert left_behind(name) == []
    monkeypatch.undo()
    assert tq.init(session=name, **SMALL).creator


def test_a_file_backed_store_works_and_is_removed(tmp_path: Any) -> None:
    name = new_session_name()
    with embedded(name, **{"storage.dir": str(tmp_path)}):
        meta = tq.put(numbers(1000), partition_id="p")
        assert tq.get_data(meta)["x"].sum() == 999 * 500
        assert [path.name for path in tmp_path.iterdir()] == [f"tq-{os.getuid()}-{name}.dat"]
        assert in_child(lambda: tq.kv_put("child", "p", {"x": 1})) == 0
    assert list(tmp_path.iterdir()) == []


def test_a_process_chooses_its_own_reading_and_the_creator_the_rest() -> None:
    with served() as name:
        session = tq.init(session=name, **{"read.mode": "copy", "storage.size": "1GiB", "put.timeout_s": 3})
        assert session.config.read.mode == "copy"
        assert session.config.put.timeout_s == 3
        assert session.config.storage.size == 64 << 20
        assert tq.stats().total_bytes == 64 << 20
        meta = tq.put(TensorDict({"x": torch.zeros(1, 200_000)}, [1]), partition_id="p")
        assert tq.get_client().get_data_with_report(meta)[1].bytes_viewed == 0
        tq.close()


def test_sessions_of_one_machine_do_not_mix() -> None:
    with served() as other, embedded() as session:
        assert other != session.name
        foreign = tq.BatchMeta([0], "p", session=other)
        for call in (tq.get_data, tq.clear_samples, tq.set_custom_meta, lambda m: tq.put(numbers(1), metadata=m)):
            with pytest.raises(tq.SessionNotFoundError, match=f"{other}.*{session.name}"):
                call(foreign)
        with pytest.raises(tq.SessionNotFoundError, match=f"{other}.*{session.name}"):
            tq.attach(other)


def test_attach_joins_once_and_creates_nothing() -> None:
    with pytest.raises(tq.SessionNotFoundError, match="never-was"):
        tq.attach("never-was")
    with served() as name:
        session = tq.attach(name)
        assert tq.attach(name) is session
        tq.close()


def sample(connection: Connection) -> None:
    tq.attach(connection.recv())
    connection.send(tq.get_meta("x", 4, "p", task_name="t").size)
    connection.send(error_of(lambda: tq.get_meta("x", 6, "p", task_name="t", timeout=0)))
    try:
        tq.get_meta("x", 3, "p", task_name="t")
    except ValueError as error:
        connection.send(str(error))


def test_the_sampler_of_a_session_is_everybodys() -> None:
    child = Forked(sample)
    with embedded(**{"controller.sampler": tq.GRPOGroupNSampler(2)}) as session:
        tq.put(numbers(9), partition_id="p")
        child.say(session.name)
        assert child.hear() == 4
        assert child.hear() == "TransferTimeoutError"
        assert "must be a multiple of n_samples_per_prompt (2)" in child.hear()
        assert child.join() == 0
    with pytest.raises(ValueError, match="Could not find sampler 'Nope'"):
        tq.init(**SMALL, **{"controller.sampler": "Nope"})


def test_many_processes_attach_and_detach_without_a_trace() -> None:
    with embedded() as session:
        for _ in range(100):
            assert in_child(lambda: tq.kv_list()) == 0
        session.service.tick()
        assert [entry.pid for entry in tq.stats().clients] == [os.getpid()]
        assert len(os.listdir(f"/dev/shm/tq-{os.getuid()}-{session.name}/leases")) == 1


def test_importing_and_using_needs_no_ray() -> None:
    script = """
import sys
started = set(sys.modules)
import transferqueue as tq
assert "torch" not in sys.modules and "ray" not in sys.modules
tq.init(**{"storage.size": "64MiB"})
tq.kv_put("k", "p", {"x": 1})
assert "ray" not in sys.modules
tq.close()
print("fine")
"""
    assert run_python(script) == "fine\n"


def hold_the_interpreter(connection: Connection) -> None:
    view = tq.attach(connection.recv()).client.kv_batch_get("k", "p")["x"]
    connection.send("ready")
    ctypes.PyDLL(None).sleep(4)  # with the GIL held
    connection.send(view.unique().tolist())


def test_time_passes_while_a_client_holds_the_interpreter() -> None:
    """Nobody is declared dead for being busy: life is a lock, not a heartbeat."""
    child = Forked(hold_the_interpreter)
    with embedded() as session:
        tq.kv_put("k", "p", {"x": torch.full((100_000,), 6)})
        child.say(session.name)
        assert child.hear() == "ready"
        tq.kv_clear("k", "p")
        until_s = time.monotonic() + 3
        while time.monotonic() < until_s:
            session.service.tick()
            time.sleep(0.1)
        assert session.service.reaped == 0
        assert tq.stats().retired_bytes > 0
        assert child.hear() == [6]
        assert child.join() == 0
        wait_for(lambda: (session.service.tick(), tq.stats().retired_bytes == 0)[1], what="the room to come back")
