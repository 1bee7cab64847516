"""Files and directories that are this user's alone, checked on the open descriptor.

`/dev/shm`, and perhaps `storage.dir`, are directories in which every user may create names, ours too. So nothing is
taken for ours because of its name: what is created is created exclusively, with its mode set whatever the umask; what
exists is opened without following a link and looked at through the descriptor that is used afterwards. Below a
directory that passed, nobody but this user (and root) can put anything.
"""

from __future__ import annotations

import contextlib
import errno
import os
import pwd
import secrets
import stat
from collections.abc import Iterator

from transferqueue.errors import UntrustedFileError

FILE_MODE = 0o600
DIRECTORY_MODE = 0o700
# Not to block on a pipe that somebody put in the place of a file.
_SAFE = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_MAX_TEXT_NBYTES = 16 << 20


def user_text(uid: int) -> str:
    """Who that is, for messages: ``uid 1000 (alice)``."""
    try:
        return f"uid {uid} ({pwd.getpwuid(uid).pw_name})"
    except (KeyError, OSError):
        return f"uid {uid}"


def open_private(path: str, flags: int = os.O_RDONLY, *, dir_fd: int | None = None, directory: bool = False) -> int:
    """A descriptor of a file (or directory) that exists and is this user's alone.

    Raises:
        UntrustedFileError: it is a link, something else than a file, another user's, open to others, or a second name
            of some other file; says which and whose it is.
        OSError: of the file system, FileNotFoundError among them.
    """
    try:
        fd = os.open(path, flags | _SAFE | (os.O_DIRECTORY if directory else 0), dir_fd=dir_fd)
    except OSError as error:
        # A link, a directory, a socket, a pipe without a reader; and what another user's mode keeps us from opening.
        if error.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO, errno.ENOTDIR, errno.EACCES, errno.EPERM):
            refuse_untrusted(path, dir_fd=dir_fd, directory=directory)
        raise
    try:
        _refuse(os.fstat(fd), path, directory)
    except BaseException:
        os.close(fd)
        raise
    return fd


def create_private(path: str, *, dir_fd: int | None = None) -> int:
    """A descriptor, for reading and writing, of a new file that only this user may open.

    Raises:
        FileExistsError: the name is taken, also by a link. UntrustedFileError: the file system keeps neither owners nor
        modes, or gives files to somebody else. OSError: of the file system.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | _SAFE, FILE_MODE, dir_fd=dir_fd)
    try:
        os.fchmod(fd, FILE_MODE)  # the umask may have taken bits of our own
        _refuse(os.fstat(fd), path, directory=False)
    except BaseException:
        os.close(fd)
        os.unlink(path, dir_fd=dir_fd)
        raise
    return fd


def make_private_directory(path: str) -> None:
    """A new directory that only this user may enter. Raises FileExistsError."""
    os.mkdir(path, DIRECTORY_MODE)
    os.chmod(path, DIRECTORY_MODE)  # the umask may have taken bits of our own


def remove_tree(path: str) -> None:
    """Removes what can be removed of a directory that is this user's alone, with one descriptor open at a time: what
    cleans up may have found none free. Links are not followed; what is itself one stays."""
    if os.path.islink(path):
        return
    with contextlib.suppress(OSError):
        with os.scandir(path) as found:
            entries = list(found)
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                remove_tree(entry.path)
            else:
                with contextlib.suppress(OSError):
                    os.unlink(entry.path)
    with contextlib.suppress(OSError):
        os.rmdir(path)


@contextlib.contextmanager
def replaced_private(path: str, text: str) -> Iterator[None]:
    """Replaces the file in one step once the body is done: what can fail of it for want of room fails before."""
    part = f"{path}.{os.getpid()}-{secrets.token_hex(4)}.part"
    fd = create_private(part)
    try:
        with open(fd, "w", encoding="utf-8") as file:
            file.write(text)
        yield
        os.rename(part, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(part)
        raise


def write_private(path: str, text: str) -> None:
    """Replaces the file in one step."""
    with replaced_private(path, text):
        pass


def read_private(path: str) -> str:
    """The text of a file that is this user's alone.

    Raises:
        UntrustedFileError, OSError: as `open_private`. ValueError: no text, or absurdly long.
    """
    with open(open_private(path), "rb") as file:
        raw = file.read(_MAX_TEXT_NBYTES + 1)
    if len(raw) > _MAX_TEXT_NBYTES:
        raise ValueError(f"{path} has more than {_MAX_TEXT_NBYTES} bytes")
    return raw.decode()


def refuse_untrusted(path: str, *, dir_fd: int | None = None, directory: bool = False) -> None:
    """Looks at a name without opening it; quiet when it is this user's alone or nothing. For names in a directory that
    passed, or for messages: elsewhere another user may change it right after.

    Raises:
        UntrustedFileError: as `open_private`.
    """
    try:
        found = os.stat(path, dir_fd=dir_fd, follow_symlinks=False)
    except FileNotFoundError:
        return
    _refuse(found, path, directory)


def _refuse(found: os.stat_result, path: str, directory: bool) -> None:
    wanted, kind = (stat.S_ISDIR, "directory") if directory else (stat.S_ISREG, "file")
    why = None
    if found.st_uid != os.geteuid():
        why = f"belongs to {user_text(found.st_uid)}; this process is {user_text(os.geteuid())}"
    elif not wanted(found.st_mode):
        why = f"is {_kind(found.st_mode)}, not a {kind}"
    elif stat.S_IMODE(found.st_mode) & 0o077:
        why = f"is open to other users (mode {stat.S_IMODE(found.st_mode):04o}), who may have changed it"
    elif not directory and found.st_nlink > 1:
        why = f"is a hard link: the file has {found.st_nlink} names"
    if why is not None:
        raise UntrustedFileError(
            f"{path} {why}. It is neither used nor changed; choose another name, or have its owner remove it",
            path=path,
            uid=found.st_uid,
        )


def _kind(mode: int) -> str:
    for test, name in (
        (stat.S_ISLNK, "a symbolic link"),
        (stat.S_ISDIR, "a directory"),
        (stat.S_ISREG, "a file"),
        (stat.S_ISFIFO, "a pipe"),
        (stat.S_ISSOCK, "a socket"),
    ):
        if test(mode):
            return name
    return "a device"
