"""All that a partition of stubs is, as changes that make it anew elsewhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from transferqueue.client.core import as_indexes
from transferqueue.codec.stub_schema import payload_schema
from transferqueue.errors import CorruptSegmentError
from transferqueue.node_service.effects import MARKS, ROWS, Effect, effect_of_rows
from transferqueue.nodes.names import Names, ranges_of
from transferqueue.nodes.naming import read_names, stub_place

if TYPE_CHECKING:
    from transferqueue._native import Resolved, Store

_ROWS_AT_ONCE = 8192


def image_of(store: Store, partition: str) -> Iterator[Effect]:
    """Rows with keys, tags and names, then what tasks have consumed. Nothing may change the partition meanwhile."""
    found, indexes, _, _ = store.production(partition, [])
    if not found:
        return
    for start in range(0, len(indexes), _ROWS_AT_ONCE):
        some = as_indexes(indexes[start : start + _ROWS_AT_ONCE])
        listing = store.describe_rows(partition, some)
        keyed = np.array([key is not None for key in listing.keys], dtype=np.bool_)
        for mask in (keyed, ~keyed):
            at = np.flatnonzero(mask)
            if len(at):
                keys = [listing.keys[row] or "" for row in at.tolist()] if mask is keyed else None
                yield Effect(ROWS, as_indexes(some[at]), keys, [listing.tags[row] for row in at.tolist()])
        resolved = store.resolve(partition, indexes=some, fields=None)
        try:
            yield from _stubs_of(resolved, some, store.held_by(resolved))
        finally:
            resolved.release()
    snapshot = store.save()
    snapshot.release()  # only its tables are read
    saved = snapshot.session
    for number, task, state, ranges in saved.tasks:
        if saved.partitions[number] == partition:
            yield Effect(MARKS, ranges_of(ranges[:, 0], ranges[:, 1]), task=task, state=state)


class _Together:
    """Fields of the same rows with the same names: they were put together."""

    def __init__(self, indexes: Names, names: Names) -> None:
        self.indexes = indexes
        self.names = names
        self.schemas: dict[str, bytes] = {}
        self._cells: Counter[int] = Counter()  # by block

    def add(self, field: str, schema: bytes, pieces: Names) -> None:
        self.schemas[field] = payload_schema(schema)
        for _, count, block, _ in pieces.tolist():
            self._cells[block] += count

    def nbytes(self, held: Names) -> int:
        """Their share of what the partition holds by their blocks, see `Store.held_by`."""
        return sum(int(held[block, 0]) * cells // int(held[block, 1]) for block, cells in self._cells.items())


def _stubs_of(resolved: Resolved, rows: Names, held_by: Names) -> Iterator[Effect]:
    found: dict[tuple[bytes, bytes], _Together] = {}
    for number, name in enumerate(resolved.fields):
        pieces = resolved.pieces(number)
        schemas: dict[int, bytes] = {}
        for block in dict.fromkeys(pieces[:, 2].tolist()):
            layout = resolved.layout(number, block)
            if layout is None or stub_place(resolved, number, block) < 0:
                raise CorruptSegmentError(f"field {name!r} has payload where only names may be: on one node alone")
            schemas[block] = layout.schema
        for schema in dict.fromkeys(schemas.values()):
            held = pieces[[schemas[block] == schema for block in pieces[:, 2].tolist()]]
            names, at = read_names(resolved, number, held), ranges_of(held[:, 0], held[:, 1])
            key = at.tobytes(), names.tobytes()
            if key not in found:
                found[key] = _Together(as_indexes(rows[at]), names)
            found[key].add(name, schema, held)
    for each in found.values():
        yield effect_of_rows(each.indexes, None, [], each.names, each.nbytes(held_by), each.schemas)
