"""Reading the small files of a session directory, which others may have damaged or replaced."""

from __future__ import annotations

import errno
import os
import stat

_MAX_NBYTES = 16 << 20


def read_small(path: str) -> bytes:
    """The file's bytes.

    Raises:
        FileNotFoundError: there is none. OSError: it cannot be read.
        ValueError: no plain file (a pipe in its place would block, a link lead anywhere), or larger than any of them.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise ValueError(f"{path} is a link or a socket") from error
        raise
    with open(fd, "rb") as file:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or status.st_size > _MAX_NBYTES:
            raise ValueError(f"{path} is no file of a session, or too large for one")
        return file.read(_MAX_NBYTES)
