"""Parts of sessions put together: what a node loads, and what one machine does of several nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from transferqueue.checkpoint.piece import Ints, Piece
from transferqueue.nodes.names import PAYLOAD


def joined(pieces: Sequence[Piece]) -> Piece:
    """All of them in one.

    Raises:
        ValueError: a partition stands in two of them, other than that of payload.
    """
    numbers: dict[str, int] = {}
    known_fields: list[list[str]] = []
    parts: list[Piece] = []
    n_blocks = 0
    for piece in pieces:
        for name, known in zip(piece.partitions, piece.known_fields, strict=True):
            if name not in numbers:
                numbers[name] = len(numbers)
                known_fields.append(list(known))
            elif name != PAYLOAD:
                raise ValueError(f"partition {name!r} stands twice")
            else:
                here = known_fields[numbers[name]]
                here.extend(field for field in known if field not in here)
        cells = piece.cells.copy()
        cells[:, 0] += n_blocks
        n_blocks += len(piece.blocks)
        mine = np.array([numbers[name] for name in piece.partitions], np.int64)
        parts.append(replace(piece.renumbered(mine), cells=cells))
    whole = Piece(
        list(numbers),
        known_fields,
        _stacked([part.blocks for part in parts], 5),
        _stacked([part.fields for part in parts], 5),
        [name for part in parts for name in part.names],
        [schema for part in parts for schema in part.schemas],
        _stacked([part.runs for part in parts], 4),
        _stacked([part.cells for part in parts], 3),
        np.concatenate([np.zeros(0, np.int64), *[part.cell_fields for part in parts]]),
        _stacked([part.rows for part in parts], 2),
        [key for part in parts for key in part.keys],
        [tags for part in parts for tags in part.tags],
        [task for part in parts for task in part.tasks],
        _stacked([part.origin for part in parts], 2),
    )
    # Payload comes of several: its runs are not in order. Partitions of one piece are.
    order = np.lexsort((whole.runs[:, 1], whole.runs[:, 0]))
    named = np.lexsort((whole.rows[:, 1], whole.rows[:, 0])).tolist()
    sorted_rows = replace(
        whole,
        rows=whole.rows[named],
        keys=[whole.keys[at] for at in named],
        tags=[whole.tags[at] for at in named],
    )
    return sorted_rows.of_runs(order)


def _stacked(tables: Sequence[Ints], columns: int) -> Ints:
    return np.concatenate([np.zeros((0, columns), np.int64), *tables])
