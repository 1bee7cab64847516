"""`clean`: what goes, what stays, and what it says about both; beside others, and killed at any step."""

from __future__ import annotations

import fcntl
import os
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.other_users import AS_ROOT, OTHER
from transferqueue.cli import main
from transferqueue.storage import session_dir
from transferqueue.storage.cleaning import Cleaned, Left, clean
from transferqueue.storage.names import SessionPaths, new_session_name, temporary_directory
from transferqueue.storage.segments import create_segments
from transferqueue.storage.session_lock import SessionLock

pytestmark = [pytest.mark.timeout(60), pytest.mark.usefixtures("names_of_our_own")]
SHM = Path("/dev/shm")


def make(payload_directory: str | None = None) -> tuple[SessionPaths, SessionLock]:
    """A session as its creator leaves it, without rows; the lock is its one process."""
    paths = SessionPaths.of(new_session_name())
    lock = session_dir.claim_directory(paths)
    assert lock is not None
    found = create_segments(paths, payload_directory)
    os.write(found.payload, bytes(1 << 20))
    found.close()
    description = session_dir.SessionDescription(
        paths.name, 1, session_dir.pid_namespace(), session_dir.host_id(), 1, payload_directory, time.time()
    )
    session_dir.write_description(paths, description)
    return paths, lock


def names(paths: SessionPaths) -> list[str]:
    return sorted(entry for entry in os.listdir(SHM) if paths.name in entry)


@pytest.fixture
def live() -> Iterator[SessionPaths]:
    paths, lock = make()
    before = names(paths)
    yield paths
    assert names(paths) == before, "of a session in use nothing goes"
    session_dir.remove_session(paths)
    lock.close()


def of(done: Cleaned, paths: SessionPaths) -> list[str]:
    return [removed.what for removed in done.removed if paths.name in removed.what]


def test_the_dead_go_with_their_files_elsewhere_and_the_living_stay(live: SessionPaths, tmp_path: Path) -> None:
    dead, lock = make(str(tmp_path))
    lock.close()
    files = names(dead)
    tried = clean(dry_run=True)
    assert names(dead) == files
    assert list(tmp_path.iterdir())
    done = clean()
    for found in (tried, done):
        (removed,) = [removed for removed in found.removed if removed.session == dead.name]
        assert removed.what == f"session {dead.name}"
        assert removed.nbytes >= 1 << 20
        assert Left(f"session {live.name}", "in use") in found.left
    assert names(dead) == []
    assert not list(tmp_path.iterdir())
    assert of(clean(), dead) == []


def test_segments_whose_directory_is_gone_go_unless_somebody_has_them_mapped(tmp_path: Path) -> None:
    import mmap

    paths, lock = make()
    lock.close()
    shutil.rmtree(paths.directory)
    with open(f"{SHM}{paths.segment('.dat')}", "r+b") as file, mmap.mmap(file.fileno(), 4096):
        done = clean()
        assert sorted(of(done, paths)) == [f"{SHM}{paths.segment(ending)}" for ending in (".ctl", ".tbl")]
        assert Left(f"{SHM}{paths.segment('.dat')}", f"mapped by process {os.getpid()}") in done.left
    assert of(clean(), paths) == [f"{SHM}{paths.segment('.dat')}"]
    assert names(paths) == []


def test_files_of_a_storage_directory_go_when_their_session_is_gone(live: SessionPaths, tmp_path: Path) -> None:
    gone, lock = make(str(tmp_path))
    lock.close()
    shutil.rmtree(gone.directory)
    (tmp_path / f"{live.stem}.spill").touch()
    (tmp_path / "tq-notes.dat").touch()
    (tmp_path / f"tq-{os.getuid()}-notes.spill").write_text("only called like one")
    held = tmp_path / f"tq-{os.getuid()}-elsewhere.dat"  # of a session whose /dev/shm is not ours
    fd = os.open(held, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(fd, fcntl.LOCK_SH)
    (tmp_path / f"tq-{os.getuid()}-folder.dat").mkdir()
    clean()
    assert len(list(tmp_path.iterdir())) == 6, "nobody said to look there"
    done = clean(directories=[str(tmp_path)])
    assert of(done, gone) == [gone.payload_file(str(tmp_path))]
    stays = {
        f"tq-{os.getuid()}-folder.dat": "a directory",
        f"{live.stem}.spill": f"there is a session {live.name}",
        f"tq-{os.getuid()}-notes.spill": "in use (maybe in another container), or no file of ours",
        held.name: "in use (maybe in another container), or no file of ours",
    }
    for name, why in stays.items():
        assert any(left.what == str(tmp_path / name) and left.why.startswith(why) for left in done.left)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == sorted([*stays, "tq-notes.dat"])
    assert names(gone) == []
    with pytest.raises(OSError, match="elsewhere"):  # nor does a session of that name take it
        create_segments(SessionPaths("elsewhere", os.getuid()), str(tmp_path))
    assert held.exists()
    os.close(fd)
    assert of(clean(directories=[str(tmp_path)]), SessionPaths("elsewhere", os.getuid())) == [str(held)]


def test_a_directory_that_is_being_made_is_told_from_what_its_dead_maker_left() -> None:
    made = [temporary_directory("new") for _ in range(4)]
    held, free, young, old = made
    for path in made:
        os.mkdir(path, 0o700)
    locks = [SessionLock(f"{path}/session.lock", create=True) for path in (held, free)]
    assert locks[0].try_shared()
    os.utime(held, (0, 0))
    os.utime(old, (0, 0))
    try:
        done = clean()
        assert {removed.what for removed in done.removed} >= {free, old}
        assert {Left(path, "a session is being made") for path in (held, young)} <= set(done.left)
        assert [os.path.exists(path) for path in made] == [True, False, True, False]
    finally:
        for lock in locks:
            lock.close()
        for path in (held, young):
            shutil.rmtree(path)


def test_a_maker_whose_directory_is_cleaned_away_starts_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between making the lock's file and locking it, it looks like a leftover."""
    paths = SessionPaths.of(new_session_name())
    real, cleaned = SessionLock.try_shared, list[Cleaned]()

    def after_a_cleaning(lock: SessionLock) -> bool:
        if not cleaned:
            cleaned.append(clean())
        return real(lock)

    with monkeypatch.context() as patched:
        patched.setattr(SessionLock, "try_shared", after_a_cleaning)
        lock = session_dir.claim_directory(paths)
    assert lock is not None
    assert any(f".tq-new-{os.getuid()}-{os.getpid()}-" in removed.what for removed in cleaned[0].removed)
    assert sorted(os.listdir(paths.directory)) == ["index", "leases", "session.lock"]
    session_dir.remove_session(paths)
    lock.close()


def test_a_session_whose_lock_cannot_be_believed_is_left(live: SessionPaths) -> None:
    os.chmod(live.lock, 0o666)
    try:
        for found in (clean(dry_run=True), clean()):
            (left,) = [left for left in found.left if left.what == f"session {live.name}"]
            assert "open to other users" in left.why
    finally:
        os.chmod(live.lock, 0o600)


@AS_ROOT
def test_what_others_hold_of_our_names_is_named_and_left(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Although root could remove all of it."""
    uid, name = os.getuid(), new_session_name()
    files = [SHM / f"tq-{uid}-{name}.dat", tmp_path / f"tq-{uid}-{name}.dat", SHM / f"tq-{OTHER}-theirs.ctl"]
    folders = [SHM / f"tq-{uid}-{name}", SHM / f".tq-gone-{uid}-1-{name}", SHM / f".tq-new-{uid}-1-{name}"]
    link = SHM / f"tq-{uid}-{name}-link"
    try:
        for file in files:
            file.touch()
        for folder in folders:
            folder.mkdir()
            os.utime(folder, (0, 0))
        link.symlink_to("/etc")
        for path in (*files, *folders, link):
            os.lchown(path, OTHER, OTHER)
        assert main(["clean", "--dir", str(tmp_path)]) == 0
        shown = capsys.readouterr().out
        for path in (*files[:2], *folders, link):
            assert f"left {path}: belongs to uid {OTHER}" in shown
        assert "theirs" not in shown
        assert all(os.path.lexists(path) for path in (*files, *folders, link))
    finally:
        for path in (*files, link):
            path.unlink(missing_ok=True)
        for folder in folders:
            folder.rmdir()


def test_two_at_once_and_inits_beside_them(live: SessionPaths) -> None:
    """Each session is removed once; what is made meanwhile stays."""
    dead = [make() for _ in range(12)]
    for _, lock in dead:
        lock.close()
    done: list[Cleaned] = []
    made: list[tuple[SessionPaths, SessionLock]] = []
    threads = [threading.Thread(target=lambda: done.append(clean())) for _ in range(3)]
    threads += [threading.Thread(target=lambda: made.extend(make() for _ in range(8))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for paths, _ in dead:
        assert names(paths) == []
        assert sum(of(found, paths) == [f"session {paths.name}"] for found in done) == 1
    assert len(made) == 16
    for paths, lock in made:
        assert lock.is_current()
        assert len(names(paths)) == 4
        session_dir.remove_session(paths)
        lock.close()


def test_the_command_says_sizes_and_reasons(live: SessionPaths, capsys: pytest.CaptureFixture[str]) -> None:
    dead, lock = make()
    lock.close()
    for arguments, verb in ((["clean", "--dry-run"], "would remove"), (["clean"], "removed")):
        assert main(arguments) == 0
        shown = capsys.readouterr().out
        assert f"{verb} session {dead.name} (1." in shown
        assert f"left session {live.name}: in use" in shown
        assert f"{verb} 1 dead session and" in shown
    assert names(dead) == []
