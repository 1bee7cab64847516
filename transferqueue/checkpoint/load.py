"""Loading: everything is verified, then brought into fresh blocks, then one commit puts it in the place of what was
there."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from transferqueue import _native
from transferqueue.checkpoint.directories import resolved
from transferqueue.checkpoint.dissolving import dissolved
from transferqueue.checkpoint.files import CheckpointFiles, as_corruption
from transferqueue.checkpoint.incoming import Incoming, Plan, StubBlocks, plan_of_piece, read_piece, read_session
from transferqueue.checkpoint.joining import joined
from transferqueue.checkpoint.libraries import check_libraries
from transferqueue.checkpoint.manifest import HOMES, PartFacts


@dataclass(frozen=True)
class Loaded:
    """What a load tells its caller: sessions whose metadata means the loaded rows, and the saver's own metadata."""

    sessions: tuple[str, ...]
    user_metadata: Any


def load(
    store: _native.Store,
    directory: str | os.PathLike[str],
    noting: Callable[[tuple[str, ...]], AbstractContextManager[None]],
    *,
    allow_pickle: bool = False,
) -> Loaded:
    """Replaces all rows of the store's session by those of a checkpoint, of one machine or of several nodes.

    Until the last step, which is one commit, nothing that a reader of the session sees changes; views held stay.

    Args:
        noting: is around the last step, with `Loaded.sessions`.
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
        parts = files.manifest.parts
        plan = _whole(files) if parts is None else _of_nodes(files, parts)
        loaded = loaded_of(files)
        Incoming(store, files, plan, allow_pickle=allow_pickle).switch(noting(loaded.sessions))
        return loaded


def loaded_of(files: CheckpointFiles) -> Loaded:
    """What a load of it tells."""
    manifest = files.manifest
    return Loaded((manifest.session, *manifest.earlier_sessions), manifest.user_metadata)


def _whole(files: CheckpointFiles) -> Plan:
    session = read_session(files)
    targets = [[block] for block in range(len(session.blocks))]
    return Plan(session, [""], [targets], [files.manifest.payload_nbytes])


def _of_nodes(files: CheckpointFiles, parts: list[PartFacts]) -> Plan:
    """All rows of all nodes as rows of one machine."""
    prefixes = [part.prefix for part in parts]
    pieces = [read_piece(files, prefix, number) for number, prefix in enumerate(prefixes)]
    with as_corruption(files.path(""), "its parts contradict each other"):
        homes = joined([piece for piece, part in zip(pieces, parts, strict=True) if part.kind == HOMES])
        payload = joined([piece for piece, part in zip(pieces, parts, strict=True) if part.kind != HOMES])
        piece = dissolved(homes, payload, StubBlocks(files, homes, prefixes).read)
    return plan_of_piece(piece, max(files.manifest.next_row, piece.spent().get(0, 0)), prefixes, files)
