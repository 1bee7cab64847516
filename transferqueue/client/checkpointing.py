"""Saving a session's rows to disk, and putting saved ones in their place."""

from __future__ import annotations

import functools
import os
from typing import Any

from transferqueue import checkpoint
from transferqueue.aio import asynchronous
from transferqueue.client.streams import StreamCalls
from transferqueue.storage.loaded_sessions import noting_loaded_sessions, read_loaded_sessions


class CheckpointCalls(StreamCalls):
    """Part of `TransferQueueClient`."""

    def save_checkpoint(
        self, dir: str | os.PathLike[str], *, include_storage: bool = True, metadata: Any = None
    ) -> None:
        """Writes all rows of the session to a directory: fields, keys, tags, what was produced and consumed, the states
        of samplers. Claims are not saved: a claimed row is unconsumed after a load.

        Rows are those of one moment, however long writing takes and whatever producers do meanwhile: a put is in it
        whole or not at all. The bytes are written from shared memory as they lie there; what is cleared meanwhile is
        kept until they are written. The directory appears, or takes the place of an older checkpoint, in one step;
        after an error or a crash the older one stands.

        Args:
            dir: made with its parents; a directory with other things in it is refused.
            include_storage: False is overridden: a session's memory holds the only copy of the fields.
            metadata: JSON values of your own, given back by `load_checkpoint`.

        Raises:
            TypeError, ValueError: `metadata` is not JSON.
            FileExistsError: `dir` is something else than a checkpoint. BlockingIOError: somebody else saves to it now.
            ImportError: pyarrow or xxhash is missing (``pip install 'transferqueue-shm[checkpoint]'``).
            OSError: of the file system, for instance a full disk. Nothing is left behind.
        """
        store = self._open()
        paths = self._attachment.paths
        earlier = read_loaded_sessions(paths)
        checkpoint.save(store, dir, session=self.session, earlier_sessions=earlier, user_metadata=metadata)

    def load_checkpoint(self, dir: str | os.PathLike[str], *, allow_pickle: bool | None = None) -> Any:
        """Puts the rows of a checkpoint in the place of all rows of the session; returns the `metadata` saved with it.

        Rows keep their global indexes, so metadata made before the save is valid again, also in another session;
        indexes that the saved session had given out are not given out again. Everything is verified, and brought into
        memory beside what is there, before one commit switches: until then, and after any error, readers see the
        session as it was. Views that anybody holds stay as they are. Rows put by others while the load runs are
        replaced as well: stop producers first.

        Args:
            dir: what `save_checkpoint` wrote.
            allow_pickle: whether values that only pickle keeps may be loaded: unpickling runs code of whoever wrote
                them, and who wrote a file, no file says. None: only if the configuration says ``allow_pickle=True``.

        Raises:
            FileNotFoundError: no such directory, or no ``metadata.json`` in it.
            CorruptSegmentError: a file is damaged or truncated; names it.
            LayoutMismatchError: of another format or version.
            PickleNotAllowedError: see `allow_pickle`.
            StorageFullError: no room for the checkpoint beside what the session holds; clear partitions first.
            ImportError: as in `save_checkpoint`.
        """
        store = self._open()
        noting = functools.partial(noting_loaded_sessions, self._attachment.paths)
        return checkpoint.load(store, dir, noting, allow_pickle=self._may_unpickle(allow_pickle)).user_metadata

    def save_controller_checkpoint(self, path: str | os.PathLike[str]) -> None:
        """Writes what the session says about its rows (keys, tags, consumption, states of samplers), not their fields,
        to one file. For programs that save the two halves apart; `save_checkpoint` saves both at one moment."""
        checkpoint.save_rows(self._open(), path, session=self.session)

    def load_controller_checkpoint(self, path: str | os.PathLike[str], *, allow_pickle: bool | None = None) -> None:
        """Puts the rows of `save_controller_checkpoint` in the place of all rows; a row that is there already, in a
        partition of the same name and under the same index, keeps its fields. Arguments and errors as
        `load_checkpoint`."""
        checkpoint.load_rows(self._open(), path, allow_pickle=self._may_unpickle(allow_pickle))

    def save_storage_checkpoint(self, dir: str | os.PathLike[str]) -> None:
        """The other half: the fields, with the rows that they belong to. The same as `save_checkpoint`."""
        self.save_checkpoint(dir)

    def load_storage_checkpoint(self, dir: str | os.PathLike[str], *, allow_pickle: bool | None = None) -> None:
        """Loads what `save_storage_checkpoint` wrote, rows and fields; before or after the other half."""
        self.load_checkpoint(dir, allow_pickle=allow_pickle)

    def _may_unpickle(self, asked: bool | None) -> bool:
        return self._config.unpickles_files if asked is None else bool(asked)

    async_save_controller_checkpoint = asynchronous(save_controller_checkpoint)
    async_load_controller_checkpoint = asynchronous(load_controller_checkpoint)
    async_save_storage_checkpoint = asynchronous(save_storage_checkpoint)
    async_load_storage_checkpoint = asynchronous(load_storage_checkpoint)
    async_save_checkpoint = asynchronous(save_checkpoint)
    async_load_checkpoint = asynchronous(load_checkpoint)
