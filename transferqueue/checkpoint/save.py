"""Saving: one snapshot, leased; then its tables and its bytes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from transferqueue import _native
from transferqueue.checkpoint import payload
from transferqueue.checkpoint.directories import resolved, written_beside
from transferqueue.checkpoint.libraries import check_libraries, pyarrow
from transferqueue.checkpoint.manifest import MANIFEST, PAYLOAD, FileFacts, Manifest, check_user_metadata, describe
from transferqueue.checkpoint.sinks import HashingFile
from transferqueue.checkpoint.tables import Ints, to_tables
from transferqueue.refusals import typed_refusals


@typed_refusals("could not save the checkpoint")
def save(
    store: _native.Store,
    directory: str | os.PathLike[str],
    *,
    session: str,
    earlier_sessions: Sequence[str] = (),
    user_metadata: Any = None,
) -> None:
    """Writes all rows of the store's session to `directory`, which appears, or is replaced, as a whole.

    Raises:
        TypeError, ValueError: `user_metadata` is not JSON. ImportError: pyarrow or xxhash is missing.
        FileExistsError, BlockingIOError, OSError: see `written_beside`. Nothing is left behind.
    """
    check_user_metadata(user_metadata)
    check_libraries()
    with written_beside(resolved(directory)) as temporary:
        snapshot = store.save()
        try:
            files = write_files(snapshot, temporary)
            manifest = describe(
                session=session,
                earlier_sessions=earlier_sessions,
                storage_saved=True,
                next_row=snapshot.session.next_row,
                rows=int(snapshot.session.runs[:, 2].sum()),
                payload_nbytes=int(snapshot.parts[:, 3].sum()),
                user_metadata=user_metadata,
                files=files,
            )
            write_manifest(temporary, manifest)
        finally:
            snapshot.release()


def write_files(
    snapshot: _native.SessionSnapshot,
    directory: Path,
    prefix: str = "",
    session: _native.SavedSession | None = None,
    parts: Ints | None = None,
    watched: Callable[[Iterator[Any]], Iterator[Any]] = iter,
) -> dict[str, FileFacts]:
    """Tables and payload; what the manifest says of each file.

    Args:
        session, parts: some of the snapshot's, see `payload_batches`.
        watched: given the batches of payload, and yields them.
    """
    files = {}
    for name, table in to_tables(snapshot.session if session is None else session).items():
        file = f"{prefix}{name}.arrow"
        files[file] = _write(directory / file, table.schema, table.to_batches())
    file = f"{prefix}{PAYLOAD}.arrow"
    files[file] = _write(directory / file, payload.schema(), watched(payload.payload_batches(snapshot, parts)))
    return files


def _write(path: Path, schema: Any, batches: Iterable[Any]) -> FileFacts:
    arrow = pyarrow()
    with _closed_at_last(HashingFile(str(path))) as file:
        sink = arrow.PythonFile(file, mode="w")
        options = arrow.ipc.IpcWriteOptions(unify_dictionaries=True)
        with arrow.ipc.new_file(sink, schema, options=options) as writer:
            for batch in batches:
                writer.write_batch(batch)
        return file.finish()


@contextlib.contextmanager
def _closed_at_last(file: HashingFile) -> Iterator[HashingFile]:
    try:
        yield file
    finally:
        file.close()


def write_manifest(directory: Path, manifest: Manifest) -> None:
    with _closed_at_last(HashingFile(str(directory / MANIFEST))) as file:
        file.write(manifest.encode())
        file.finish()
