"""Saved tables that can be cut up: a part of a session, of one node's, or of several. `joining` puts them together."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from transferqueue import _native
from transferqueue.nodes.names import PAYLOAD, ordinals_of, ranges_of, runs_of

Ints = npt.NDArray[np.int64]
Strings = tuple[npt.NDArray[np.uint8], Ints]
Task = tuple[int, str, bytes, Ints]


@dataclass(frozen=True)
class Piece:
    """A `_native.SavedSession` as plain values. Its tables are those of that class.

    Attributes:
        names, schemas: of `fields`.
        keys, tags: of `rows`.
        origin: int64 [blocks, 2]: of which file of payload each block is, and its number there.
    """

    partitions: list[str]
    known_fields: list[list[str]]
    blocks: Ints
    fields: Ints
    names: list[bytes]
    schemas: list[bytes]
    runs: Ints
    cells: Ints
    cell_fields: Ints
    rows: Ints
    keys: list[bytes]
    tags: list[bytes]
    tasks: list[Task]
    origin: Ints

    @classmethod
    def of(cls, session: _native.SavedSession, file: int = 0) -> Piece:
        """All of a saved session, whose blocks are those of file `file`."""
        fields, names, schemas = session.fields
        count = len(session.blocks)
        return cls(
            list(session.partitions),
            [list(known) for known in session.known_fields],
            session.blocks,
            fields,
            _split(names),
            _split(schemas),
            session.runs,
            session.cells,
            session.cell_fields,
            session.rows,
            _split(session.keys),
            _split(session.tags),
            list(session.tasks),
            np.stack([np.full(count, file, np.int64), np.arange(count, dtype=np.int64)], axis=1),
        )

    def session(self, next_row: int) -> _native.SavedSession:
        """Back again."""
        made = _native.SavedSession()
        made.next_row = next_row
        made.set_partitions(self.partitions, self.known_fields)
        made.set_blocks(_whole(self.blocks), _whole(self.fields), _joined(self.names), _joined(self.schemas))
        made.set_runs(_whole(self.runs), _whole(self.cells), _whole(self.cell_fields))
        made.set_rows(_whole(self.rows), _joined(self.keys), _joined(self.tags))
        for task in self.tasks:
            made.add_task(*task)
        return made

    @property
    def first_fields(self) -> Ints:
        """int64 [blocks]: where the fields of each block begin."""
        return _starts(self.blocks[:, 3])

    @property
    def block_of_field(self) -> Ints:
        """int64 [fields]: which block each is of."""
        return np.repeat(np.arange(len(self.blocks)), self.blocks[:, 3])

    def spent(self) -> dict[int, int]:
        """Ordinal of a node -> behind the last row index of its range that is in here, living or consumed."""
        found: dict[int, int] = {}
        for ranges in (self.runs[:, 1:3], *(task[3] for task in self.tasks)):
            ordinals = ordinals_of(ranges[:, 0])
            for ordinal in np.unique(ordinals).tolist():
                mine = ranges[ordinals == ordinal]
                found[ordinal] = max(found.get(ordinal, 0), int((mine[:, 0] + mine[:, 1]).max()))
        return found

    def cut(self, stretches: Ints) -> Piece:
        """Its rows in other runs.

        Args:
            stretches: int64 [runs, 4]: a run of this, how many rows of it are skipped, how many follow, and the index
                of the first of these from now on. In the order of the new runs.

        Returns:
            a piece without blocks that no row names. Keys and tags stay with rows whose index stays.
        """
        run, offset, count, first = stretches.T
        n_cells = self.runs[run, 3]
        picked = ranges_of(_starts(self.runs[:, 3])[run], n_cells)
        cells = self.cells[picked]
        cells[:, 1] += np.repeat(offset, n_cells)
        in_cell = ranges_of(_starts(self.cells[:, 2])[picked], cells[:, 2])
        runs = np.stack([self.runs[run, 0], first, count, n_cells], axis=1)
        named = replace(self, runs=runs, cells=cells, cell_fields=self.cell_fields[in_cell])
        return named.without_unnamed_blocks().with_keys_of_rows()

    def without_unnamed_blocks(self) -> Piece:
        """The blocks that rows name, in their order."""
        used, numbers = np.unique(self.cells[:, 0], return_inverse=True)
        chosen = ranges_of(self.first_fields[used], self.blocks[used, 3])
        cells = self.cells.copy()
        cells[:, 0] = numbers.reshape(-1)
        return replace(
            self,
            blocks=self.blocks[used],
            fields=self.fields[chosen],
            names=[self.names[at] for at in chosen.tolist()],
            schemas=[self.schemas[at] for at in chosen.tolist()],
            cells=cells,
            origin=self.origin[used],
        )

    def with_keys_of_rows(self) -> Piece:
        """Without the keys and tags of rows that are in no run."""
        keep = np.zeros(len(self.rows), np.bool_)
        for partition in range(len(self.partitions)):
            runs = self.runs[self.runs[:, 0] == partition]
            mine = np.flatnonzero(self.rows[:, 0] == partition)
            if len(runs) and len(mine):
                rows = self.rows[mine, 1]
                at = np.searchsorted(runs[:, 1], rows, side="right") - 1
                keep[mine] = (at >= 0) & (rows < runs[at, 1] + runs[at, 2])
        if keep.all():
            return self
        chosen = np.flatnonzero(keep).tolist()
        return replace(
            self,
            rows=self.rows[keep],
            keys=[self.keys[at] for at in chosen],
            tags=[self.tags[at] for at in chosen],
        )

    def of_partitions(self, chosen: Collection[str]) -> Piece:
        """Only these partitions, in the order in which they are here."""
        old = [number for number, name in enumerate(self.partitions) if name in chosen]
        numbers = np.full(len(self.partitions), -1, np.int64)
        numbers[old] = np.arange(len(old))
        some = self.of_runs(np.flatnonzero(np.isin(self.runs[:, 0], old)))
        keep = np.flatnonzero(np.isin(some.rows[:, 0], old)).tolist()
        return replace(
            some,
            partitions=[self.partitions[number] for number in old],
            known_fields=[self.known_fields[number] for number in old],
            rows=some.rows[keep],
            keys=[some.keys[at] for at in keep],
            tags=[some.tags[at] for at in keep],
            tasks=[task for task in self.tasks if numbers[task[0]] >= 0],
        ).renumbered(numbers)

    def of_runs(self, runs: Ints) -> Piece:
        """Only these runs, whole and in this order; as `cut`."""
        chosen = self.runs[runs]
        return self.cut(np.stack([runs, np.zeros(len(runs), np.int64), chosen[:, 2], chosen[:, 1]], axis=1))

    def renumbered(self, numbers: Ints) -> Piece:
        """What is of partition n is of partition ``numbers[n]``."""
        return replace(
            self,
            blocks=_renumbered(self.blocks, numbers),
            runs=_renumbered(self.runs, numbers),
            rows=_renumbered(self.rows, numbers),
            tasks=[(int(numbers[task[0]]), *task[1:]) for task in self.tasks],
        )

    def of_names(self, names: Ints) -> Piece:
        """The payload under these names that is here, without keys and tags."""
        own = self.of_partitions((PAYLOAD,))
        bare = replace(own, rows=np.zeros((0, 2), np.int64), keys=[], tags=[], tasks=[])
        return bare.cut(_overlaps(own.runs, runs_of(names)))

    def renamed(self, old: Ints, new: Ints) -> Piece:
        """Rows under other indexes; without keys and tags.

        Args:
            old, new: int64 [n, 2] and int64 [n]: first and count of stretches that cover all rows, ascending, and the
                new index of the first of each.
        """
        bare = replace(self, rows=np.zeros((0, 2), np.int64), keys=[], tags=[])
        pairs = [(int(first), int(first + count)) for first, count in old.tolist()]
        stretches = _overlaps(self.runs, pairs)
        at = np.searchsorted(old[:, 0], stretches[:, 3], side="right") - 1
        stretches[:, 3] += new[at] - old[at, 0]
        return bare.cut(stretches[np.argsort(stretches[:, 3], kind="stable")])

    def all_rows(self) -> int:
        """How many."""
        return int(self.runs[:, 2].sum())


def _starts(counts: Ints) -> Ints:
    return np.cumsum(counts) - counts


def _overlaps(runs: Ints, ranges: Sequence[tuple[int, int]]) -> Ints:
    """Stretches of `runs` (of one partition) that lie in `ranges` (first, behind the last), ascending."""
    ends = runs[:, 1] + runs[:, 2]
    found = []
    for first, end in ranges:
        for run in range(
            int(np.searchsorted(ends, first, side="right")), int(np.searchsorted(runs[:, 1], end, side="left"))
        ):
            low, high = max(first, int(runs[run, 1])), min(end, int(ends[run]))
            found.append((run, low - int(runs[run, 1]), high - low, low))
    return np.array(found, np.int64).reshape(-1, 4)


def _renumbered(table: Ints, numbers: Ints) -> Ints:
    changed = table.copy()
    changed[:, 0] = numbers[table[:, 0]]
    return changed


def _whole(table: Ints) -> Ints:
    return np.ascontiguousarray(table, dtype=np.int64)


def _split(strings: Strings) -> list[bytes]:
    raw, ends = strings
    blob = raw.tobytes()
    return [blob[start:end] for start, end in pairwise([0, *ends.tolist()])]


def _joined(strings: Sequence[bytes]) -> Strings:
    ends = np.cumsum([len(text) for text in strings], dtype=np.int64)
    return np.frombuffer(b"".join(strings), np.uint8), ends
