from __future__ import annotations

import ctypes
import errno
import os
import shutil
from pathlib import Path

import pytest

from transferqueue.checkpoint import directories
from transferqueue.checkpoint.manifest import MANIFEST


def made(path: Path, text: str) -> Path:
    path.mkdir()
    (path / MANIFEST).write_text(text)
    return path


def test_exchange_swaps_names(tmp_path: Path) -> None:
    one, other = made(tmp_path / "one", "1"), made(tmp_path / "other", "2")
    if not directories.exchange(one, other):
        pytest.skip("the file system of the temporary directory cannot exchange names")
    assert ((one / MANIFEST).read_text(), (other / MANIFEST).read_text()) == ("2", "1")
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
            (temporary / MANIFEST).write_text("half")
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
        made(temporary / "more", "")
    if "old" in left:
        made(old, "old")
    if "target" in left:
        made(target, "target")
    directories.put_back(target)
    expected = "target" if "target" in left else "old" if "old" in left else None
    assert (target / MANIFEST).exists() == (expected is not None)
    if expected:
        assert (target / MANIFEST).read_text() == expected
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
