"""What one node of several writes: the partitions whose home it is, and the payload that it keeps for others'."""

from __future__ import annotations

import ctypes
import errno
import os
import threading
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from transferqueue import _native
from transferqueue.checkpoint.leftovers import refuse_foreign
from transferqueue.checkpoint.manifest import HOMES, MARK, PAYLOAD, FileFacts, PartFacts
from transferqueue.checkpoint.piece import Ints, Piece
from transferqueue.checkpoint.save import write_files
from transferqueue.checkpoint.stub_names import named_by, stub_fields
from transferqueue.errors import DataLostError, TransferTimeoutError, name_some
from transferqueue.nodes.names import is_hidden, ordinals_of

# A network file system shows another node's files after a while.
_SEEN_WITHIN_S = 10.0
_LOOK_S = 0.05


class NodeSave:
    """One node's share of one save. Its calls are made one after another.

    Args:
        store: of the node.
        ordinal: of the node.
        directory: which all nodes see.
        mark: what stands in its file `MARK`.

    Raises:
        FileNotFoundError: this node sees no such directory, or another one. FileExistsError: another user's.
    """

    def __init__(self, store: _native.Store, ordinal: int, directory: str, mark: str) -> None:
        self._store = store
        self._ordinal = ordinal
        # What is written goes there, whatever is put in its place: a later save may take the name.
        self._folder = _opened(Path(directory), mark)
        self._path = Path(f"/proc/self/fd/{self._folder}")
        self._stopped = threading.Event()
        self._snapshot: _native.SessionSnapshot | None = None
        self._homes: Piece | None = None

    def look(self) -> Ints:
        """Takes the node's rows as they are now, all at one moment. Returns the names of payload that they have."""
        self._snapshot = self._store.save()
        self._homes = _of_homes(self._snapshot)
        return named_by(self._homes, _reader(self._snapshot, self._homes))

    def refuse_lost(self, names: Ints) -> None:
        """That nobody has the payload under these names.

        Raises:
            DataLostError: with the rows, when any row of this node has one.
        """
        snapshot, homes = self._seen()
        read = _reader(snapshot, homes)
        for stub in stub_fields(homes):
            found = stub.names(read)[stub.living]
            gone = np.isin(found, names)
            if gone.any():
                rows = np.unique(stub.indexes[gone]).tolist()
                nodes = np.unique(ordinals_of(found[gone])).tolist()
                raise DataLostError(
                    f"rows of partition {stub.partition!r} are lost with node {nodes[0]}: global indexes "
                    f"{name_some(rows)}. A checkpoint would lack them; clear them first",
                    rows=tuple(rows),
                    partition_id=stub.partition,
                    node=str(nodes[0]),
                )

    def write(self, names: Ints) -> tuple[list[PartFacts], dict[str, FileFacts], dict[int, int]]:
        """Writes what `look` saw, and the payload under `names`. Returns what the manifest says of it.

        Raises:
            DataLostError: some of that payload is not here. OSError: of the file system.
        """
        snapshot, homes = self._seen()
        spent = homes.spent()
        spent[self._ordinal] = max(spent.get(self._ordinal, 0), snapshot.session.next_row)
        facts, files = self._written(snapshot, homes, HOMES, homes.partitions)
        parts = [facts]
        if len(names):
            # What was put since is there, too, and nothing has gone: the node frees no payload while this goes on.
            later = self._store.save()
            try:
                kept = Piece.of(later.session).of_names(names)
                missing = len(names) - kept.all_rows()
                if missing:
                    raise DataLostError(
                        f"{missing} rows of payload are not on node {self._ordinal} any more", node=str(self._ordinal)
                    )
                facts, written = self._written(later, kept, PAYLOAD, [])
            finally:
                later.release()
            parts.append(facts)
            files.update(written)
        os.fsync(self._folder)
        return parts, files, spent

    def stop(self) -> None:
        """Has a `write` that goes on elsewhere end with an error soon."""
        self._stopped.set()

    def end(self) -> None:
        """Lets go of the rows. Idempotent."""
        snapshot, self._snapshot = self._snapshot, None
        folder, self._folder = self._folder, -1
        if snapshot is not None:
            snapshot.release()
        if folder >= 0:
            os.close(folder)

    def _seen(self) -> tuple[_native.SessionSnapshot, Piece]:
        if self._snapshot is None or self._homes is None:
            raise ValueError("a save that has not looked")
        return self._snapshot, self._homes

    def _written(
        self, snapshot: _native.SessionSnapshot, piece: Piece, kind: str, partitions: Collection[str]
    ) -> tuple[PartFacts, dict[str, FileFacts]]:
        chosen = _parts_of(snapshot, piece)
        facts = PartFacts(kind, self._ordinal, list(partitions), piece.all_rows(), int(chosen[:, 4].sum()))
        session = piece.session(snapshot.session.next_row)
        return facts, write_files(snapshot, self._path, facts.prefix, session, chosen, self._watched)

    def _watched(self, batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            if self._stopped.is_set():
                raise TransferTimeoutError("the save was given up meanwhile")
            yield batch


def _opened(directory: Path, mark: str) -> int:
    until_s = time.monotonic() + _SEEN_WITHIN_S
    while True:
        try:
            folder = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                refuse_foreign(os.fstat(folder), directory)
                if _read_mark(folder) == mark:
                    return folder
            except BaseException:
                os.close(folder)
                raise
            os.close(folder)
        except FileNotFoundError:
            pass
        if time.monotonic() > until_s:
            raise FileNotFoundError(
                errno.ENOENT,
                "this node does not see the directory that another node made; a checkpoint of several nodes needs a "
                "file system that all of them share",
                str(directory),
            )
        time.sleep(_LOOK_S)


def _read_mark(folder: int) -> str:
    fd = os.open(MARK, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    try:
        return os.read(fd, 4096).decode("ascii", "replace")
    finally:
        os.close(fd)


def _of_homes(snapshot: _native.SessionSnapshot) -> Piece:
    piece = Piece.of(snapshot.session)
    return piece.of_partitions([name for name in piece.partitions if not is_hidden(name)])


def _parts_of(snapshot: _native.SessionSnapshot, piece: Piece) -> Ints:
    """Those of the snapshot that are of blocks of the piece, for `payload_batches`."""
    numbers = np.full(len(snapshot.session.blocks), -1, np.int64)
    numbers[piece.origin[:, 1]] = np.arange(len(piece.origin))
    parts = snapshot.parts
    wanted = parts[numbers[parts[:, 0]] >= 0]
    chosen = np.concatenate([numbers[wanted[:, :1]], wanted], axis=1)
    return np.ascontiguousarray(chosen[np.argsort(chosen[:, 0], kind="stable")])


def _reader(snapshot: _native.SessionSnapshot, piece: Piece) -> Any:
    """Bytes of the piece's blocks, from where they lie."""
    parts = _parts_of(snapshot, piece)

    def read(block: int, offset: int, nbytes: int) -> npt.NDArray[np.uint8]:
        low, high = np.searchsorted(parts[:, 0], (block, block + 1))
        for _, there, begin, source, length in parts[low:high].tolist():
            if begin <= offset and offset + nbytes <= begin + length:
                address = snapshot.address(there, source + offset - begin, nbytes)
                return np.frombuffer(ctypes.string_at(address, nbytes), np.uint8)
        raise ValueError(f"bytes {offset} to {offset + nbytes} of a block that has none there")

    return read
