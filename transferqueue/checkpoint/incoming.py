"""Rows of a checkpoint on their way into one store: read and verified, then in blocks that nobody sees yet."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from transferqueue import _native
from transferqueue.checkpoint.files import CheckpointFiles, as_corruption
from transferqueue.checkpoint.manifest import HOMES, PAYLOAD, TABLES
from transferqueue.checkpoint.payload import copy_fragments, fragments
from transferqueue.checkpoint.pickles import refuse_pickled_rows, refuse_pickled_tables
from transferqueue.checkpoint.piece import Ints, Piece
from transferqueue.checkpoint.reserving import give_back, reserved
from transferqueue.checkpoint.session_check import check_fields, check_names, check_states, check_tags
from transferqueue.checkpoint.stub_names import ReadBytes, Renaming, are_stubs, stub_fields
from transferqueue.checkpoint.tables import from_tables
from transferqueue.codec.stub_schema import is_stub
from transferqueue.nodes.names import PAYLOAD as PAYLOAD_PARTITION

Targets = Sequence[Sequence[int]]
_PAGE_NBYTES = 4096


@dataclass(frozen=True)
class Plan:
    """What is brought into a store, and from where.

    Attributes:
        session: the tables.
        prefixes: of the files of each part that its blocks are of.
        targets: of each part, of each block in its file: positions in the session's blocks; none: it is not wanted.
        payload_nbytes: of each part, what its file holds.
    """

    session: _native.SavedSession
    prefixes: Sequence[str]
    targets: Sequence[Targets]
    payload_nbytes: Sequence[int]


def plan_of_piece(piece: Piece, next_row: int, prefixes: Sequence[str], files: CheckpointFiles) -> Plan:
    """That of a piece whose blocks are of parts with these prefixes."""
    facts = {part.prefix: part for part in files.manifest.parts or ()}
    targets = []
    for number, prefix in enumerate(prefixes):
        mine = np.flatnonzero(piece.origin[:, 0] == number)
        blocks = files.reader(f"{prefix}blocks.arrow").read_all().num_rows
        of_block: list[list[int]] = [[] for _ in range(blocks)]
        for target in mine.tolist():
            of_block[int(piece.origin[target, 1])].append(target)
        targets.append(of_block)
    nbytes = [facts[prefix].payload_nbytes if prefix in facts else files.manifest.payload_nbytes for prefix in prefixes]
    return Plan(piece.session(next_row), prefixes, targets, nbytes)


class Incoming:
    """Blocks of a store that hold what a plan names, until `switch` or `drop`.

    Args:
        renamed: see `renamed_stubs`.
        check: whether the index looks at the tables now; else it does at the `switch`.

    Raises:
        CorruptCheckpointError: payload is missing, or lies outside of its block. PickleNotAllowedError: see `load`.
        StorageFullError: no room beside what the session holds.
    """

    def __init__(
        self,
        store: _native.Store,
        files: CheckpointFiles,
        plan: Plan,
        *,
        allow_pickle: bool,
        renamed: Sequence[tuple[int, int, Ints]] = (),
        check: bool = False,
    ) -> None:
        self._store = store
        self._plan = plan
        self._shown = files.path("")
        if not allow_pickle:
            refuse_pickled_tables(plan.session, self._shown)
        with reserved(store, plan.session) as reservations:
            _copy(files, plan, reservations)
            for block, offset, names in renamed:
                reservations[block].copy_in([(offset, names.ctypes.data, names.nbytes)])
            if not allow_pickle:
                refuse_pickled_rows(plan.session, reservations, self._shown)
            if check:
                with as_corruption(self._shown, "its tables contradict each other"):
                    store.load(plan.session, reservations, check_only=True)
        self._reservations = reservations

    def names_only(self) -> bool:
        """Whether no partition but that of payload holds any."""
        session = self._plan.session
        raw, ends = session.fields[2]
        starts = np.concatenate(([0], ends[:-1])) if len(ends) else ends
        of_field = np.repeat(session.blocks[:, 0], session.blocks[:, 3]).tolist()
        return all(
            session.partitions[partition] == PAYLOAD_PARTITION or is_stub(raw[start:end].tobytes())
            for partition, start, end in zip(of_field, starts.tolist(), ends.tolist(), strict=True)
        )

    def switch(self, noting: AbstractContextManager[None]) -> None:
        """One commit puts it in the place of all that the store's session holds.

        Args:
            noting: entered before, left behind the commit.

        Raises:
            CorruptCheckpointError: its tables contradict each other. Nothing was changed. What `noting` raises.
        """
        try:
            with noting, as_corruption(self._shown, "its tables contradict each other"):
                self._store.load(self._plan.session, self._reservations)
        except BaseException:
            self.drop()
            raise

    def drop(self) -> None:
        """Gives the room back, unless it was switched to. Idempotent."""
        give_back(self._reservations)
        self._reservations = []


def read_session(
    files: CheckpointFiles, prefix: str = "", next_row: int | None = None, *, stubs: bool = False
) -> _native.SavedSession:
    """The tables of one part, checked.

    Args:
        next_row: None: what the manifest says.
        stubs: whether payload of it may be in other parts.

    Raises:
        CorruptCheckpointError: names the file that is not as it should be.
    """
    tables = {}
    for name in TABLES:
        with as_corruption(files.path(f"{prefix}{name}.arrow"), "it is no table of a checkpoint"):
            tables[name] = files.table(f"{prefix}{name}.arrow")
    with as_corruption(files.path(prefix), "its tables are not those of a session"):
        session = from_tables(tables, files.manifest.next_row if next_row is None else next_row)
    with as_corruption(files.path(f"{prefix}fields.arrow"), "it says what cannot be"):
        check_fields(session, stubs=stubs)
    checks = {"partitions": check_names, "rows": check_tags, "tasks": check_states}
    for name, check in checks.items():
        with as_corruption(files.path(f"{prefix}{name}.arrow"), "it says what cannot be"):
            check(session)
    return session


def read_piece(files: CheckpointFiles, prefix: str, number: int) -> Piece:
    """The tables of one part, whose blocks are those of file `number`.

    Raises:
        CorruptCheckpointError: as `read_session`; or numbers in them that name nothing.
    """
    session = read_session(files, prefix, 0, stubs=prefix.endswith(f"{HOMES}-"))
    with as_corruption(files.path(prefix), "its tables contradict each other"):
        piece = Piece.of(session, number)
        _check_numbers(piece)
    return piece


def _check_numbers(piece: Piece) -> None:
    """Whether they name something: the store checks what they mean, when they are put together."""
    sizes = (
        (piece.blocks[:, 3], piece.fields),
        (piece.runs[:, 3], piece.cells),
        (piece.cells[:, 2], piece.cell_fields),
    )
    for counts, table in sizes:
        if (counts < 0).any() or int(counts.sum()) != len(table):
            raise ValueError("other numbers of entries than its tables have")
    for numbers, count in (
        (piece.blocks[:, 0], len(piece.partitions)),
        (piece.runs[:, 0], len(piece.partitions)),
        (piece.rows[:, 0], len(piece.partitions)),
        (np.array([task[0] for task in piece.tasks], np.int64), len(piece.partitions)),
        (piece.cells[:, 0], len(piece.blocks)),
    ):
        if len(numbers) and not 0 <= int(numbers.min()) <= int(numbers.max()) < count:
            raise ValueError("a number of nothing")
    if len(piece.cell_fields):
        in_block = np.repeat(piece.blocks[piece.cells[:, 0], 3], piece.cells[:, 2])
        if (piece.cell_fields < 0).any() or (piece.cell_fields >= in_block).any():
            raise ValueError("a cell of a field that its block lacks")
    run = np.repeat(np.arange(len(piece.runs)), piece.runs[:, 3])
    ends = piece.cells[:, 1] + piece.runs[run, 2]
    if (piece.cells[:, 1] < 0).any() or (ends > piece.blocks[piece.cells[:, 0], 1]).any():
        raise ValueError("a cell beyond the rows of its block")
    named = np.zeros(len(piece.blocks), np.float64)
    np.add.at(named, piece.cells[:, 0], piece.cells[:, 2] * piece.runs[run, 2].astype(np.float64))
    if (named > piece.blocks[:, 1].astype(np.float64) * piece.blocks[:, 3]).any():
        raise ValueError("more rows name a block than it has")
    partition, first, count = piece.runs[:, :3].T
    behind = first[:-1] + count[:-1] > first[1:]
    if (count <= 0).any() or (first < 0).any() or ((np.diff(partition) < 0) | (np.diff(partition) == 0) & behind).any():
        raise ValueError("runs out of order")


class StubBlocks:
    """The bytes of the blocks of a piece that hold names.

    Raises:
        CorruptCheckpointError: some are missing.
    """

    def __init__(self, files: CheckpointFiles, piece: Piece, prefixes: Sequence[str]) -> None:
        self._bytes: dict[int, npt.NDArray[np.uint8]] = {}
        wanted: dict[int, dict[int, int]] = {}
        for block in np.unique(piece.block_of_field[are_stubs(piece)]).tolist():
            file, number = piece.origin[block].tolist()
            wanted.setdefault(file, {})[number] = block
        for file, numbers in wanted.items():
            name = f"{prefixes[file]}{PAYLOAD}.arrow"
            with as_corruption(files.path(name), "it holds no bytes of blocks"):
                self._read(files, name, piece, numbers)

    def read(self, block: int, offset: int, nbytes: int) -> npt.NDArray[np.uint8]:
        """Some of them. ValueError: not in the block."""
        found = self._bytes[block]
        if not 0 <= offset <= offset + nbytes <= len(found):
            raise ValueError("names outside of their block")
        return found[offset : offset + nbytes]

    def _read(self, files: CheckpointFiles, name: str, piece: Piece, numbers: Mapping[int, int]) -> None:
        most = files.manifest.files[name].nbytes
        for block in numbers.values():
            nbytes, fields = int(piece.blocks[block, 2]), int(piece.blocks[block, 3])
            if not 0 <= nbytes <= most + _PAGE_NBYTES * (fields + 1):
                raise ValueError("a block that is larger than its file")
            self._bytes[block] = np.zeros(nbytes, np.uint8)
        reader = files.reader(name)
        for number in range(reader.num_record_batches):
            batch = reader.get_batch(number)
            for at, offset, address, nbytes in fragments(batch, 1 << 62):
                block = numbers.get(at, -1)
                if block >= 0 and nbytes:
                    if offset + nbytes > len(self._bytes[block]):
                        raise ValueError("a fragment outside of its block")
                    ctypes.memmove(self._bytes[block].ctypes.data + offset, address, nbytes)


def renamed_stubs(piece: Piece, read: ReadBytes, renaming: Renaming) -> list[tuple[int, int, Ints]]:
    """(block, offset in it, names int64) of all its stubs, under the new names.

    Raises:
        ValueError: a living row names payload that has none.
    """
    found = []
    for stub in stub_fields(piece):
        names = renaming.of(stub.names(read))
        if (names[stub.living] < 0).any():
            raise ValueError(f"rows of partition {stub.partition!r} whose payload is not in it")
        found.append((stub.block, stub.data_offset, np.ascontiguousarray(names)))
    return found


def _copy(files: CheckpointFiles, plan: Plan, reservations: list[_native.Reservation]) -> None:
    copied = np.zeros(len(reservations), np.int64)
    for prefix, targets, nbytes in zip(plan.prefixes, plan.targets, plan.payload_nbytes, strict=True):
        name = f"{prefix}{PAYLOAD}.arrow"
        with as_corruption(files.path(name), "it holds no bytes of blocks"):
            reader = files.reader(name)
            total = 0
            for number in range(reader.num_record_batches):
                total += copy_fragments(reader.get_batch(number), targets, reservations, copied)
            if total != nbytes:
                raise ValueError("bytes of some blocks are missing")
    with as_corruption(files.path(""), "it holds no bytes of blocks"):
        if not _is_whole(plan.session, copied):
            raise ValueError("bytes of some blocks are missing")


def _is_whole(session: _native.SavedSession, copied: np.ndarray[Any, np.dtype[np.int64]]) -> bool:
    """Whether every block got at least the bytes of its fields (offsets of ragged ones apart)."""
    blocks, fields = session.blocks, session.fields[0]
    of_block = np.repeat(np.arange(len(blocks)), blocks[:, 3])
    wanted = np.zeros(len(blocks), np.int64)
    np.add.at(wanted, of_block, fields[:, 2])
    return bool((copied >= wanted).all())
