"""Whatever a session makes is its user's alone, whatever the umask; and nothing that is not is ever used."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
import torch
from tensordict import TensorDict

import transferqueue as tq
from tests.support.other_users import AS_ROOT, OTHER, VICTIM, become
from tests.support.sessions import Forked, in_child, left_behind
from transferqueue.storage.names import SessionPaths, new_session_name

pytestmark = pytest.mark.timeout(120)
SMALL = {"storage.size": "4MiB", "storage.index_size": "2MiB"}
SHM = Path("/dev/shm")


def everything(name: str, *folders: Path) -> dict[str, int]:
    """path -> mode of all that a session has: in shared memory, and below `folders`."""
    tops = [SHM / entry for entry in left_behind(name)] + [path for folder in folders for path in folder.iterdir()]
    paths = [path for top in tops for path in (top, *top.rglob("*"))]
    return {str(path): path.lstat().st_mode for path in paths}


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o777])
def test_nobody_else_may_read_what_a_session_makes(umask: int, tmp_path: Path) -> None:
    """As an ordinary user where that can be had: root may open files of mode 0."""
    store, place = tmp_path / "store", tmp_path / "checkpoints"
    for folder in (tmp_path, store, place):
        folder.mkdir(exist_ok=True)
        os.chmod(folder, 0o777)
    for folder in tmp_path.parents:  # pytest's own folders are its user's alone
        if folder.stat().st_uid == os.geteuid() and folder != Path("/"):
            os.chmod(folder, folder.stat().st_mode | 0o011)

    def use_as_victim() -> None:
        use()  # imports what it takes
        if os.geteuid() == 0:
            shutil.rmtree(place / "c")
            os.unlink(place / "rows")
            become(VICTIM)
        os.umask(umask)
        use()

    def use() -> None:
        name = new_session_name()
        with tq.init(
            session=name, **{**SMALL, "storage.dir": str(store), "spill.dir": str(store), "metrics.port": 0}
        ) as session:
            meta = tq.put(TensorDict({"x": torch.arange(6)}, [6]), partition_id="p")
            tq.save_checkpoint(place / "c")
            tq.load_checkpoint(place / "c")
            session.client.save_controller_checkpoint(place / "rows")
            assert tq.get_data(meta)["x"].tolist() == list(range(6))
            found = everything(name, store, place)
            names = {Path(path).name for path in found}
            assert {"session.json", "session.lock", "service.lock", "metrics.json", "origin.json"} <= names
            assert {"data.mdb", "lock.mdb", "leases", f"{SessionPaths.of(name).stem}.dat", "metadata.json"} <= names
            assert {"spill.inode", f"{SessionPaths.of(name).stem}.spill"} <= names
            assert any(path.endswith(".lease") for path in names)
            wrong = {
                path: oct(mode)
                for path, mode in found.items()
                if stat.S_IMODE(mode) != (0o700 if stat.S_ISDIR(mode) else 0o600)
            }
            assert not wrong
        assert left_behind(name) == []
        assert not list(store.iterdir())

    assert in_child(use_as_victim) == 0


Make = Callable[[str], object]


def _directory_with_files(path: str) -> None:
    os.mkdir(path)
    os.mkdir(f"{path}/index")
    Path(f"{path}/session.lock").touch()
    Path(f"{path}/session.json").write_text("{}")


FOREIGN: dict[str, Make] = {
    "an empty file": lambda path: Path(path).touch(),
    "an empty directory": os.mkdir,
    "a directory like ours": _directory_with_files,
    "a link": lambda path: os.symlink("/etc", path),
    "a pipe": os.mkfifo,
}


class Trial:
    """One process of a user, which tries to create sessions, and to join them."""

    def __init__(self, uid: int) -> None:
        def work(connection: Connection) -> None:
            self._outcome("create", new_session_name(), SMALL)  # imports what it takes
            become(uid)
            while (asked := connection.recv()) is not None:
                connection.send(self._outcome(*asked))

        self.uid = uid
        self.process = Forked(work)

    @staticmethod
    def _outcome(what: str, name: str, arguments: dict[str, Any]) -> tuple[str, str]:
        try:
            with tq.attach(name) if what == "join" else tq.init(session=name, **arguments):
                session = tq.get_client()._attachment
                segments = [f"/dev/shm{session.paths.segment(ending)}" for ending in (".ctl", ".tbl")]
                assert [os.stat(path).st_uid for path in segments] == [os.geteuid()] * 2
                return "done", session.paths.name
        except (tq.TransferQueueError, OSError) as error:
            return type(error).__name__, str(error)

    def __call__(self, what: str, name: str, **arguments: Any) -> tuple[str, str]:
        self.process.say((what, name, arguments))
        answer: tuple[str, str] = self.process.hear()
        return answer

    def end(self) -> None:
        self.process.say(None)
        assert self.process.join() == 0


@pytest.fixture(scope="module")
def trials() -> Iterator[list[Trial]]:
    """As root, and as somebody whom the system keeps from removing files of others."""
    found = [Trial(0), Trial(VICTIM)]
    yield found
    for trial in found:
        trial.end()


def seen(path: str) -> tuple[Any, ...]:
    status = os.lstat(path)
    inside = sorted(os.listdir(path)) if stat.S_ISDIR(status.st_mode) else []
    return status.st_ino, status.st_mode, status.st_uid, status.st_nlink, inside


@AS_ROOT
@pytest.mark.parametrize("kind", FOREIGN)
def test_names_that_another_user_made_first_are_refused_and_left_alone(
    trials: list[Trial], kind: str, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    store.mkdir()
    os.chmod(store, 0o1777)
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == 0 and folder != Path("/"):
            os.chmod(folder, folder.stat().st_mode | 0o011)
    for trial in trials:
        name = new_session_name()
        paths = SessionPaths(name, trial.uid)
        segments = [f"/dev/shm{paths.segment(ending)}" for ending in (".ctl", ".tbl", ".dat")]
        for path in (paths.directory, *segments, paths.payload_file(str(store)), paths.spill_file(str(store))):
            key = "spill.dir" if path.endswith(".spill") else "storage.dir"
            elsewhere = {key: str(store)} if path.startswith(str(store)) else {}
            FOREIGN[kind](path)
            os.lchown(path, OTHER, OTHER)
            before = seen(path)
            outcome = trial("create", name, **SMALL, **elsewhere)
            assert outcome[0] == "UntrustedFileError", outcome
            assert path in outcome[1]
            assert f"belongs to uid {OTHER}" in outcome[1]
            if path == paths.directory:
                assert trial("join", name)[0] == "UntrustedFileError"
            assert seen(path) == before
            shutil.rmtree(path) if kind.startswith(("a directory", "an empty directory")) else os.unlink(path)
            assert left_behind(name) == []
            assert not list(store.iterdir())
            assert trial("create", name, **SMALL, **elsewhere) == ("done", name)


def given_away(path: str) -> Callable[[], object]:
    os.chown(path, OTHER, OTHER)
    return lambda: os.chown(path, 0, 0)


def opened_to_all(path: str) -> Callable[[], object]:
    mode = stat.S_IMODE(os.stat(path).st_mode)
    os.chmod(path, mode | 0o004)
    return lambda: os.chmod(path, mode)


def linked_hard(path: str) -> Callable[[], object]:
    os.link(path, "/dev/shm/native-second-name")
    return lambda: os.unlink("/dev/shm/native-second-name")


def behind_a_link(path: str) -> Callable[[], object]:
    os.rename(path, f"{path}.away")
    os.symlink(f"{path}.away", path)
    return lambda: os.replace(f"{path}.away", path) if not os.path.isdir(path) else _put_back(path)


def _put_back(path: str) -> None:
    os.unlink(path)
    os.rename(f"{path}.away", path)


TAMPERED = {"another user's": given_away, "open": opened_to_all, "hard link": linked_hard, "link": behind_a_link}


@AS_ROOT
@pytest.mark.parametrize("how", TAMPERED)
def test_a_session_of_which_a_part_is_not_its_users_alone_is_not_joined(how: str) -> None:
    trial = Trial(0)
    name = new_session_name()
    with tq.init(session=name, **SMALL) as session:
        tq.kv_put("k", "p", {"x": torch.arange(3)})
        paths = session.attachment.paths
        inside = ("session.lock", "session.json", "index/data.mdb", "index/lock.mdb")
        folders = ["", "/index", "/leases"] if how != "hard link" else []
        found = [f"{paths.directory}{folder}" for folder in folders]
        found += [f"{paths.directory}/{file}" for file in inside]
        found += [f"/dev/shm{paths.segment(ending)}" for ending in (".ctl", ".tbl", ".dat")]
        for path in found:
            undo = TAMPERED[how](path)
            try:
                outcome = trial("join", name)
                assert outcome[0] == "UntrustedFileError", (path, outcome)
                assert path in outcome[1]
            finally:
                undo()
            assert trial("join", name) == ("done", name)
        assert tq.kv_batch_get("k", "p")["x"].tolist() == [[0, 1, 2]]
    trial.end()
    assert left_behind(name) == []


@AS_ROOT
def test_another_user_can_neither_join_nor_open_a_session() -> None:
    def look(connection: Connection) -> None:
        become(OTHER)
        name, files = connection.recv()
        refused = 0
        for path in files:
            try:
                os.close(os.open(path, os.O_RDONLY))
            except PermissionError:
                refused += 1
        try:
            tq.attach(name)
        except tq.SessionNotFoundError as error:
            connection.send((refused, str(error)))

    process = Forked(look)
    with tq.init(**SMALL) as session:
        files = sorted(everything(session.name))
        process.say((session.name, files))
        refused, text = process.hear()
        assert refused == len(files) > 10
        assert "no session" in text
        assert process.join() == 0


@AS_ROOT
@pytest.mark.parametrize("place", ["c", "c.tmp", "c.old", ".c.saving"])
def test_places_of_checkpoints_that_another_user_made_first_are_refused(place: str, tmp_path: Path) -> None:
    """By root, whom nothing keeps from removing them."""
    with tq.init(**SMALL) as session:
        tq.kv_put("k", "p", {"x": torch.arange(3)})
        path = tmp_path / place
        path.touch() if place == ".c.saving" else path.mkdir()
        os.chown(path, OTHER, OTHER)
        before = seen(str(path))
        with pytest.raises(FileExistsError, match=f"belongs to uid {OTHER}"):
            session.client.save_checkpoint(tmp_path / "c")
        assert seen(str(path)) == before
        assert [entry.name for entry in tmp_path.iterdir()] == [place]


@AS_ROOT
def test_names_that_come_and_go_while_a_session_is_made_are_never_used(trials: list[Trial]) -> None:
    """Another user's, at any moment between a look and a use: the session is our own, or is refused."""

    def harass(connection: Connection) -> None:
        become(OTHER)
        paths = connection.recv()
        while not connection.poll():
            for path in paths:
                with contextlib.suppress(OSError):
                    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
                    os.chmod(path, 0o666)
                    os.unlink(path)

    _, victim = trials
    name = new_session_name()
    paths = SessionPaths(name, victim.uid)
    process = Forked(harass)
    process.say([paths.directory, *(f"/dev/shm{paths.segment(ending)}" for ending in (".ctl", ".tbl", ".dat"))])
    outcomes = [victim("create", name, **SMALL)[0] for _ in range(60)]
    process.say()
    assert process.join() == 0
    assert set(outcomes) <= {"done", "UntrustedFileError", "PermissionError", "OSError"}, outcomes
    assert len(set(outcomes)) > 1, "they met"
    assert victim("create", name, **SMALL) == ("done", name)
    assert left_behind(name) == []
