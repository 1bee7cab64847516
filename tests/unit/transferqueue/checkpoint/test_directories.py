from __future__ import annotations

import ctypes
import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from transferqueue.checkpoint import directories
from transferqueue.checkpoint.manifest import FORMAT, MANIFEST


def made(path: Path, text: str) -> Path:
    path.mkdir()
    (path / MANIFEST).write_text(text_of(text))
    return path


def text_of(what: str) -> str:
    return f'{{"format": "{FORMAT}", "what": "{what}"}}'


def test_exchange_swaps_names(tmp_path: Path) -> None:
    one, other = made(tmp_path / "one", "1"), made(tmp_path / "other", "2")
    if not directories.exchange(one, other):
        pytest.skip("the file system of the temporary directory cannot exchange names")
    assert ((one / MANIFEST).read_text(), (other / MANIFEST).read_text()) == (text_of("2"), text_of("1"))
    with pytest.raises(FileNotFoundError):
        directories.exchange(one, tmp_path / "nowhere")


@pytest.mark.parametrize("failure", [errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, None])
def test_systems_that_cannot_exchange(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: int | None) -> None:
    class Library:
        def __init__(self, *_: object, **__: object) -> None:
            if failure is not None:
                self.renameat2 = lambda *_: ctypes.set_errno(failure) or -1

    monkeypatch.setattr(ctypes, "CDLL", Library)
    assert not directories.exchange(tmp_path, tmp_path)


def test_a_directory_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "down" / "c"

    def interrupted() -> None:
        with directories.written_beside(target) as temporary:
            (temporary / MANIFEST).write_text(text_of("half"))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert list(target.parent.iterdir()) == []
    with directories.written_beside(target) as temporary:
        (temporary / MANIFEST).write_text("whole")
        assert not target.exists()
    assert [entry.name for entry in target.parent.iterdir()] == ["c"]


@pytest.mark.parametrize("left", ["tmp", "tmp and old", "old", "target and old"])
def test_what_the_dead_left(tmp_path: Path, left: str) -> None:
    target, temporary, old = tmp_path / "c", tmp_path / "c.tmp", tmp_path / "c.old"
    if "tmp" in left:
        made(temporary, "half")
        (temporary / "rows.arrow").write_text("half")
    if "old" in left:
        made(old, "old")
    if "target" in left:
        made(target, "target")
    directories.put_back(target)
    expected = "target" if "target" in left else "old" if "old" in left else None
    assert (target / MANIFEST).exists() == (expected is not None)
    if expected:
        assert (target / MANIFEST).read_text() == text_of(expected)
    with directories.written_beside(target) as found:
        assert list(found.iterdir()) == []
        (found / MANIFEST).write_text("new")
    assert [entry.name for entry in tmp_path.iterdir()] == ["c"]
    assert (target / MANIFEST).read_text() == "new"


def test_a_linked_directory_is_replaced_where_it_lies(tmp_path: Path) -> None:
    real = made(tmp_path / "real", "1")
    (tmp_path / "link").symlink_to(real)
    with directories.written_beside(directories.resolved(tmp_path / "link")) as temporary:
        (temporary / MANIFEST).write_text("2")
    assert (tmp_path / "link").is_symlink()
    assert (real / MANIFEST).read_text() == "2"
    shutil.rmtree(real)


def test_relative_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert directories.resolved("c") == Path(os.path.realpath(tmp_path)) / "c"
    assert directories.resolved(Path("a/../c/")) == Path(os.path.realpath(tmp_path)) / "c"


def content(directory: Path) -> dict[str, str | None]:
    return {
        str(path.relative_to(directory)): path.read_text() if path.is_file() and not path.is_symlink() else None
        for path in sorted(directory.rglob("*"))
    }


def folder_with(path: Path, *names: str) -> None:
    path.mkdir()
    for name in names:
        (path / name).write_text("mine")


OTHERS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "a file in the checkpoint": ("c", lambda place: (place / "model.pt").write_text("weights")),
    "a directory in the checkpoint": ("c", lambda place: folder_with(place / "optim", "o.pt")),
    "a directory in the place of a file": ("c", lambda place: (place / "rows.arrow").mkdir()),
    "a manifest of others": ("c", lambda place: (place / MANIFEST).write_text("{}")),
    "a folder c.tmp": ("c.tmp", lambda place: folder_with(place, "mine")),
    "a folder c.tmp with a manifest of others": ("c.tmp", lambda place: folder_with(place, MANIFEST)),
    "a file c.tmp": ("c.tmp", lambda place: place.write_text("mine")),
    "a link c.tmp": ("c.tmp", lambda place: place.symlink_to(place.parent / "home")),
    "a folder c.old": ("c.old", lambda place: folder_with(place, "mine", "rows.arrow")),
    "a file c.old": ("c.old", lambda place: place.write_text("mine")),
    "a link c.old": ("c.old", lambda place: place.symlink_to(place.parent / "home")),
    "a link of files": ("c.tmp", lambda place: (place.mkdir(), (place / MANIFEST).symlink_to(place.parent / "home"))),
    "a file of the lock": (".c.saving", lambda place: place.write_text("mine")),
    "a link of the lock": (".c.saving", lambda place: place.symlink_to(place.parent / "home" / MANIFEST)),
    "a folder of the lock": (".c.saving", lambda place: place.mkdir()),
    "a pipe of the lock": (".c.saving", os.mkfifo),
}


@pytest.mark.parametrize("what", OTHERS)
def test_what_is_not_ours_stays(tmp_path: Path, what: str) -> None:
    name, put = OTHERS[what]
    made(tmp_path / "home", "home")
    made(tmp_path / "c", "old")
    put(tmp_path / name)
    before = content(tmp_path)
    with pytest.raises(FileExistsError) as caught, directories.written_beside(tmp_path / "c"):
        raise AssertionError("must not be written")
    assert caught.value.filename == str(tmp_path / name)
    assert content(tmp_path) == before
    if name == "c.old":  # and it is nothing that could be put back
        shutil.rmtree(tmp_path / "c")
        directories.put_back(tmp_path / "c")
        assert not (tmp_path / "c").exists()


@pytest.mark.parametrize("written", ["", '{\n  "format": "transferq', '{\n  "format": "transferqueue-shm checkpoint",'])
def test_half_a_manifest_is_of_a_saver_that_died(tmp_path: Path, written: str) -> None:
    (tmp_path / "c.tmp").mkdir()
    (tmp_path / "c.tmp" / MANIFEST).write_text(written)
    (tmp_path / ".c.saving").touch()
    with directories.written_beside(tmp_path / "c") as temporary:
        (temporary / MANIFEST).write_text(text_of("new"))
    assert content(tmp_path) == {"c": None, f"c/{MANIFEST}": text_of("new")}


def test_what_comes_while_a_save_writes_stays(tmp_path: Path) -> None:
    target = made(tmp_path / "c", "old")

    def another_file(temporary: Path) -> None:
        (temporary / MANIFEST).write_text(text_of("new"))
        (target / "model.pt").write_text("weights")

    def a_link(temporary: Path) -> None:
        temporary.rmdir()
        temporary.symlink_to(tmp_path / "home")

    def save(meanwhile: Callable[[Path], None]) -> None:
        with directories.written_beside(target) as temporary:
            meanwhile(temporary)

    with pytest.raises(FileExistsError):
        save(another_file)
    assert content(tmp_path) == {"c": None, f"c/{MANIFEST}": text_of("old"), "c/model.pt": "weights"}
    (target / "model.pt").unlink()
    made(tmp_path / "home", "home")
    with pytest.raises(FileExistsError, match="not the directory that the save has made"):
        save(a_link)
    assert (tmp_path / "home" / MANIFEST).read_text() == text_of("home")
    assert (target / MANIFEST).read_text() == text_of("old")
