"""A checkpoint's files, opened once: what is verified is what is read, whatever happens to their names meanwhile."""

from __future__ import annotations

import errno
import os
import stat
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from transferqueue.checkpoint.directories import put_back
from transferqueue.checkpoint.libraries import new_checksum, pyarrow
from transferqueue.checkpoint.manifest import FILES, MANIFEST, Manifest, parse_manifest
from transferqueue.errors import CorruptCheckpointError, TransferQueueError

_READ_NBYTES = 16 << 20
_MAX_MANIFEST_NBYTES = 64 << 20


@contextmanager
def as_corruption(path: str, what: str, *more: type[Exception]) -> Iterator[None]:
    """CorruptCheckpointError for whatever a file that is not what it promises makes of the libraries that read it."""
    arrow = pyarrow()
    try:
        yield
    except TransferQueueError:
        raise
    except OSError as error:
        if error.errno is not None:  # the system's, not Arrow's, which has none
            raise
        raise CorruptCheckpointError(f"{path} cannot be loaded, {what}: {error}", path=path) from error
    except (ValueError, TypeError, LookupError, OverflowError, AttributeError, arrow.ArrowException, *more) as error:
        raise CorruptCheckpointError(f"{path} cannot be loaded, {what}: {error}", path=path) from error


def checked_table(reader: Any) -> Any:
    """All of what an Arrow reader reads. Its offsets and text were looked at before anybody follows them: joining
    chunks or making Python values of columns that lie would read what is not theirs.

    Raises:
        pyarrow.ArrowException: it contradicts itself.
    """
    table = reader.read_all()
    table.validate(full=True)
    return table


def _is_still(directory: Path, folder: int) -> bool:
    try:
        return os.path.samestat(os.stat(directory), os.fstat(folder))
    except FileNotFoundError:
        return False


class CheckpointFiles:
    """The open files of one checkpoint; a context manager that closes them.

    Args:
        wanted: which of its files are opened; None: all.

    Attributes:
        manifest: what `metadata.json` says.
        checksum: of its bytes.

    Raises:
        FileNotFoundError: no such directory, or no ``metadata.json`` or other file in it.
        CorruptCheckpointError, LayoutMismatchError: see `parse_manifest`.
    """

    def __init__(self, directory: Path, wanted: Callable[[str], bool] | None = None) -> None:
        self._directory = directory
        self._wanted = wanted
        self._fds: dict[str, int] = {}
        while not self._open_all():
            pass

    def path(self, name: str) -> str:
        """For messages."""
        return str(self._directory / name)

    def verify(self) -> None:
        """Reads all files that are open and compares sizes and checksums.

        Raises:
            CorruptCheckpointError: names the first file that is not as it was written.
        """
        buffer = bytearray(_READ_NBYTES)
        view = memoryview(buffer)
        for name, facts in self.manifest.files.items():
            if name not in self._fds:
                continue
            fd, path = self._fds[name], self.path(name)
            found = os.fstat(fd).st_size
            if found != facts.nbytes:
                raise CorruptCheckpointError(
                    f"{path} has {found} bytes, not the {facts.nbytes} that were written: it was truncated or changed",
                    path=path,
                )
            checksum, at = new_checksum(), 0
            while count := os.preadv(fd, [buffer], at):
                checksum.update(view[:count])
                at += count
            if checksum.hexdigest() != facts.xxh3_128:
                raise CorruptCheckpointError(
                    f"{path} is damaged: its bytes do not have the checksum that was written", path=path
                )

    def reader(self, name: str) -> Any:
        """Arrow's reader of a file."""
        file = os.fdopen(os.dup(self._fds[name]), "rb", buffering=0)
        file.seek(0)
        return pyarrow().ipc.open_file(pyarrow().PythonFile(file, mode="r"))

    def table(self, name: str) -> Any:
        """A file's table, checked as `checked_table` does."""
        return checked_table(self.reader(name))

    def close(self) -> None:
        """Idempotent."""
        fds, self._fds = self._fds, {}
        for fd in fds.values():
            os.close(fd)

    def _open_all(self) -> bool:
        """False: a save has put another checkpoint in its place meanwhile, and is removing this one."""
        try:
            folder = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            put_back(self._directory)
            if self._directory.exists():
                return False
            raise FileNotFoundError(errno.ENOENT, "there is no checkpoint", str(self._directory)) from None
        try:
            self._open(folder, MANIFEST)
            raw = self._manifest_bytes()
            self.manifest: Manifest = parse_manifest(raw, self.path(MANIFEST), FILES)
            checksum = new_checksum()
            checksum.update(raw)
            self.checksum = str(checksum.hexdigest())
            for name in self.manifest.files:
                if self._wanted is None or self._wanted(name):
                    self._open(folder, name)
        except BaseException as error:
            self.close()
            if isinstance(error, FileNotFoundError) and not _is_still(self._directory, folder):
                return False
            raise
        finally:
            os.close(folder)
        return True

    def _open(self, folder: int, name: str) -> None:
        path = self.path(name)
        try:
            # A fifo in the place of a file would block, a link could lead anywhere.
            fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
        except FileNotFoundError:
            raise FileNotFoundError(errno.ENOENT, f"this is no whole checkpoint, it has no {name}", path) from None
        except OSError as error:
            if error.errno not in (errno.ELOOP, errno.ENXIO):
                raise
            kind = "a symbolic link" if error.errno == errno.ELOOP else "a socket or a device"
            raise CorruptCheckpointError(f"{path} is {kind}, not a file of a checkpoint", path=path) from None
        self._fds[name] = fd
        mode = os.fstat(fd).st_mode
        if not stat.S_ISREG(mode):
            kind = "a directory" if stat.S_ISDIR(mode) else "a pipe" if stat.S_ISFIFO(mode) else "a device"
            raise CorruptCheckpointError(f"{path} is {kind}, not a file of a checkpoint", path=path)

    def _manifest_bytes(self) -> bytes:
        raw = os.pread(self._fds[MANIFEST], _MAX_MANIFEST_NBYTES + 1, 0)
        if len(raw) > _MAX_MANIFEST_NBYTES:
            raise CorruptCheckpointError(
                f"{self.path(MANIFEST)} is larger than a manifest may be", path=self.path(MANIFEST)
            )
        return raw

    def __enter__(self) -> CheckpointFiles:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None
    ) -> None:
        self.close()
