"""Loading: everything is verified, then brought into fresh blocks, then one commit puts it in the place of what was
there."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np

from transferqueue import _native
from transferqueue.checkpoint.directories import resolved
from transferqueue.checkpoint.files import CheckpointFiles, as_corruption
from transferqueue.checkpoint.libraries import check_libraries
from transferqueue.checkpoint.manifest import PAYLOAD, TABLES
from transferqueue.checkpoint.payload import copy_fragments
from transferqueue.checkpoint.pickles import refuse_pickled_rows, refuse_pickled_tables
from transferqueue.checkpoint.reserving import reserved
from transferqueue.checkpoint.session_check import check_fields, check_names, check_states, check_tags
from transferqueue.checkpoint.tables import from_tables


@dataclass(frozen=True)
class Loaded:
    """What a load tells its caller: sessions whose metadata means the loaded rows, and the saver's own metadata."""

    sessions: tuple[str, ...]
    user_metadata: Any


def load(store: _native.Store, directory: str | os.PathLike[str], *, allow_pickle: bool = False) -> Loaded:
    """Replaces all rows of the store's session by those of a checkpoint.

    Until the last step, which is one commit, nothing that a reader of the session sees changes; views held stay.

    Args:
        allow_pickle: whether values that only pickle keeps may be among what is loaded.

    Raises:
        FileNotFoundError, CorruptCheckpointError, LayoutMismatchError: see `CheckpointFiles`.
        PickleNotAllowedError: see `allow_pickle`.
        StorageFullError: no room for it beside what the session holds.
        ImportError: pyarrow or xxhash is missing.
    """
    check_libraries()
    with CheckpointFiles(resolved(directory)) as files:
        files.verify()
        session = _session(files)
        if not allow_pickle:
            refuse_pickled_tables(session, str(directory))
        with reserved(store, session) as reservations:
            _copy(files, session, reservations)
            if not allow_pickle:
                refuse_pickled_rows(session, reservations, str(directory))
            with as_corruption(str(directory), "its tables contradict each other"):
                store.load(session, reservations)
        manifest = files.manifest
        return Loaded((manifest.session, *manifest.earlier_sessions), manifest.user_metadata)


def _session(files: CheckpointFiles) -> _native.SavedSession:
    tables = {}
    for name in TABLES:
        with as_corruption(files.path(f"{name}.arrow"), "it is no table of a checkpoint"):
            tables[name] = files.table(f"{name}.arrow")
    with as_corruption(files.path(""), "its tables are not those of a session"):
        session = from_tables(tables, files.manifest.next_row)
    checks = {"partitions": check_names, "fields": check_fields, "rows": check_tags, "tasks": check_states}
    for name, check in checks.items():
        with as_corruption(files.path(f"{name}.arrow"), "it says what cannot be"):
            check(session)
    return session


def _copy(files: CheckpointFiles, session: _native.SavedSession, reservations: list[_native.Reservation]) -> None:
    name = f"{PAYLOAD}.arrow"
    copied = np.zeros(len(reservations), np.int64)
    with as_corruption(files.path(name), "it holds no bytes of blocks"):
        reader = files.reader(name)
        for number in range(reader.num_record_batches):
            copy_fragments(reader.get_batch(number), reservations, copied)
        if int(copied.sum()) != files.manifest.payload_nbytes or not _is_whole(session, copied):
            raise ValueError("bytes of some blocks are missing")


def _is_whole(session: _native.SavedSession, copied: np.ndarray[Any, np.dtype[np.int64]]) -> bool:
    """Whether every block got at least the bytes of its fields (offsets of ragged ones apart)."""
    blocks, fields = session.blocks, session.fields[0]
    of_block = np.repeat(np.arange(len(blocks)), blocks[:, 3])
    wanted = np.zeros(len(blocks), np.int64)
    np.add.at(wanted, of_block, fields[:, 2])
    return bool((copied >= wanted).all())
