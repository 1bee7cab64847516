"""From resolved rows to the names of their payload, at the partition's home."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from transferqueue._native import DENSE
from transferqueue.codec.stub_schema import is_stub, read_stub
from transferqueue.errors import CorruptSegmentError
from transferqueue.nodes.located import Group
from transferqueue.nodes.names import Mask, Names, ordinals_of, ranges_of

if TYPE_CHECKING:
    from transferqueue._native import Resolved

# (id of a block, its rows) -> the name of its first row.
BlockNames = Callable[[int, int], int]


def has_stubs(resolved: Resolved) -> bool:
    """Whether any payload of the resolved rows lies on another node."""
    return any(is_stub(schema) for number in range(len(resolved.fields)) for schema in resolved.schemas(number))


def groups_of(resolved: Resolved, fields: Sequence[str], block_names: BlockNames | None) -> list[Group]:
    """The names of `fields` of all resolved rows, which must be complete; reads stubs, hence while they are leased.

    Args:
        block_names: gives names to blocks that lie here as such. None: rows of such blocks get the name -1, for a
            reader that is here, too.
    """
    position = {name: number for number, name in enumerate(resolved.fields)}
    found: dict[tuple[int, tuple[int, ...], tuple[int, ...]], Group] = {}
    for name in fields:
        number = position[name]
        pieces = resolved.pieces(number)
        places, copies = _places(resolved, number, list(dict.fromkeys(pieces[:, 2].tolist())))
        key = (resolved.piece_list_id(number), tuple(places.values()), copies)
        group = found.get(key)
        if group is None:
            group = _group(resolved, number, pieces, places, block_names)
            group.copies = list(copies)
            # Moved together: names of several fields at several places, and equal where the fields were put together.
            group = next((other for other in found.values() if _same(other, group)), group)
            found[key] = group
        group.fields.append(name)
    return list({id(group): group for group in found.values()}.values())


def nodes_of(resolved: Resolved, ordinal: int) -> Names:
    """int64 [rows]: the node that has most of the resolved fields of each row, of several the lowest; -1: it has none.
    Reads stubs, hence while they are leased.

    Args:
        ordinal: of this node, which has what lies here as such.
    """
    rows = resolved.n_rows
    counts: dict[int, Names] = {}
    seen: dict[tuple[int, tuple[int, ...]], Names] = {}
    for number in range(len(resolved.fields)):
        pieces = resolved.pieces(number)
        places, _ = _places(resolved, number, list(dict.fromkeys(pieces[:, 2].tolist())))
        key = (resolved.piece_list_id(number), tuple(places.values()))
        found = seen.get(key)
        if found is None:
            found = seen[key] = _nodes(resolved, number, pieces, places, ordinal)
        for node in np.unique(found[found >= 0]).tolist():
            counts.setdefault(node, np.zeros(rows, dtype=np.int64))
            counts[node] += found == node
    if not counts:
        return np.full(rows, -1, dtype=np.int64)
    nodes = np.array(sorted(counts), dtype=np.int64)
    table = np.stack([counts[node] for node in nodes.tolist()])
    return np.where(table.any(axis=0), nodes[table.argmax(axis=0)], -1)


def _nodes(resolved: Resolved, number: int, pieces: Names, places: dict[int, int], ordinal: int) -> Names:
    """Of each row the node that has one field; -1: the row lacks it."""
    found = np.full(resolved.n_rows, -1, dtype=np.int64)
    for first, count, block, _ in pieces.tolist():
        if places[block] < 0:
            found[first : first + count] = ordinal
    stubs = [piece for piece in pieces if places[int(piece[2])] >= 0]
    if stubs:
        held = np.stack(stubs)
        found[ranges_of(held[:, 0], held[:, 1])] = ordinals_of(read_names(resolved, number, held))
    return found


def _same(left: Group, right: Group) -> bool:
    return (
        left.copies == right.copies
        and np.array_equal(left.names, right.names)
        and np.array_equal(left.home_blocks, right.home_blocks)
    )


def rows_there(resolved: Resolved, number: int) -> Mask:
    """bool [rows]: which have the field."""
    there = np.zeros(resolved.n_rows, dtype=np.bool_)
    pieces = resolved.pieces(number)
    there[ranges_of(pieces[:, 0], pieces[:, 1])] = True
    return there


def stub_place(resolved: Resolved, number: int, block: int) -> int:
    """Where in the block the names of the field's rows lie; -1: their payload lies there itself."""
    layout = resolved.layout(number, block)
    if layout is None:
        raise CorruptSegmentError(f"field {resolved.fields[number]!r} has rows in a block that lacks it")
    if not is_stub(layout.schema):
        return -1
    if layout.kind != DENSE or layout.row_nbytes != 8:
        raise CorruptSegmentError(f"stubs of field {layout.name!r} are no names")
    return int(layout.data_offset)


def _places(resolved: Resolved, number: int, blocks: list[int]) -> tuple[dict[int, int], tuple[int, ...]]:
    """(block -> `stub_place`, where copies of all payload are)."""
    places: dict[int, int] = {}
    copies: set[int] | None = None
    for block in blocks:
        places[block] = stub_place(resolved, number, block)
        if places[block] >= 0:
            layout = resolved.layout(number, block)
            assert layout is not None  # narrowing: `stub_place` raised
            there = set(read_stub(layout.schema)[0])
            copies = there if copies is None else copies & there
    return places, tuple(sorted(copies or ()))


def _group(
    resolved: Resolved,
    number: int,
    pieces: Names,
    places: dict[int, int],
    block_names: BlockNames | None,
) -> Group:
    rows = resolved.n_rows
    if all(place >= 0 for place in places.values()):
        read = read_names(resolved, number, pieces)
        if len(read) != rows:
            raise CorruptSegmentError(f"stubs of field {resolved.fields[number]!r} are no names")
        return Group([], read)
    names = np.full(rows, -1, dtype=np.int64)
    home_blocks = np.full(rows, -1, dtype=np.int64)
    stub_pieces = [piece for piece in pieces if places[int(piece[2])] >= 0]
    if stub_pieces:
        held = np.stack(stub_pieces)
        names[ranges_of(held[:, 0], held[:, 1])] = read_names(resolved, number, held)
    for first, count, block, row in pieces.tolist():
        if places[block] >= 0:
            continue
        home_blocks[first : first + count] = resolved.block_id(block)
        if block_names is not None:
            base = block_names(resolved.block_id(block), resolved.block_rows(block)) + row
            names[first : first + count] = np.arange(base, base + count, dtype=np.int64)
    return Group([], names, home_blocks=home_blocks)


def read_names(resolved: Resolved, number: int, pieces: Names) -> Names:
    """int64: the names in these pieces of a field, all of stubs, one after another. Reads them, hence while they are
    leased."""
    names = np.empty(int(pieces[:, 1].sum()), dtype=np.int64)
    pieces = np.ascontiguousarray(pieces)
    if len(names) and resolved.copy_rows(number, pieces, names.ctypes.data, names.nbytes) != names.nbytes:
        raise CorruptSegmentError(f"stubs of field {resolved.fields[number]!r} are no names")
    return names
