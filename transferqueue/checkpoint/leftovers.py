"""What a save may remove: directories in which there is nothing but a checkpoint's own files."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from transferqueue.checkpoint.manifest import FORMAT, MANIFEST, is_name_of_ours
from transferqueue.storage.private_files import user_text

_MANIFEST_START = b'{\n  "format": "' + FORMAT.encode() + b'"'
_HEAD_NBYTES = 4096
_OPEN = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


def refuse_others(path: Path, *, whole: bool) -> None:
    """Whether a save may remove what is at `path`: nothing, an empty directory, or one with files of ours only.

    Args:
        whole: whether it must be a checkpoint; otherwise what a saver that died has left counts, too.

    Raises:
        FileExistsError: it is something else. Nothing was changed.
    """
    with _opened(path) as folder:
        if folder is not None:
            _refuse_others_in(folder, path, whole)


def is_checkpoint(path: Path) -> bool:
    """Whether there is a directory with our manifest, and no link to one."""
    try:
        with _opened(path) as folder:
            return folder is not None and FORMAT.encode() in _manifest_head(folder)
    except FileExistsError:
        return False


def remove_ours(path: Path) -> None:
    """Removes what `refuse_others(path, whole=False)` allows. Whatever else turns up in it meanwhile stays, with it.

    Raises:
        FileExistsError: as there. OSError: of the file system.
    """
    with _opened(path) as folder:
        if folder is None:
            return
        _refuse_others_in(folder, path, whole=False)
        ours = sorted(filter(is_name_of_ours, os.listdir(folder)))
        # The manifest first, so that what is half removed never looks like a whole checkpoint.
        for name in (MANIFEST, *ours):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=folder)
        os.rmdir(path)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int | None]:
    folder = None
    try:
        folder = os.open(path, _OPEN | os.O_DIRECTORY)
    except FileNotFoundError:
        pass
    except OSError as error:
        if error.errno in (errno.ENOTDIR, errno.ELOOP):
            raise FileExistsError(errno.EEXIST, "not a directory; a save needs this name for one", str(path)) from None
        if error.errno == errno.EACCES:
            refuse_foreign(os.lstat(path), path)
        raise
    try:
        yield folder
    finally:
        if folder is not None:
            os.close(folder)


def _refuse_others_in(folder: int, path: Path, whole: bool) -> None:
    refuse_foreign(os.fstat(folder), path)
    names = os.listdir(folder)
    foreign = sorted(name for name in names if not is_name_of_ours(name) or not _is_file(folder, name))
    if foreign:
        raise FileExistsError(
            errno.EEXIST, f"a directory with other things in it ({foreign[0]!r}), which a save would remove", str(path)
        )
    if not names or (MANIFEST not in names and not whole):
        return
    head = _manifest_head(folder)
    # A saver that died may have written some of it only.
    if FORMAT.encode() in head or (not whole and _MANIFEST_START.startswith(head)):
        return
    raise FileExistsError(
        errno.EEXIST,
        f"a directory with other things in it (no {MANIFEST} of ours), which a save would remove",
        str(path),
    )


def refuse_foreign(found: os.stat_result, path: Path) -> None:
    """What another user made first is neither written to nor removed.

    Raises:
        FileExistsError: says whose it is.
    """
    if found.st_uid != os.geteuid():
        raise FileExistsError(
            errno.EEXIST,
            f"it belongs to {user_text(found.st_uid)} and a save would replace it; choose another place",
            str(path),
        )


def _is_file(folder: int, name: str) -> bool:
    try:
        return stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return True  # gone meanwhile


def _manifest_head(folder: int) -> bytes:
    """Empty where there is none."""
    try:
        fd = os.open(MANIFEST, _OPEN, dir_fd=folder)
    except OSError:
        return b""
    try:
        return os.read(fd, _HEAD_NBYTES) if stat.S_ISREG(os.fstat(fd).st_mode) else b""
    finally:
        os.close(fd)
