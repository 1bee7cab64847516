"""The session directory and its lock: claimed once, joined while held, removed when free, and nothing left behind."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import posix_ipc
import pytest

from transferqueue.errors import CorruptSegmentError, LayoutMismatchError
from transferqueue.storage import cleaning, session_dir
from transferqueue.storage.checked_json import write_checked
from transferqueue.storage.names import SessionPaths, new_session_name
from transferqueue.storage.private_files import write_private
from transferqueue.storage.segments import create_segments, open_segments, unlink_segments
from transferqueue.storage.session_lock import SessionLock

SHM = Path("/dev/shm")


pytestmark = pytest.mark.usefixtures("names_of_our_own")


@pytest.fixture
def paths(names_of_our_own: None) -> Iterator[SessionPaths]:
    found = SessionPaths.of(new_session_name())
    yield found
    session_dir.remove_session(found)
    assert not [entry for entry in os.listdir(SHM) if found.name in entry]


def describe(paths: SessionPaths, **changes: object) -> session_dir.SessionDescription:
    values = {
        "name": paths.name, "creator_pid": 1, "pid_namespace": session_dir.pid_namespace(),
        "host": session_dir.host_id(), "layout_version": 1,
        "payload_directory": None, "created_s": 0.0,
    }  # fmt: skip
    return session_dir.SessionDescription(**{**values, **changes})  # type: ignore[arg-type]


def names(paths: SessionPaths) -> list[str]:
    return [found.name for found in cleaning.own_sessions() if found.name == paths.name]


def test_a_name_is_claimed_once_and_private(paths: SessionPaths) -> None:
    lock = session_dir.claim_directory(paths)
    assert lock is not None
    assert session_dir.claim_directory(paths) is None
    assert os.stat(paths.directory).st_mode & 0o777 == 0o700
    assert names(paths) == [paths.name]
    lock.close()


def test_a_name_that_comes_free_while_it_is_claimed_is_claimed(
    paths: SessionPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder = session_dir.claim_directory(paths)
    assert holder is not None
    rename = os.rename

    def rename_onto_what_goes_next(source: str, target: str) -> None:
        try:
            rename(source, target)
        except OSError:
            monkeypatch.setattr(os, "rename", rename)
            session_dir.remove_session(paths)
            raise

    monkeypatch.setattr(os, "rename", rename_onto_what_goes_next)
    lock = session_dir.claim_directory(paths)
    assert lock is not None
    assert lock.is_current()
    lock.close()
    holder.close()


def test_a_held_session_is_not_removed_and_a_free_one_is(paths: SessionPaths) -> None:
    lock = session_dir.claim_directory(paths)
    assert lock is not None
    assert session_dir.is_in_use(paths)
    assert not session_dir.remove_if_dead(paths)
    lock.close()
    assert not session_dir.is_in_use(paths)
    assert session_dir.remove_if_dead(paths)
    assert names(paths) == []
    assert not session_dir.remove_if_dead(paths)


def test_a_session_being_joined_is_spared(paths: SessionPaths) -> None:
    lock = session_dir.claim_directory(paths)
    assert lock is not None
    lock.close()
    assert paths.name not in cleaning.remove_dead_sessions(except_name=paths.name)
    assert names(paths) == [paths.name]
    assert paths.name in cleaning.remove_dead_sessions()


def test_a_directory_without_a_lock_is_removed_and_not_what_was_made_in_its_place(
    paths: SessionPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    for directory in (paths.directory, f"{paths.directory}/index"):
        os.mkdir(directory, mode=0o700)
    directories_elsewhere, claimed = session_dir.directories_elsewhere, []

    def others_are_quicker(found: SessionPaths) -> tuple[str | None, str | None]:
        monkeypatch.setattr(session_dir, "directories_elsewhere", directories_elsewhere)
        session_dir.remove_if_dead(paths)
        claimed.append(session_dir.claim_directory(paths))
        return directories_elsewhere(found)

    monkeypatch.setattr(session_dir, "directories_elsewhere", others_are_quicker)
    assert session_dir.remove_if_dead(paths)
    assert claimed == [None]
    assert names(paths) == []


def test_the_description_comes_back(paths: SessionPaths) -> None:
    lock = session_dir.claim_directory(paths)
    assert lock is not None
    assert session_dir.read_description(paths) is None
    written = describe(paths, config={"storage.size": 1 << 20}, sampler={"name": "SequentialSampler"})
    session_dir.write_description(paths, written)
    assert session_dir.read_description(paths) == written
    lock.close()


def test_a_description_of_another_version_is_refused_by_both_versions(paths: SessionPaths) -> None:
    lock = session_dir.claim_directory(paths)
    assert lock is not None
    write_private(paths.description, '{"format": 99}')
    with pytest.raises(LayoutMismatchError, match="99"):
        session_dir.read_description(paths)
    lock.close()


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", '{"format": 3}', '{"format": 3, "crc32": true}', write_checked({"format": 3, "name": "x"})],
)
def test_a_damaged_description_is_named(paths: SessionPaths, text: str) -> None:
    lock = session_dir.claim_directory(paths)
    assert lock is not None
    write_private(paths.description, text)
    with pytest.raises(CorruptSegmentError, match=r"session\.json"):
        session_dir.read_description(paths)
    lock.close()
    assert session_dir.remove_if_dead(paths)


def test_segments_are_made_private_opened_and_unlinked(paths: SessionPaths, tmp_path: Path) -> None:
    for directory in (None, str(tmp_path)):
        create_segments(paths, directory).close()
        mode = os.stat(paths.payload_file(directory) if directory else f"{SHM}{paths.segment('.dat')}").st_mode
        assert mode & 0o777 == 0o600
        open_segments(paths, directory).close()
        unlink_segments(paths, directory)
        unlink_segments(paths, directory)
        with pytest.raises(CorruptSegmentError, match=r"\.ctl"):
            open_segments(paths, directory)
    assert not list(tmp_path.iterdir())


def test_a_segment_that_was_removed_from_outside_is_named(paths: SessionPaths) -> None:
    create_segments(paths, None).close()
    posix_ipc.unlink_shared_memory(paths.segment(".tbl"))
    with pytest.raises(CorruptSegmentError, match=r"\.tbl") as caught:
        open_segments(paths, None)
    assert caught.value.path == f"{SHM}{paths.segment('.tbl')}"
    unlink_segments(paths, None)


def test_segments_without_a_directory_are_removed(paths: SessionPaths) -> None:
    create_segments(paths, None).close()
    cleaning.remove_dead_sessions()
    assert not [entry for entry in os.listdir(SHM) if paths.name in entry]


def test_what_half_done_creations_and_removals_left_is_removed() -> None:
    uid = os.getuid()
    gone, old, young = (SHM / f".tq-{kind}-{uid}-test-{time.time_ns()}" for kind in ("gone", "new", "new"))
    for path in (gone, old, young):
        path.mkdir()
        time.sleep(0.001)
    os.utime(old, (0, 0))
    try:
        cleaning.remove_dead_sessions()
        assert not gone.exists()
        assert not old.exists()
        assert young.exists()
    finally:
        young.rmdir()


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to make a file of another user")
def test_another_users_leftovers_are_skipped_with_one_warning(
    paths: SessionPaths, caplog: pytest.LogCaptureFixture
) -> None:
    os.mkdir(paths.directory)
    os.chown(paths.directory, 65534, 65534)
    try:
        with caplog.at_level(logging.WARNING, logger="transferqueue"):
            for _ in range(3):
                assert not session_dir.remove_if_dead(paths)
                assert paths.name not in cleaning.remove_dead_sessions()
        assert os.path.isdir(paths.directory)
        assert len([record for record in caplog.records if paths.directory in record.getMessage()]) == 1
    finally:
        os.rmdir(paths.directory)


def test_a_lock_on_a_removed_session_is_not_current(paths: SessionPaths) -> None:
    lock = session_dir.claim_directory(paths)
    assert lock is not None
    assert lock.is_current()
    session_dir.remove_session(paths)
    assert not lock.is_current()
    other = session_dir.claim_directory(paths)
    assert other is not None
    assert not lock.is_current()
    lock.close()
    other.close()


def test_of_two_that_leave_at_once_one_finds_itself_alone(paths: SessionPaths) -> None:
    lock = session_dir.claim_directory(paths)
    assert lock is not None
    second = SessionLock(paths.lock)
    assert second.try_shared()
    assert not lock.try_exclusive()
    assert second.try_exclusive()
    lock.close()
    second.close()


CLAIM = """
import os, sys
os.getuid = lambda: int(sys.argv[2])
from transferqueue.storage import cleaning, session_dir
from transferqueue.storage.names import SessionPaths
lock = session_dir.claim_directory(SessionPaths.of(sys.argv[1]))
print(lock is not None, flush=True)
sys.stdin.readline()
"""


@pytest.mark.timeout(60)
def test_eight_processes_claim_one_name_and_one_gets_it_while_others_clean(paths: SessionPaths) -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", CLAIM, paths.name, str(os.getuid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(8)
    ]
    answers = []
    for process in processes:
        cleaning.remove_dead_sessions()
        assert process.stdout is not None
        answers.append(process.stdout.readline().strip())
    assert sorted(answers) == ["False"] * 7 + ["True"]
    assert names(paths) == [paths.name]
    for process in processes:
        process.kill()
        process.communicate()
    assert paths.name in cleaning.remove_dead_sessions()
