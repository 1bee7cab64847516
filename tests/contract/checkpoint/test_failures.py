"""Whatever goes wrong, the old checkpoint and the live rows are as they were, and nothing is left beside them."""

from __future__ import annotations

import errno
import json
import os
import resource
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tensordict import NonTensorStack, TensorDict

import transferqueue as tq
from tests.support.other_users import AS_ROOT, OTHER
from tests.support.sessions import embedded
from tests.support.space import is_settled
from tests.support.versioned_rows import rows, versions_of
from transferqueue import BatchMeta, TransferQueueClient, _native
from transferqueue.checkpoint import directories, libraries
from transferqueue.checkpoint.manifest import FILES, MANIFEST

pytestmark = pytest.mark.timeout(120)
SAVED, LIVE = 1, 2  # versions of the rows in the checkpoint and in the session


@pytest.fixture(scope="module")
def session() -> Iterator[tq.Session]:
    with embedded() as found:
        yield found


@pytest.fixture
def client(session: tq.Session) -> Iterator[TransferQueueClient]:
    yield session.client
    for partition in session.client.get_partition_list():
        session.client.clear_partition(partition)
    assert is_settled(session.client._store)


@pytest.fixture
def place(client: TransferQueueClient, tmp_path: Path) -> Path:
    """A checkpoint with rows of version SAVED; the session then holds rows of version LIVE."""
    client.kv_batch_put(["a", "b"], "keyed", rows([1, 2], SAVED), tags=[{"v": SAVED}, {}])
    client.put(rows(range(20), SAVED), partition_id="plain")
    client.get_meta(["x"], 3, "plain", task_name="t")
    client.save_checkpoint(tmp_path / "c", metadata={"mark": "old checkpoint"})
    for partition in client.get_partition_list():
        client.clear_partition(partition)
    client.kv_batch_put(["z"], "live", rows([7], LIVE), tags=[{"v": LIVE}])
    return tmp_path / "c"


def is_live(client: TransferQueueClient) -> None:
    assert client.kv_list() == {"live": {"z": {"v": LIVE}}}
    assert versions_of(client.kv_batch_get(["z"], "live", mode="copy")) == [(7, LIVE)]
    stats = client._store.stats()
    assert stats["pending_bytes"] == stats["leased_bytes"] == 0


def is_old(client: TransferQueueClient, place: Path) -> None:
    """Loads it."""
    assert sorted(entry.name for entry in place.parent.iterdir()) == [place.name]
    assert client.load_checkpoint(place) == {"mark": "old checkpoint"}
    assert versions_of(client.kv_batch_get(["a", "b"], "keyed", mode="copy")) == [(1, SAVED), (2, SAVED)]


@pytest.mark.parametrize("name", [*FILES, MANIFEST])
def test_a_damaged_file_is_named(client: TransferQueueClient, place: Path, name: str) -> None:
    path = place / name
    whole = path.read_bytes()
    for position in {0, len(whole) // 3, len(whole) // 2, len(whole) - 1}:
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :])
        with pytest.raises((tq.CorruptSegmentError, tq.LayoutMismatchError), match=name) as caught:
            client.load_checkpoint(place)
        assert caught.value.path == str(path)
    for kept in (0, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:kept])
        with pytest.raises(tq.CorruptSegmentError, match=name):
            client.load_checkpoint(place)
    path.write_bytes(whole + b" more")
    with pytest.raises(tq.CorruptSegmentError, match=name):
        client.load_checkpoint(place)
    path.unlink()
    with pytest.raises(FileNotFoundError, match=name):
        client.load_checkpoint(place)
    is_live(client)
    path.write_bytes(whole)
    is_old(client, place)


def test_what_is_not_there(client: TransferQueueClient, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no checkpoint"):
        client.load_checkpoint(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match=r"metadata\.json"):
        client.load_checkpoint(tmp_path / "empty")
    (tmp_path / "file").write_text("x")
    with pytest.raises(NotADirectoryError):
        client.load_checkpoint(tmp_path / "file")
    for wrong in (5, None):
        with pytest.raises(TypeError, match="str or a Path"):
            client.load_checkpoint(wrong)  # type: ignore[arg-type]
    for wrong in ("", "/"):
        with pytest.raises(ValueError, match="cannot be the directory"):
            client.save_checkpoint(wrong)


def test_other_formats_and_versions_are_refused_by_number(client: TransferQueueClient, place: Path) -> None:
    manifest = json.loads((place / MANIFEST).read_text())
    (place / MANIFEST).write_text(json.dumps({**manifest, "format_version": 99}))
    with pytest.raises(tq.LayoutMismatchError, match="version 99; this build reads versions 1 and 2") as caught:
        client.load_checkpoint(place)
    assert (caught.value.expected, caught.value.found) == (1, 99)
    (place / MANIFEST).write_text(json.dumps({"storage_saved": True, "user_metadata": None}))
    with pytest.raises(tq.LayoutMismatchError, match="not of a checkpoint of this library"):
        client.load_checkpoint(place)
    is_live(client)


def test_directories_with_other_things_are_left_alone(client: TransferQueueClient, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(FileExistsError, match="other things"):
        client.save_checkpoint(tmp_path)
    with pytest.raises(FileExistsError, match="not a directory"):
        client.save_checkpoint(tmp_path / "thesis.tex")
    assert [(entry.name, entry.read_text()) for entry in tmp_path.iterdir()] == [("thesis.tex", "years of work")]
    assert not directories.beside(tmp_path, ".tmp").exists()
    (tmp_path / "empty").mkdir()
    client.save_checkpoint(tmp_path / "empty")
    client.load_checkpoint(tmp_path / "empty")


@pytest.mark.parametrize("metadata", [{1: 2}, (1, 2), {"x": float("nan")}, {"x": {1, 2}}, torch.zeros(2)])
def test_metadata_that_is_no_json_is_refused(client: TransferQueueClient, place: Path, metadata: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="JSON"):
        client.save_checkpoint(place, metadata=metadata)
    is_old(client, place)


def test_a_full_disk_leaves_the_old_checkpoint(client: TransferQueueClient, place: Path) -> None:
    client.put(TensorDict({"x": torch.zeros(8, 1 << 20, dtype=torch.uint8)}, [8]), partition_id="large")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # as in programs that are no Python
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (5 << 20, limits[1]))
        with pytest.raises(tq.SystemRefusedError, match="RLIMIT_FSIZE of this process is 5242880") as caught:
            client.save_checkpoint(place)
        with pytest.raises(tq.SystemRefusedError):
            client.save_checkpoint(place.parent / "new")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, ignored)
    assert caught.value.errno == errno.EFBIG
    client.clear_partition("large")
    is_live(client)
    is_old(client, place)


@pytest.mark.parametrize("call", ["os.fsync", "os.write", "os.rename", "exchange"])
def test_an_error_of_any_system_call_leaves_the_old_checkpoint(
    client: TransferQueueClient, place: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, "no luck")

    module, name = (os, call[3:]) if call.startswith("os.") else (directories, call)
    for target in (place, place.parent / "new") if call != "exchange" else (place,):
        with monkeypatch.context() as patched:
            if call == "os.rename" and target == place:
                patched.setattr(directories, "exchange", lambda *_: False)  # a file system that cannot
            patched.setattr(module, name, fails)
            with pytest.raises(OSError, match="no luck"):
                client.save_checkpoint(target)
    is_live(client)
    is_old(client, place)


@pytest.mark.parametrize("can_exchange", [True, False])
def test_a_swap_that_cannot_be_made_durable_is_undone(
    client: TransferQueueClient, place: Path, monkeypatch: pytest.MonkeyPatch, can_exchange: bool
) -> None:
    real = directories._sync_directory

    def fails_for_the_parent(path: Path) -> None:
        if path == place.parent:
            raise OSError(errno.EIO, "no luck")
        real(path)

    for target in (place, place.parent / "new"):
        with monkeypatch.context() as patched:
            patched.setattr(directories, "_sync_directory", fails_for_the_parent)
            if not can_exchange:
                patched.setattr(directories, "exchange", lambda *_: False)
            with pytest.raises(OSError, match="no luck"):
                client.save_checkpoint(target)
    is_live(client)
    is_old(client, place)


def test_without_exchange_the_directory_is_replaced_in_two_renames(
    client: TransferQueueClient, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directories, "exchange", lambda *_: False)
    client.save_checkpoint(place, metadata="new")
    assert [entry.name for entry in place.parent.iterdir()] == [place.name]
    assert client.load_checkpoint(place) == "new"
    # Its saver died between the two: whoever comes next puts the old one back.
    place.rename(directories.beside(place, ".old"))
    directories.beside(place, ".tmp").mkdir()
    assert client.load_checkpoint(place) == "new"
    client.save_checkpoint(place, metadata="newer")
    assert [entry.name for entry in place.parent.iterdir()] == [place.name]


def test_two_savers_of_one_place(client: TransferQueueClient, place: Path) -> None:
    with directories.written_beside(place) as temporary:
        (temporary / MANIFEST).write_text("{}")
        with pytest.raises(BlockingIOError, match="another process is saving"):
            client.save_checkpoint(place)
        shutil.copytree(place, temporary, dirs_exist_ok=True)
    is_old(client, place)


def test_a_store_too_full_for_both_is_left_as_it_is(client: TransferQueueClient, tmp_path: Path) -> None:
    filler = TensorDict({"x": torch.zeros(40, 1 << 20, dtype=torch.uint8)}, [40])
    meta = client.put(filler, partition_id="large")
    client.save_checkpoint(tmp_path / "c")
    with pytest.raises(tq.StorageFullError) as caught:
        client.load_checkpoint(tmp_path / "c")
    assert caught.value.wanted_bytes is not None
    assert caught.value.wanted_bytes >= 40 << 20
    assert client.stats().pending_bytes == 0
    assert int(client.get_data(meta, mode="copy")["x"].sum()) == 0
    client.clear_partition("large")
    client.load_checkpoint(tmp_path / "c")
    assert int(client.get_data(meta, mode="copy")["x"].sum()) == 0


@pytest.mark.parametrize("point", ["load.before_commit", "index.replace.before_commit"])
def test_a_load_that_fails_at_the_last_step_changes_nothing(
    client: TransferQueueClient, place: Path, point: str
) -> None:
    if not _native.PAUSE_POINTS:
        pytest.skip("pause points are not compiled in")
    _native.arm_pause(point, "fail")
    try:
        with pytest.raises(OSError, match=r"armed to fail"):
            client.load_checkpoint(place)
    finally:
        _native.resume(point)
    is_live(client)
    is_old(client, place)


def test_an_error_right_after_the_commit_is_the_one_that_is_raised(client: TransferQueueClient, place: Path) -> None:
    if not _native.PAUSE_POINTS:
        pytest.skip("pause points are not compiled in")
    _native.arm_pause("load.after_commit", "fail")
    try:
        with pytest.raises(OSError, match=r"armed to fail"):
            client.load_checkpoint(place)
    finally:
        _native.resume("load.after_commit")
    is_old(client, place)  # the rows are loaded, and can be loaded again


class Custom:
    """Only pickle keeps it."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Custom)

    __hash__ = None  # type: ignore[assignment]


@pytest.mark.parametrize("what", ["rows", "tags", "samplers"])
def test_pickles_in_files_are_refused_unless_the_caller_allows_them(
    client: TransferQueueClient, tmp_path: Path, what: str
) -> None:
    """Whoever owns them: who downloads a file owns it."""
    meta: BatchMeta = client.put(
        TensorDict({"x": NonTensorStack("a", Custom() if what == "rows" else {"t": torch.ones(2)})}, [2]),
        partition_id="p",
    )
    tags = [{"t": {1, 2}}, {}] if what == "tags" else [{"t": [1, 2]}, {}]
    client.kv_batch_put(["k", "l"], "keyed", None, tags=tags)
    if what == "samplers":
        assert client._store.task_commit(
            "p", "t", client._store.task_snapshot("p", "t", []).task_version, [], meta.index_array[:1], b"state"
        )
    client.save_checkpoint(tmp_path / "c")
    expected = list(client.get_data(meta)["x"])
    with pytest.raises(
        tq.PickleNotAllowedError, match=f"{what}.*allow_pickle=True" if what != "samplers" else "samplers"
    ):
        client.load_checkpoint(tmp_path / "c")
    assert client.stats().pending_bytes == 0
    client.load_checkpoint(tmp_path / "c", allow_pickle=True)
    assert str(next(iter(client.get_data(meta)["x"]))) == str(expected[0])
    assert client.kv_list("keyed")["keyed"]["k"] == tags[0]


@pytest.mark.parametrize("owner", [None, pytest.param(OTHER, marks=AS_ROOT)])
def test_plain_values_are_loaded_whoever_wrote_them(
    client: TransferQueueClient, tmp_path: Path, owner: int | None
) -> None:
    values = ["text", {"t": torch.arange(3)}, None, [1, b"x"]]
    meta = client.put(TensorDict({"x": NonTensorStack(*values)}, [4]), partition_id="p")
    client.save_checkpoint(tmp_path / "c")
    if owner is not None:
        for path in (tmp_path / "c", *(tmp_path / "c").iterdir()):
            os.chown(path, owner, owner)
    client.load_checkpoint(tmp_path / "c")
    back = list(client.get_data(meta, mode="copy")["x"])
    assert back[0] == "text"
    assert back[1]["t"].tolist() == [0, 1, 2]
    assert back[2:] == values[2:]


@pytest.mark.parametrize("missing", ["pyarrow.ipc", "xxhash"])
def test_a_missing_library_is_named_before_anything_is_made(
    client: TransferQueueClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    real = libraries.importlib.import_module

    def without(name: str) -> Any:
        if name == missing:
            raise ModuleNotFoundError(name)
        return real(name)

    monkeypatch.setattr(libraries.importlib, "import_module", without)
    for call in (client.save_checkpoint, client.load_checkpoint):
        with pytest.raises(ImportError, match=rf"{missing}.*transferqueue-shm\[checkpoint\]"):
            call(tmp_path / "c")
    assert not list(tmp_path.iterdir())


def test_a_library_that_cannot_be_loaded_is_not_called_missing(
    client: TransferQueueClient, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = libraries.importlib.import_module

    def broken(name: str) -> Any:
        if name == "pyarrow.ipc":
            raise ImportError("libarrow.so: cannot map it")
        return real(name)

    monkeypatch.setattr(libraries.importlib, "import_module", broken)
    with pytest.raises(ImportError, match=r"pyarrow\.ipc, which cannot be loaded here: libarrow\.so: cannot map it"):
        client.save_checkpoint(place.parent / "new")
    assert not (place.parent / "new").exists()
