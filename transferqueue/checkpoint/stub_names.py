"""The names in blocks of stubs: which payload rows of a saved home mean, and under which names it is from now on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from transferqueue.checkpoint.piece import Ints, Piece
from transferqueue.codec.stub_schema import is_stub
from transferqueue.nodes.names import ranges_of

# (block of the piece, offset in it, nbytes) -> its bytes, uint8.
ReadBytes = Callable[[int, int, int], npt.NDArray[np.uint8]]


@dataclass(frozen=True)
class StubField:
    """One field of one block that holds names.

    Attributes:
        block: its number.
        field: number of the field in the block.
        data_offset, rows: where the names lie, int64 [rows].
        partition: whose.
        living: int64, positions of rows that the index names.
        indexes: int64, their row indexes.
    """

    block: int
    field: int
    data_offset: int
    rows: int
    partition: str
    living: Ints
    indexes: Ints

    def names(self, read: ReadBytes) -> Ints:
        """int64 [rows], those of dead rows included."""
        return read(self.block, self.data_offset, 8 * self.rows).view(np.int64)


def are_stubs(piece: Piece) -> npt.NDArray[np.bool_]:
    """bool [fields]: whose payload is elsewhere."""
    return np.fromiter(map(is_stub, piece.schemas), np.bool_, len(piece.schemas))


def stub_fields(piece: Piece) -> Iterator[StubField]:
    """All of a piece."""
    stub = are_stubs(piece)
    if not stub.any():
        return
    first = piece.first_fields
    run_of_cell = np.repeat(np.arange(len(piece.runs)), piece.runs[:, 3])
    cell = np.repeat(np.arange(len(piece.cells)), piece.cells[:, 2])
    field = first[piece.cells[cell, 0]] + piece.cell_fields
    pairs = np.flatnonzero(stub[field])
    order = pairs[np.argsort(field[pairs], kind="stable")]
    for group in np.split(order, np.flatnonzero(np.diff(field[order])) + 1):
        cells = cell[group]
        runs = piece.runs[run_of_cell[cells]]
        number = int(piece.cells[cells[0], 0])
        at = int(field[group[0]])
        partition, rows, *_ = piece.blocks[number].tolist()
        yield StubField(
            number,
            at - int(first[number]),
            int(piece.fields[at, 1]),
            rows,
            piece.partitions[partition],
            ranges_of(piece.cells[cells, 1], runs[:, 2]),
            ranges_of(runs[:, 1], runs[:, 2]),
        )


def named_by(piece: Piece, read: ReadBytes) -> Ints:
    """int64, ascending: the names of payload that its rows have."""
    found: list[Ints] = []
    last: tuple[int, bytes] | None = None
    for stub in stub_fields(piece):
        names = stub.names(read)[stub.living]
        # Fields that were put together have the same names.
        seen = stub.block, names.tobytes()
        if seen != last:
            found.append(np.unique(names))
        last = seen
    return np.unique(np.concatenate(found)) if found else np.zeros(0, np.int64)


@dataclass(frozen=True)
class Renaming:
    """Names of payload before and after a load.

    Attributes:
        old: int64 [n, 2], first and count of stretches, ascending.
        new: int64 [n], the new name of the first of each.
    """

    old: Ints
    new: Ints

    def of(self, names: Ints) -> Ints:
        """The new names; -1 where there is none."""
        if not len(self.old):
            return np.full(len(names), -1, np.int64)
        at = np.maximum(np.searchsorted(self.old[:, 0], names, side="right") - 1, 0)
        skipped = names - self.old[at, 0]
        found: Ints = np.where((skipped >= 0) & (skipped < self.old[at, 1]), self.new[at] + skipped, -1)
        return found


def renaming_of(old: Ints, new: Ints) -> Renaming:
    """Names to names, one by one in order: stretches of either kind, int64 [n, 2] of first and count, of as many rows
    in all.

    Raises:
        ValueError: of more or fewer.
    """
    if int(old[:, 1].sum()) != int(new[:, 1].sum()):
        raise ValueError("another number of names than of new ones")
    old, new = old[old[:, 1] > 0], new[new[:, 1] > 0]
    cuts: Ints = np.union1d(np.cumsum(old[:, 1]), np.cumsum(new[:, 1]))
    starts = np.concatenate((np.zeros(1, np.int64), cuts[:-1])) if len(cuts) else cuts
    counts = np.diff(np.concatenate((starts, cuts[-1:]))) if len(cuts) else cuts
    firsts = _at(old, starts)
    order = np.argsort(firsts, kind="stable")
    stretches: Ints = np.stack([firsts, counts], axis=1)
    return Renaming(stretches[order], _at(new, starts)[order])


def _at(stretches: Ints, positions: Ints) -> Ints:
    """The numbers that stand at these positions of all stretches one after another."""
    starts = np.cumsum(stretches[:, 1]) - stretches[:, 1]
    which = np.searchsorted(starts, positions, side="right") - 1
    numbers: Ints = stretches[which, 0] + positions - starts[which]
    return numbers
