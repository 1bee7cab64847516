"""Stubs replaced by the payload that they name: how rows of several nodes become rows of one machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from transferqueue.checkpoint.piece import Ints, Piece
from transferqueue.checkpoint.stub_names import ReadBytes, are_stubs, stub_fields

# A cell to be: block of the result, its row, positions of fields in it.
_Cell = tuple[int, int, list[int]]


def dissolved(homes: Piece, payload: Piece, read: ReadBytes) -> Piece:
    """The rows of `homes`, whose cells name blocks of payload where they named stubs.

    Args:
        homes: partitions of all homes.
        payload: all that any of them names.
        read: bytes of the blocks of `homes`.

    Raises:
        ValueError: a row names payload that is not there, or that lacks its field.
    """
    return _Dissolving(homes, payload, read).result()


class _Dissolving:
    def __init__(self, homes: Piece, payload: Piece, read: ReadBytes) -> None:
        self._homes = homes
        self._payload = payload
        # (block, field in it) -> the names of its rows.
        self._names: dict[tuple[int, int], Ints] = {
            (stub.block, stub.field): stub.names(read) for stub in stub_fields(homes)
        }
        self._home_first = homes.first_fields
        self._payload_first = payload.first_fields
        self._payload_cells = _by_run(payload)
        # (partition, block of payload, which of several instances) -> its number. A block that rows of several
        # partitions name is there once for each.
        self._instances: dict[tuple[int, int, int], int] = {}

    def result(self) -> Piece:
        homes, payload = self._homes, self._payload
        runs: list[tuple[int, int, int, int]] = []
        cells: list[tuple[int, int, int]] = []
        cell_fields: list[int] = []
        for (partition, first, count, _), of_run in zip(homes.runs.tolist(), _by_run(homes), strict=True):
            for offset, length, found in self._segments(partition, count, of_run):
                runs.append((partition, first + offset, length, len(found)))
                for block, row, fields in found:
                    cells.append((block, row, len(fields)))
                    cell_fields.extend(fields)
        instances = list(self._instances)
        taken = np.array([block for _, block, _ in instances], np.int64)
        blocks = payload.blocks[taken]
        blocks[:, 0] = [partition for partition, _, _ in instances]
        first = self._payload_first
        chosen = [int(first[block]) + at for block in taken.tolist() for at in range(int(payload.blocks[block, 3]))]
        made = replace(
            homes,
            blocks=np.concatenate([homes.blocks, blocks]),
            fields=np.concatenate([homes.fields, payload.fields[chosen]]),
            names=homes.names + [payload.names[at] for at in chosen],
            schemas=homes.schemas + [payload.schemas[at] for at in chosen],
            runs=np.array(runs, np.int64).reshape(-1, 4),
            cells=np.array(cells, np.int64).reshape(-1, 3),
            cell_fields=np.array(cell_fields, np.int64),
            origin=np.concatenate([homes.origin, payload.origin[taken]]),
        )
        return _without_stub_fields(made.without_unnamed_blocks())

    def _segments(self, partition: int, count: int, of_run: Sequence[_Cell]) -> Iterator[tuple[int, int, list[_Cell]]]:
        """A run of a home in stretches of which each field lies in one row after another of one block: rows skipped,
        rows, cells."""
        own: list[_Cell] = []
        stubs: list[tuple[Ints, list[bytes]]] = []
        for block, row, fields in of_run:
            kept = [at for at in fields if (block, at) not in self._names]
            if kept:
                own.append((block, row, kept))
            for at in fields:
                if (block, at) in self._names:
                    names = self._names[block, at][row : row + count]
                    field = self._homes.names[int(self._home_first[block]) + at]
                    same = next((together for known, together in stubs if np.array_equal(known, names)), None)
                    if same is None:
                        stubs.append((names, [field]))
                    else:
                        same.append(field)
        found = [self._found(names) for names, _ in stubs]
        cuts = {0, count}
        for (names, _), (runs, _) in zip(stubs, found, strict=True):
            cuts.update((np.flatnonzero((np.diff(names) != 1) | (np.diff(runs) != 0)) + 1).tolist())
        ordered = sorted(cuts)
        for start, end in pairwise(ordered):
            cells = [(block, row + start, fields) for block, row, fields in own]
            there: dict[int, tuple[int, list[int]]] = {}
            for (_, together), (runs, offsets) in zip(stubs, found, strict=True):
                self._add(there, partition, int(runs[start]), int(offsets[start]), together)
            cells.extend((block, row, positions) for block, (row, positions) in there.items())
            yield start, end - start, cells

    def _found(self, names: Ints) -> tuple[Ints, Ints]:
        """Of each name the run of payload, and which row of it."""
        runs = self._payload.runs
        at = np.searchsorted(runs[:, 1], names, side="right") - 1
        if len(names) and (at.min() < 0 or (names >= runs[at, 1] + runs[at, 2]).any()):
            raise ValueError("rows that name payload which is not there")
        return at, names - runs[at, 1]

    def _add(
        self,
        there: dict[int, tuple[int, list[int]]],
        partition: int,
        run: int,
        offset: int,
        fields: Sequence[bytes],
    ) -> None:
        missing = set(fields)
        for block, block_row, positions in self._payload_cells[run]:
            first = int(self._payload_first[block])
            chosen = [at for at in positions if self._payload.names[first + at] in missing]
            if not chosen:
                continue
            missing -= {self._payload.names[first + at] for at in chosen}
            # Two rows of one block on one row, which no cell can say: it is there twice.
            which, row = 0, block_row + offset
            number = self._instance(partition, block, which)
            while there.get(number, (row, []))[0] != row:
                which += 1
                number = self._instance(partition, block, which)
            there.setdefault(number, (row, []))[1].extend(chosen)
        if missing:
            raise ValueError(f"rows that name payload without field {min(missing)!r}")

    def _instance(self, partition: int, block: int, which: int) -> int:
        key = partition, block, which
        return self._instances.setdefault(key, len(self._homes.blocks) + len(self._instances))


def _by_run(piece: Piece) -> list[list[_Cell]]:
    """The cells of each run."""
    ends = np.cumsum(piece.cells[:, 2]).tolist()
    fields = piece.cell_fields.tolist()
    cells = [
        (block, row, fields[end - count : end])
        for (block, row, count), end in zip(piece.cells.tolist(), ends, strict=True)
    ]
    starts = (np.cumsum(piece.runs[:, 3]) - piece.runs[:, 3]).tolist()
    return [cells[start : start + count] for start, count in zip(starts, piece.runs[:, 3].tolist(), strict=True)]


def _without_stub_fields(piece: Piece) -> Piece:
    """Blocks may hold payload beside stubs: these go, since nothing names them any more."""
    kept = ~are_stubs(piece)
    if kept.all():
        return piece
    keep = np.flatnonzero(kept)
    position = np.cumsum(kept) - 1  # among those kept
    first = piece.first_fields
    blocks = piece.blocks.copy()
    blocks[:, 4] = -1
    blocks[:, 3] = np.bincount(piece.block_of_field[keep], minlength=len(blocks))
    new_first = np.cumsum(blocks[:, 3]) - blocks[:, 3]
    cell_block = np.repeat(piece.cells[:, 0], piece.cells[:, 2])
    at = first[cell_block] + piece.cell_fields
    return replace(
        piece,
        blocks=blocks,
        fields=piece.fields[keep],
        names=[piece.names[number] for number in keep.tolist()],
        schemas=[piece.schemas[number] for number in keep.tolist()],
        cell_fields=position[at] - new_first[cell_block],
    )
