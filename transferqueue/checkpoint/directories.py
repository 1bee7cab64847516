"""A directory replaced as a whole: written beside its place as ``<name>.tmp``, synced, swapped in.

Where the file system can exchange two names (ext4, xfs, btrfs, tmpfs), there is no moment without a checkpoint under
the name. Elsewhere the old one is ``<name>.old`` for the time of two renames, and whoever looks next puts it back if
the saver died between them.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from transferqueue.checkpoint.manifest import MANIFEST

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_NOT_SUPPORTED = frozenset({errno.EINVAL, errno.ENOSYS, errno.ENOTSUP})
_NO_LOCKS = frozenset(
    {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EINVAL, errno.EBADF}
)  # some network file systems


def beside(target: Path, ending: str) -> Path:
    """``<target><ending>`` in the same directory."""
    return target.with_name(target.name + ending)


def resolved(directory: str | os.PathLike[str]) -> Path:
    """The absolute path of a checkpoint's directory; what its last part may link to is followed.

    Raises:
        TypeError: not a path. ValueError: a path without a name of its own ("/").
    """
    if not isinstance(directory, (str, os.PathLike)):
        raise TypeError(f"the directory of a checkpoint must be a str or a Path, not {type(directory).__name__}")
    path = Path(os.path.realpath(directory))
    if not os.fspath(directory) or not path.name:
        raise ValueError(f"{os.fspath(directory)!r} cannot be the directory of a checkpoint")
    return path


def put_back(target: Path) -> None:
    """Undoes the first half of a swap whose second half never came, because the saver died between two renames."""
    old = beside(target, ".old")
    if not target.exists() and (old / MANIFEST).is_file():
        with contextlib.suppress(FileNotFoundError):  # somebody else was quicker
            os.rename(old, target)


@contextlib.contextmanager
def written_beside(target: Path) -> Iterator[Path]:
    """The directory to write to; swapped in when the block ends, removed without a trace when it raises.

    Raises:
        FileExistsError: there is something else than a checkpoint at `target`.
        BlockingIOError: another process is saving to the same place.
        OSError: of the file system.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    put_back(target)
    _refuse_other_things(target)
    temporary = beside(target, ".tmp")
    with _claimed(temporary):
        try:
            yield temporary
            _sync_directory(temporary)
            _swap_in(temporary, target)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        # From here on the new checkpoint stands; what is left of the old one is not worth an error.
        shutil.rmtree(temporary, ignore_errors=True)
        shutil.rmtree(beside(target, ".old"), ignore_errors=True)


def _refuse_other_things(target: Path) -> None:
    if not os.path.lexists(target):
        return
    if not target.is_dir():
        raise FileExistsError(errno.EEXIST, "not a directory; a checkpoint is one", str(target))
    if any(target.iterdir()) and not (target / MANIFEST).is_file():
        raise FileExistsError(
            errno.EEXIST, f"a directory with other things in it (no {MANIFEST}), which a save would remove", str(target)
        )


@contextlib.contextmanager
def _claimed(temporary: Path) -> Iterator[None]:
    """`temporary` made anew and locked. One that is there and not locked was left by somebody who died."""
    while True:
        with contextlib.suppress(FileExistsError):
            temporary.mkdir(mode=0o700)
        try:
            fd = os.open(temporary, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue  # its saver has just finished
        try:
            _lock(fd, temporary)
            if not _is_still(temporary, fd):
                continue
            for left in temporary.iterdir():
                shutil.rmtree(left) if left.is_dir() and not left.is_symlink() else left.unlink()
            yield
            return
        finally:
            os.close(fd)


def _lock(fd: int, path: Path) -> None:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise BlockingIOError(errno.EAGAIN, "another process is saving to the same place", str(path)) from None
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise


def _is_still(path: Path, fd: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(fd))
    except FileNotFoundError:
        return False


def _swap_in(temporary: Path, target: Path) -> None:
    """Puts `temporary` at `target`, durably, or leaves both as they were."""
    with contextlib.ExitStack() as undo:
        if not target.exists():
            os.rename(temporary, target)
            undo.callback(os.rename, target, temporary)
        elif exchange(temporary, target):
            undo.callback(exchange, temporary, target)
        else:
            old = beside(target, ".old")
            shutil.rmtree(old, ignore_errors=True)
            os.rename(target, old)
            undo.callback(os.rename, old, target)
            os.rename(temporary, target)
            undo.callback(os.rename, target, temporary)
        _sync_directory(target.parent)
        undo.pop_all()


def exchange(one: Path, other: Path) -> bool:
    """Swaps two names in one step; False where the system or the file system cannot.

    Raises:
        OSError: it can, and failed.
    """
    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if call is None:
        return False
    if call(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), ctypes.c_uint(_RENAME_EXCHANGE)) == 0:
        return True
    failure = ctypes.get_errno()
    if failure in _NOT_SUPPORTED:
        return False
    raise OSError(failure, os.strerror(failure), str(one), None, str(other))


def _sync_directory(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
