"""A directory replaced as a whole: written beside its place as ``<name>.tmp``, synced, swapped in.

Where the file system can exchange two names (ext4, xfs, btrfs, tmpfs), there is no moment without a checkpoint under
the name. Elsewhere the old one is ``<name>.old`` for the time of two renames, and whoever looks next puts it back if
the saver died between them.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import time
from collections.abc import Iterator
from pathlib import Path

from transferqueue.checkpoint.leftovers import is_checkpoint, refuse_others, remove_ours
from transferqueue.checkpoint.saver_lock import saver_lock
from transferqueue.storage.private_files import make_private_directory

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_NOT_SUPPORTED = frozenset({errno.EINVAL, errno.ENOSYS, errno.ENOTSUP})
_SWAP_S = 5.0  # two renames take less than a millisecond, unless their process is stopped
_LOOK_S = 0.005


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


def make_parents(target: Path) -> None:
    """The directories above it that are missing. Whatever the umask, nobody else may change names in them."""
    missing = [parent for parent in target.parents if not parent.exists()]
    for parent in reversed(missing):
        parent.mkdir(mode=0o755, exist_ok=True)


def put_back(target: Path) -> None:
    """Undoes the first half of a swap whose second half never came, because the saver died between two renames.

    A saver that lives does the second half itself in a moment, which is waited for.
    """
    until_s = time.monotonic() + _SWAP_S
    while not os.path.lexists(target) and is_checkpoint(beside(target, ".old")):
        try:
            with saver_lock(target):
                _put_back(target)
        except BlockingIOError:
            if time.monotonic() > until_s:
                return
            time.sleep(_LOOK_S)


def _put_back(target: Path) -> None:
    old = beside(target, ".old")
    if not os.path.lexists(target) and is_checkpoint(old):
        os.rename(old, target)


@contextlib.contextmanager
def written_beside(target: Path) -> Iterator[Path]:
    """The directory to write to; swapped in when the block ends, removed without a trace when it raises.

    Only files of a checkpoint are removed, and only through descriptors of directories: nothing that somebody else put
    beside or into the place, and nothing that a link leads to.

    Raises:
        FileExistsError: there is something else than a checkpoint at `target`, or than what a dead saver left at
            ``<name>.tmp`` or ``<name>.old``. It is as it was.
        BlockingIOError: another process is saving to the same place.
        OSError: of the file system.
    """
    make_parents(target)
    temporary, old = beside(target, ".tmp"), beside(target, ".old")
    # Held from the first look at the names until the old checkpoint is removed. So whatever is at one of these names
    # was put there by the holder, or left by somebody who died, or is not ours; and nobody else writes into the
    # directory that is being removed, or swaps it in.
    with saver_lock(target):
        _put_back(target)
        refuse_others(target, whole=True)
        refuse_others(old, whole=False)
        remove_ours(temporary)
        make_private_directory(os.fspath(temporary))
        try:
            with _the_same(temporary):
                yield temporary
            _sync_directory(temporary)
            refuse_others(target, whole=True)  # writing took a while
            _swap_in(temporary, target)
        except BaseException:
            _remove_quietly(temporary)
            raise
        # From here on the new checkpoint stands; what is left of the old one is not worth an error.
        _remove_quietly(temporary)
        _remove_quietly(old)


def _remove_quietly(path: Path) -> None:
    with contextlib.suppress(OSError):
        remove_ours(path)


@contextlib.contextmanager
def _the_same(temporary: Path) -> Iterator[None]:
    """That nobody put another directory, or a link, in the place of `temporary` meanwhile."""
    fd = os.open(temporary, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        yield
        if not os.path.samestat(os.lstat(temporary), os.fstat(fd)):
            raise FileExistsError(errno.EEXIST, "not the directory that the save has made", str(temporary))
    finally:
        os.close(fd)


def _swap_in(temporary: Path, target: Path) -> None:
    """Puts `temporary` at `target`, durably, or leaves both as they were."""
    with contextlib.ExitStack() as undo:
        if not os.path.lexists(target):
            os.rename(temporary, target)
            undo.callback(os.rename, target, temporary)
        elif exchange(temporary, target):
            undo.callback(exchange, temporary, target)
        else:
            old = beside(target, ".old")
            remove_ours(old)
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
