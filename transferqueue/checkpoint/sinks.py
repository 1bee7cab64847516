"""Files on their way out: counted and hashed as they are written, durable when closed."""

from __future__ import annotations

import os
from typing import Any

from transferqueue.checkpoint.libraries import new_checksum
from transferqueue.checkpoint.manifest import FileFacts
from transferqueue.storage.private_files import FILE_MODE

# One write call takes at most 2 GiB less a page, and less is as fast.
_WRITE_NBYTES = 64 << 20


class HashingFile:
    """A new file that Arrow writes to; what it is handed is hashed and written from where it is, without a copy."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._fd: int | None = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
        os.fchmod(self._fd, FILE_MODE)  # the umask may have taken bits of our own
        self._nbytes = 0
        self._checksum = new_checksum()

    @property
    def closed(self) -> bool:
        """Asked by Arrow."""
        return self._fd is None

    def tell(self) -> int:
        """Bytes written."""
        return self._nbytes

    def write(self, data: Any) -> int:
        """All of `data`, any buffer. Raises OSError (a full disk, a limit on the size of files)."""
        assert self._fd is not None  # narrowing: Arrow asks `closed` first
        view = memoryview(data).cast("B")
        for at in range(0, len(view), _WRITE_NBYTES):
            piece = view[at : at + _WRITE_NBYTES]
            self._checksum.update(piece)
            while piece:
                piece = piece[os.write(self._fd, piece) :]
        self._nbytes += len(view)
        return len(view)

    def flush(self) -> None:
        """Nothing is held back."""

    def finish(self) -> FileFacts:
        """Syncs and closes; what the manifest says about the file."""
        assert self._fd is not None  # narrowing: once
        os.fsync(self._fd)
        self.close()
        return FileFacts(self._nbytes, self._checksum.hexdigest())

    def close(self) -> None:
        """Without syncing. Idempotent."""
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)
