"""Sessions that others damaged, removed, or wrote with another version."""

from __future__ import annotations

import json
import os
import resource
from multiprocessing.connection import Connection
from pathlib import Path

import posix_ipc
import pytest
import torch
from tensordict import TensorDict

import transferqueue as tq
from tests.support.other_users import AS_ROOT, OTHER
from tests.support.sessions import Forked, embedded, left_behind, wait_for
from transferqueue.storage.checked_json import write_checked
from transferqueue.storage.names import SessionPaths

pytestmark = pytest.mark.timeout(120)


def try_to_join(connection: Connection) -> None:
    """Joins the session it is told of, uses it, and reports what happened."""
    name, limit_bytes = connection.recv()
    if limit_bytes:
        used_bytes = int(Path("/proc/self/statm").read_text().split()[0]) * 4096
        resource.setrlimit(resource.RLIMIT_AS, (used_bytes + limit_bytes, resource.RLIM_INFINITY))
    try:
        found = tq.attach(name).client.kv_batch_get("k", "p")["x"].tolist()
        connection.send(("joined", str(found)))
    except (tq.TransferQueueError, OSError, MemoryError) as error:
        connection.send((type(error).__name__, str(error)))


def outcome(name: str, joiner: Forked, limit_bytes: int = 0) -> tuple[str, str]:
    joiner.say((name, limit_bytes))
    answer: tuple[str, str] = joiner.hear()
    assert joiner.join() == 0
    return answer


@pytest.mark.parametrize("ending", [".ctl", ".tbl", ".dat"])
def test_a_segment_that_was_removed_is_named_to_joiners_and_does_not_stop_the_others(ending: str) -> None:
    joiner = Forked(try_to_join)
    with embedded() as session:
        tq.kv_put("k", "p", {"x": torch.arange(3)})
        segment = SessionPaths.of(session.name).segment(ending)
        posix_ipc.unlink_shared_memory(segment)
        kind, text = outcome(session.name, joiner)
        assert kind == "CorruptSegmentError"
        assert segment in text
        tq.kv_put("l", "p", {"x": torch.arange(100_000)})
        assert tq.kv_batch_get("l", "p")["x"].shape == (1, 100_000)


@pytest.mark.parametrize("ending", [".ctl", ".tbl", ".dat"])
def test_a_segment_of_another_version_is_refused(ending: str) -> None:
    joiner = Forked(try_to_join)
    with embedded() as session:
        tq.kv_put("k", "p", {"x": torch.arange(3)})
        path = Path("/dev/shm" + SessionPaths.of(session.name).segment(ending))
        header = path.read_bytes()[:64]
        with path.open("r+b") as file:
            file.write(bytes(byte ^ 0xFF for byte in header[:24]))
        kind, text = outcome(session.name, joiner)
        assert kind in ("LayoutMismatchError", "CorruptSegmentError"), text
        with path.open("r+b") as file:
            file.write(header)
        assert tq.kv_list() == {"p": {"k": {}}}


@pytest.mark.parametrize(
    ("changes", "expected", "says"),
    [
        ({"layout_version": 99}, "LayoutMismatchError", "99"),
        ({"format": 99}, "LayoutMismatchError", "99"),
        ({"pid_namespace": "pid:[1]"}, "LayoutMismatchError", "pid namespace"),
        ({"name": 5, "surprise": 1}, "CorruptSegmentError", "session.json"),
    ],
)
def test_a_session_of_another_version_or_container_is_refused(
    changes: dict[str, object], expected: str, says: str
) -> None:
    joiner = Forked(try_to_join)
    with embedded() as session:
        description = Path(SessionPaths.of(session.name).description)
        original = description.read_text()
        values = {**json.loads(original), **changes}
        del values["crc32"]
        description.write_text(write_checked(values))
        kind, text = outcome(session.name, joiner)
        assert kind == expected
        assert says in text
        description.write_text(original)
        assert tq.kv_list() == {}


def test_a_digit_of_the_description_that_changed_is_an_error() -> None:
    joiner = Forked(try_to_join)
    with embedded() as session:
        description = Path(SessionPaths.of(session.name).description)
        original = description.read_text()
        size = f'"storage.size": {json.loads(original)["config"]["storage.size"]}'
        assert size in original
        description.write_text(original.replace(size, size[:-1] + str((int(size[-1]) + 1) % 10)))
        kind, text = outcome(session.name, joiner)
        assert kind == "CorruptSegmentError"
        assert "session.json" in text
        assert "checksum" in text
        description.write_text(original)
        assert tq.kv_list() == {}


def test_a_truncated_segment_is_an_error_and_not_a_crash() -> None:
    joiner = Forked(try_to_join)
    with embedded() as session:
        path = "/dev/shm" + SessionPaths.of(session.name).segment(".tbl")
        size = os.stat(path).st_size
        os.truncate(path, 64)
        kind, text = outcome(session.name, joiner)
        assert kind in ("LayoutMismatchError", "CorruptSegmentError"), text
        os.truncate(path, size)


def test_an_index_that_is_gone_is_an_error() -> None:
    joiner = Forked(try_to_join)
    with embedded() as session:
        index = Path(SessionPaths.of(session.name).directory, "index")
        index.rename(index.with_name("elsewhere"))
        kind, text = outcome(session.name, joiner)
        assert kind == "CorruptSegmentError", text
        assert str(index) in text
        tq.kv_put("k", "p", {"x": 1})
        index.with_name("elsewhere").rename(index)


def test_a_description_that_was_removed_is_named_and_waited_for_by_nobody() -> None:
    joiner = Forked(try_to_join)
    with embedded() as session:
        tq.kv_put("k", "p", {"x": torch.arange(3)})
        description = SessionPaths.of(session.name).description
        os.unlink(description)
        kind, text = outcome(session.name, joiner)
        assert kind == "CorruptSegmentError"
        assert description in text
        assert tq.kv_batch_get("k", "p")["x"].tolist() == [[0, 1, 2]]


@AS_ROOT
@pytest.mark.parametrize("ending", [".ctl", ".tbl", ".dat"])
def test_a_segment_that_may_not_be_removed_stops_one_name_only(ending: str, caplog: pytest.LogCaptureFixture) -> None:
    paths = SessionPaths.of(f"foreign-{os.getpid()}")
    foreign = f"/dev/shm{paths.segment(ending)}"
    Path(foreign).touch()
    os.chown(foreign, OTHER, OTHER)
    with pytest.raises(OSError, match="choose another name"):
        tq.init(session=paths.name, **{"storage.size": "16MiB"})
    assert f"{foreign} cannot be removed (it belongs to uid {OTHER})" in caplog.text
    assert not os.path.exists(paths.directory)
    with embedded():
        tq.kv_put("k", "p", {"x": torch.arange(3)})
    os.unlink(foreign)


def test_a_closed_session_that_is_still_named_keeps_no_payload_in_memory() -> None:
    with embedded() as session:
        payload = SessionPaths.of(session.name).segment(".dat")
        meta = tq.put(TensorDict({"x": torch.ones(4, 100_000)}, [4]), partition_id="p")
        view, client = tq.get_data(meta), session.client
        maps = Path("/proc/self/maps")
        assert payload in maps.read_text()
    assert view["x"].sum() == 400_000  # readable as long as it lives
    del view
    wait_for(lambda: payload not in maps.read_text(), what="unmapping")
    with pytest.raises(tq.ClosedError):
        client.get_data(meta)


def test_a_join_that_fails_for_lack_of_address_space_leaves_the_session_alone() -> None:
    limited, free = Forked(try_to_join), Forked(try_to_join)
    with embedded() as session:
        tq.kv_put("k", "p", {"x": torch.arange(3)})
        kind, text = outcome(session.name, limited, limit_bytes=8 << 20)
        assert kind != "joined", text
        assert outcome(session.name, free) == ("joined", "[[0, 1, 2]]")
        assert left_behind(session.name)


def test_a_session_directory_removed_by_hand_is_over_for_joiners() -> None:
    joiner = Forked(try_to_join)
    with embedded() as session:
        paths = SessionPaths.of(session.name)
        tq.kv_put("k", "p", {"x": torch.arange(100_000)})
        view = tq.kv_batch_get("k", "p")["x"]
        os.rename(paths.directory, paths.directory + ".away")
        kind, text = outcome(session.name, joiner)
        assert kind == "SessionNotFoundError"
        assert "tq ls" in text
        assert view.sum() == sum(range(100_000))
        os.rename(paths.directory + ".away", paths.directory)


@AS_ROOT
def test_another_users_session_of_the_same_name_is_not_joined_and_not_removed() -> None:
    joiner = Forked(try_to_join)
    with embedded() as session:
        directory = SessionPaths.of(session.name).directory
        os.chown(directory, OTHER, OTHER)
        try:
            kind, text = outcome(session.name, joiner)
            assert kind == "UntrustedFileError"
            assert f"{directory} belongs to uid {OTHER}" in text
        finally:
            os.chown(directory, 0, 0)
