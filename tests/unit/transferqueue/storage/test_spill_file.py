"""The spill file's life: made with the session, removed at every end of it, and nobody else's file touched."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
import torch

import transferqueue as tq
from tests.support.sessions import Forked, embedded, left_behind
from transferqueue import _native
from transferqueue.config import build_config
from transferqueue.errors import CorruptSegmentError, LayoutMismatchError, StorageFullError
from transferqueue.storage import spill_file
from transferqueue.storage.attachment import attach
from transferqueue.storage.cleaning import remove_dead_sessions
from transferqueue.storage.creation import check_spill, spill_bytes
from transferqueue.storage.names import SessionPaths, check_session_name, new_session_name
from transferqueue.storage.session_dir import claim_directory, remove_session

pytestmark = pytest.mark.timeout(60)

MIB = 1 << 20


def options(directory: Path, **more: object) -> dict[str, object]:
    return {
        "storage.size": 8 * MIB,
        "storage.index_size": "16MiB",
        "spill.dir": str(directory),
        "spill.size": 8 * MIB,
        **more,
    }


@pytest.fixture
def paths() -> Iterator[SessionPaths]:
    found = SessionPaths.of(new_session_name())
    yield found
    assert left_behind(found.name) == []


def files_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_it_is_private_named_after_the_session_and_gone_with_it(tmp_path: Path) -> None:
    with embedded(**options(tmp_path)) as session:
        path = tmp_path / f"tq-{os.getuid()}-{session.name}.spill"
        assert files_in(tmp_path) == [path.name]
        status = path.stat()
        assert (status.st_mode & 0o777, status.st_uid) == (0o600, os.getuid())
        assert status.st_size == 8 * MIB + 65536
        assert status.st_blocks * 512 <= 128 << 10  # nothing was set aside yet
        with path.open("rb") as file:
            assert _native.is_spill_file(file.fileno())
    assert files_in(tmp_path) == []


def test_views_outlive_the_file(tmp_path: Path) -> None:
    with embedded(**options(tmp_path)) as session:
        x = torch.arange(100_000)
        tq.kv_put("k", "p", {"x": x})
        session.client._store.spill(MIB)
        view = tq.kv_batch_get("k", "p")["x"]
    assert files_in(tmp_path) == []
    assert torch.equal(view[0], x)


def joined(connection: Connection) -> None:
    name = connection.recv()
    session = tq.attach(name)
    connection.send("joined")
    connection.recv()
    session.close()


def leaving(connection: Connection) -> None:
    """Creates a session and exits without ending it."""
    session = tq.init(**options(Path(connection.recv())))
    tq.kv_put("k", "p", {"x": torch.arange(10)})
    session.client._store.spill(MIB)
    connection.send(session.name)
    connection.recv()
    if connection.recv() == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    session.attachment.detach()


@pytest.mark.parametrize("how", ["left", "killed"])
def test_the_last_one_out_removes_it(tmp_path: Path, how: str) -> None:
    creator, reader = Forked(leaving), Forked(joined)
    creator.say(str(tmp_path))
    name = creator.hear()
    reader.say(name)
    assert reader.hear() == "joined"
    creator.say()
    creator.say(how)
    creator.join()
    assert len(files_in(tmp_path)) == 1
    reader.say()
    assert reader.join() == 0
    assert files_in(tmp_path) == []
    assert left_behind(name) == []


@pytest.mark.alone
def test_a_session_whose_processes_died_is_taken_over_with_its_spilled_rows(tmp_path: Path) -> None:
    creator = Forked(leaving)
    creator.say(str(tmp_path))
    name = creator.hear()
    creator.kill()
    creator.join()
    with tq.init(session=name) as session:
        assert session.client.stats().spilled_bytes > 0
        assert tq.kv_batch_get("k", "p")["x"].tolist() == [list(range(10))]
        session.client._store.check()
    assert files_in(tmp_path) == []


@pytest.mark.alone
def test_clean_removes_that_of_a_killed_session_and_only_it(tmp_path: Path) -> None:
    creator = Forked(leaving)
    creator.say(str(tmp_path))
    name = creator.hear()
    with embedded(**options(tmp_path)) as alive:
        (tmp_path / "notes.spill").write_text("mine")
        creator.kill()
        creator.join()
        assert len(files_in(tmp_path)) == 3
        assert name in remove_dead_sessions()
        assert files_in(tmp_path) == sorted(["notes.spill", f"tq-{os.getuid()}-{alive.name}.spill"])


def test_a_leftover_without_its_session_goes_with_the_next_init_and_with_clean(
    tmp_path: Path, paths: SessionPaths
) -> None:
    """After a reboot, say: /dev/shm is empty, the disk is not."""
    leftovers = [tmp_path / f"tq-{os.getuid()}-{name}.spill" for name in ("gone-1", "gone-2")]
    with embedded(**options(tmp_path)) as session:
        template = (tmp_path / f"tq-{os.getuid()}-{session.name}.spill").read_bytes()[:4096]
    leftovers[0].write_bytes(template)
    leftovers[1].write_bytes(b"")  # its creator died before it wrote anything
    others = tmp_path / f"tq-{os.getuid()}-notes.spill"
    others.write_text("no spill file, though it is called like one")
    with embedded(**options(tmp_path)):
        assert [path.exists() for path in (*leftovers, others)] == [False, False, True]
    leftovers[0].write_bytes(template)
    done = subprocess.run(
        [sys.executable, "-m", "transferqueue.cli", "clean"],
        env={**os.environ, "TRANSFERQUEUE_SPILL__DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
        timeout=50,
    )
    assert str(leftovers[0]) in done.stdout
    assert files_in(tmp_path) == [others.name]


def test_a_file_that_is_open_somewhere_is_nobodys_leftover(tmp_path: Path, paths: SessionPaths) -> None:
    """Another container's, whose /dev/shm this one does not see."""
    lock = claim_directory(paths)
    assert lock is not None
    fd = spill_file.create_spill_file(paths, str(tmp_path))
    try:
        os.rename(paths.directory, f"{paths.directory}-elsewhere")
        assert spill_file.remove_leftover_spill_files(str(tmp_path)) == []
        with pytest.raises(OSError, match=r"taken.*another session name or spill.dir"):
            spill_file.create_spill_file(paths, str(tmp_path))
        assert len(files_in(tmp_path)) == 1
    finally:
        os.rename(f"{paths.directory}-elsewhere", paths.directory)
        spill_file.remove_spill_file(paths, str(tmp_path))
        os.close(fd)
        remove_session(paths)
        lock.close()
    assert files_in(tmp_path) == []


@pytest.mark.parametrize("kind", ["text", "link", "directory"])
def test_what_is_not_ours_is_refused_and_left_alone(tmp_path: Path, kind: str) -> None:
    name = new_session_name()
    path = tmp_path / f"tq-{os.getuid()}-{name}.spill"
    target = tmp_path / "target"
    target.write_text("precious")
    if kind == "text":
        path.write_text("somebody's notes")
    elif kind == "link":
        path.symlink_to(target)
    else:
        path.mkdir()
    before = files_in(tmp_path)
    with pytest.raises(OSError, match=str(path)):
        tq.init(session=name, **options(tmp_path))
    assert files_in(tmp_path) == before
    assert target.read_text() == "precious"
    assert left_behind(name) == []


def test_a_file_of_another_session_or_version_is_refused(tmp_path: Path) -> None:
    with embedded(**options(tmp_path)) as session:
        header = next(tmp_path.iterdir()).read_bytes()[:65536]
        name = session.name
    with embedded(name, **options(tmp_path)) as session:
        path = next(tmp_path.iterdir())
        ours = path.read_bytes()[:65536]

        def joins_with(head: bytes) -> None:
            with path.open("r+b") as file:
                file.write(head)
            attach(session.name, observer=True).detach()

        joins_with(ours)
        with pytest.raises(CorruptSegmentError, match="earlier session"):
            joins_with(header)  # a session of this name had it before
        with pytest.raises(LayoutMismatchError):
            joins_with(ours[:8] + (99).to_bytes(4, "little") + ours[12:])
        with pytest.raises(CorruptSegmentError):
            joins_with(bytes(65536))
        joins_with(ours)
        os.rename(path, tmp_path / "away")
        with pytest.raises(CorruptSegmentError, match="missing"):
            attach(session.name, observer=True)
        os.rename(tmp_path / "away", path)


def test_what_cannot_be_is_refused_before_anything_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"spill\.dir: .*missing.* is not a directory"):
        build_config({"spill.dir": str(tmp_path / "missing")})
    with pytest.raises(ValueError, match=r"spill\.size is 1.0 MiB but spill\.dir names no directory"):
        check_spill(build_config({"spill.size": MIB}))
    huge = build_config({"spill.dir": str(tmp_path), "spill.size": 1 << 60})
    with pytest.raises(StorageFullError, match=r"spill\.size is .* has .* free of") as caught:
        check_spill(huge)
    assert caught.value.resource == "spill"
    assert caught.value.wanted_bytes == 1 << 60 > (caught.value.free_bytes or 0)
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(PermissionError, match="cannot be written to"):
        check_spill(build_config({"spill.dir": str(tmp_path)}))
    assert spill_bytes(build_config({})) == 0
    assert MIB <= spill_bytes(build_config({"spill.dir": str(tmp_path)})) <= 8 << 30
    with pytest.raises(ValueError, match="not ending in"):
        check_session_name("name.spill")
