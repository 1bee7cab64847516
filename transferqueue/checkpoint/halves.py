"""A session's rows without their fields, in one file: what programs that save metadata and storage apart ask for.

The file is a zip, not compressed, of the files of a checkpoint but the payload, with a manifest of its own. Loaded, its
rows, keys, tags and consumption replace those of the session; a row that the session has too, in a partition of the
same name and under the same index, keeps its fields. So the two halves can be loaded in either order.
"""

from __future__ import annotations

import contextlib
import io
import os
import struct
import tempfile
import zipfile
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from transferqueue import _native
from transferqueue.checkpoint.directories import make_parents
from transferqueue.checkpoint.files import as_corruption, checked_table
from transferqueue.checkpoint.libraries import check_libraries, new_checksum, pyarrow
from transferqueue.checkpoint.manifest import MANIFEST, TABLES, FileFacts, Manifest, describe, parse_manifest
from transferqueue.checkpoint.pickles import refuse_pickled_tables
from transferqueue.checkpoint.reserving import reserved
from transferqueue.checkpoint.session_check import check_names, check_states, check_tags
from transferqueue.checkpoint.tables import Ints, from_tables, to_tables
from transferqueue.errors import CorruptCheckpointError
from transferqueue.refusals import typed_refusals
from transferqueue.storage.private_files import FILE_MODE

_FILES = tuple(f"{name}.arrow" for name in TABLES)
_ZIP_ERRORS = (zipfile.BadZipFile, RuntimeError, EOFError, struct.error)
_NO_STRINGS = (np.zeros(0, np.uint8), np.zeros(0, np.int64))


@typed_refusals("could not save the rows")
def save_rows(store: _native.Store, path: str | os.PathLike[str], *, session: str) -> None:
    """Writes rows, keys, tags, consumption and the states of samplers to the file `path`, in one step.

    Raises:
        ImportError: pyarrow or xxhash is missing. OSError: of the file system; an older file stays.
    """
    check_libraries()
    snapshot = store.save()
    snapshot.release()
    saved = _bare(snapshot.session)
    contents = {f"{name}.arrow": _encoded(table) for name, table in to_tables(saved).items()}
    facts = {name: _facts(content) for name, content in contents.items()}
    manifest = describe(
        session=session,
        storage_saved=False,
        next_row=saved.next_row,
        rows=int(saved.runs[:, 2].sum()),
        payload_nbytes=0,
        files=facts,
    )
    target = Path(os.path.abspath(path))
    make_parents(target)
    # A name of its own: whatever else is beside it, links too, is somebody's.
    handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent)
    try:
        with open(handle, "wb") as file:
            os.fchmod(handle, FILE_MODE)  # the umask may have taken bits of our own
            with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
                archive.writestr(MANIFEST, manifest.encode())
                for name, content in contents.items():
                    archive.writestr(name, content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def load_rows(store: _native.Store, path: str | os.PathLike[str], *, allow_pickle: bool = False) -> None:
    """Replaces the rows of the session by those in `path`; rows that are in both keep their fields.

    Args:
        allow_pickle: as in `load`.

    Raises:
        FileNotFoundError, CorruptCheckpointError, LayoutMismatchError, PickleNotAllowedError: as in `load`.
        StorageFullError: no room for a second copy of the fields that stay.
        ImportError: pyarrow or xxhash is missing.
    """
    check_libraries()
    shown = os.fspath(path)
    with open(path, "rb") as file:
        with as_corruption(shown, "it holds no rows of a session", *_ZIP_ERRORS):
            # In memory: a place outside of the file that the archive names is then no error of the file system.
            half = _read(io.BytesIO(file.read()), shown)
    if not allow_pickle:
        refuse_pickled_tables(half, shown)
    snapshot = store.save()
    try:
        session, parts = _with_fields_of(half, snapshot)
        with reserved(store, session) as reservations:
            for block, source_block, offset, source, nbytes in parts:
                reservations[block].copy_in([(offset, snapshot.address(source_block, source, nbytes), nbytes)])
            with as_corruption(shown, "its tables contradict each other"):
                store.load(session, reservations)
    finally:
        snapshot.release()


def _bare(session: _native.SavedSession) -> _native.SavedSession:
    bare = _native.SavedSession()
    bare.next_row = session.next_row
    bare.set_partitions(session.partitions, session.known_fields)
    runs = session.runs
    runs[:, 3] = 0
    bare.set_runs(runs, np.zeros((0, 3), np.int64), np.zeros(0, np.int64))
    bare.set_rows(session.rows, session.keys, session.tags)
    for task in session.tasks:
        bare.add_task(*task)
    return bare


def _encoded(table: Any) -> bytes:
    sink = io.BytesIO()
    with pyarrow().ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def _facts(content: bytes) -> FileFacts:
    checksum = new_checksum()
    checksum.update(content)
    return FileFacts(len(content), checksum.hexdigest())


def _read(file: Any, path: str) -> _native.SavedSession:
    with zipfile.ZipFile(file) as archive:
        if any(member.compress_type != zipfile.ZIP_STORED for member in archive.infolist()):
            raise ValueError("a compressed member")
        manifest: Manifest = parse_manifest(archive.read(MANIFEST), path, _FILES)
        tables = {}
        for name in TABLES:
            content = archive.read(f"{name}.arrow")
            if _facts(content) != manifest.files[f"{name}.arrow"]:
                raise CorruptCheckpointError(
                    f"{name}.arrow in {path} is damaged: it is not what was written", path=path
                )
            tables[name] = checked_table(pyarrow().ipc.open_file(io.BytesIO(content)))
        session = from_tables(tables, manifest.next_row)
        check_names(session)
        check_tags(session)
        check_states(session)
        return session


def _with_fields_of(
    half: _native.SavedSession, snapshot: _native.SessionSnapshot
) -> tuple[_native.SavedSession, list[tuple[int, int, int, int, int]]]:
    """`half` with the cells that rows of both have in `snapshot`; and the bytes of the blocks that these need:
    (block, block of the snapshot, offset, offset there, nbytes)."""
    live = snapshot.session
    number_of = {name: number for number, name in enumerate(half.partitions)}
    fields_end = np.cumsum(live.cells[:, 2]) if len(live.cells) else np.zeros(0, np.int64)
    runs, cells, cell_fields = [], [], []
    live_cells, live_fields = live.cells.tolist(), live.cell_fields.tolist()
    block_number: dict[int, int] = {}
    for partition, first, count, source in _overlaps(half, live, number_of):
        if source is None:
            runs.append((partition, first, count, 0))
            continue
        source_first, cell_at, n_cells = source
        runs.append((partition, first, count, n_cells))
        for at in range(cell_at, cell_at + n_cells):
            block, block_row, n_fields = live_cells[at]
            number = block_number.setdefault(block, len(block_number))
            cells.append((number, block_row + first - source_first, n_fields))
            end = int(fields_end[at])
            cell_fields.extend(live_fields[end - n_fields : end])
    merged = _native.SavedSession()
    merged.next_row = half.next_row
    merged.set_partitions(half.partitions, half.known_fields)
    _take_blocks(merged, live, list(block_number), number_of)
    merged.set_runs(_table(runs, 4), _table(cells, 3), np.asarray(cell_fields, np.int64))
    merged.set_rows(half.rows, half.keys, half.tags)
    for task in half.tasks:
        merged.add_task(*task)
    parts = [
        (block_number[block], block, offset, source, nbytes)
        for block, offset, source, nbytes in snapshot.parts.tolist()
        if block in block_number
    ]
    return merged, parts


def _overlaps(
    half: _native.SavedSession, live: _native.SavedSession, number_of: dict[str, int]
) -> Iterator[tuple[int, int, int, tuple[int, int, int] | None]]:
    """The rows of `half` in stretches that lie in one run of `live`: partition, first, count, and of that run the first
    row, where its cells begin and how many there are; None for rows that `live` lacks."""
    in_live: dict[int, deque[tuple[int, int, int, int]]] = {}
    cell_at = 0
    for partition, first, count, n_cells in live.runs.tolist():
        number = number_of.get(live.partitions[partition])
        if number is not None:
            in_live.setdefault(number, deque()).append((first, count, cell_at, n_cells))
        cell_at += n_cells
    for partition, first, count, _ in half.runs.tolist():
        row, end = first, first + count
        runs = in_live.get(partition, deque())
        while row < end:
            while runs and runs[0][0] + runs[0][1] <= row:
                runs.popleft()
            if not runs or runs[0][0] >= end:
                yield partition, row, end - row, None
                break
            run_first, run_count, at, n_cells = runs[0]
            if run_first > row:
                yield partition, row, run_first - row, None
                row = run_first
            stop = min(end, run_first + run_count)
            yield partition, row, stop - row, (run_first, at, n_cells)
            row = stop


def _take_blocks(
    merged: _native.SavedSession, live: _native.SavedSession, blocks: list[int], number_of: dict[str, int]
) -> None:
    table, (fields, names, schemas) = live.blocks, live.fields
    starts = np.cumsum(table[:, 3]) - table[:, 3] if len(table) else np.zeros(0, np.int64)
    chosen = [int(starts[block]) + at for block in blocks for at in range(int(table[block, 3]))]
    taken = table[blocks] if blocks else np.zeros((0, 5), np.int64)
    for row in taken:
        row[0] = number_of[live.partitions[int(row[0])]]
    merged.set_blocks(
        np.ascontiguousarray(taken),
        np.ascontiguousarray(fields[chosen]) if chosen else np.zeros((0, 5), np.int64),
        _chosen(names, chosen),
        _chosen(schemas, chosen),
    )


def _chosen(strings: tuple[np.ndarray[Any, np.dtype[np.uint8]], Ints], chosen: list[int]) -> Any:
    raw, ends = strings
    if not chosen:
        return _NO_STRINGS
    blob, bounds = raw.tobytes(), [0, *ends.tolist()]
    pieces = [blob[bounds[at] : bounds[at + 1]] for at in chosen]
    return np.frombuffer(b"".join(pieces), np.uint8), np.cumsum([len(piece) for piece in pieces], dtype=np.int64)


def _table(rows: Sequence[tuple[int, ...]], columns: int) -> Ints:
    return np.asarray(rows, np.int64).reshape(-1, columns)
