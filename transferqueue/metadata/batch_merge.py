"""Joining batches: fields side by side (union), rows one after the other (concat), and equality."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from transferqueue.errors import SchemaMismatchError, name_some
from transferqueue.metadata.batch_rows import common_session, concat_partitions
from transferqueue.metadata.batch_state import is_plain, ready_rows
from transferqueue.metadata.copying import copy_info, copy_row_dicts
from transferqueue.metadata.extra_info import OnConflict, Reduction, merge_extra_info, values_equal
from transferqueue.metadata.field_schema import FieldSchema
from transferqueue.metadata.padding import concat_masks
from transferqueue.metadata.row_shapes import RowShapes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from transferqueue.metadata.batch_meta import BatchMeta
    from transferqueue.metadata.batch_state import RowDict

    Batch = TypeVar("Batch", bound=BatchMeta)

_SHOWN_ROWS = 16


def union(left: Batch, right: BatchMeta) -> Batch:
    """See `BatchMeta.union`."""
    session = common_session([left.session, right.session], "BatchMeta.union")
    if right.size == 0 or left.size == 0:
        new = left.copy() if right.size == 0 else type(left).concat([right])
        new.session = session
        return new
    if not np.array_equal(left._indexes, right._indexes):
        raise ValueError(
            "BatchMeta.union: global_indexes do not match: "
            f"[{name_some(left.global_indexes, _SHOWN_ROWS)}] and [{name_some(right.global_indexes, _SHOWN_ROWS)}]. "
            "union joins fields of the same rows; use concat to append rows"
        )
    if left.partition_ids != right.partition_ids:
        raise ValueError(
            "BatchMeta.union: partition_ids do not match: "
            f"[{name_some(left.partition_names)}] and [{name_some(right.partition_names)}] for the same rows"
        )
    new = left.copy()
    new.session = session
    new._schemas.update(right._schemas)
    for name in right._schemas:
        new._row_shapes.pop(name, None)
    new._row_shapes.update(right._row_shapes)
    if left._status is None and right._status is None:
        new._status_fill = left._status_fill & right._status_fill
    else:
        new._status = left.production_status & right.production_status
    if left._pads is not None or right._pads is not None:
        new._pads = left.padding_mask | right.padding_mask
        new._pads.flags.writeable = False
    new._extra_info.update(copy_info(right._extra_info))
    new._custom_meta = _union_row_dicts(new._custom_meta, right._custom_meta)
    new._backend_meta = _union_row_dicts(new._backend_meta, right._backend_meta)
    return new


def concat(
    cls: type[Batch],
    pieces: Sequence[BatchMeta],
    *,
    reduce: Mapping[str, Reduction] | None,
    validate: bool,
    on_conflict: OnConflict,
) -> Batch:
    """See `BatchMeta.concat`."""
    listed = list(pieces)
    if listed and _differ_in_rows_only(listed):
        # What a group collects from its ranks, mostly; its process was just woken, so that every line runs cold.
        indexes = np.concatenate([piece._indexes for piece in listed])
        indexes.flags.writeable = False
        first = listed[0]
        plain = ready_rows(cls, indexes, first._partition_names[0], dict(first._schemas), first.session)
        plain._status_fill = first._status_fill
        return plain
    session = common_session([piece.session for piece in listed], "BatchMeta.concat")
    filled = [piece for piece in listed if piece.size]
    # Of pieces that are all empty the schema and extra_info are kept, so that split and join of no rows loses nothing.
    used = filled or [piece for piece in listed if piece._schemas][:1] or listed[:1]
    if validate:
        _check_fields(used)
    sizes = [piece.size for piece in used]
    new = cls.empty()
    new.session = session
    if not used:
        return new
    new._indexes = np.concatenate([piece._indexes for piece in used])
    new._indexes.flags.writeable = False
    new._partition_names, new._partition_codes = concat_partitions(
        [(piece._partition_names, piece._partition_codes, piece.size) for piece in used]
    )
    new._schemas = _merged_schemas(used)
    new._row_shapes = _merged_row_shapes(new._schemas, used)
    new._status_fill, new._status = _concat_status(used)
    new._pads = concat_masks([piece._pads for piece in used], sizes)
    new._extra_info = merge_extra_info(
        [piece._extra_info for piece in filled or listed],
        reduce=reduce,
        on_conflict=on_conflict,
        owner="BatchMeta.concat",
    )
    new._custom_meta = _concat_row_dicts([piece._custom_meta for piece in used], sizes)
    new._backend_meta = _concat_row_dicts([piece._backend_meta for piece in used], sizes)
    return new


def _differ_in_rows_only(pieces: Sequence[BatchMeta]) -> bool:
    """Whether the pieces are rows of one partition, all with the same fields in the same state, and nothing else."""
    first = pieces[0]
    return all(
        len(piece._indexes) > 0
        and is_plain(piece)
        and piece._status_fill == first._status_fill
        and piece.session == first.session
        and piece._partition_names == first._partition_names
        and piece._schemas == first._schemas
        for piece in pieces
    )


def equal(left: BatchMeta, right: BatchMeta) -> bool:
    """Same rows, fields, states, user values, pads and session."""
    both_known = left._row_shapes.keys() & right._row_shapes.keys()
    return (
        left.session == right.session
        and np.array_equal(left._indexes, right._indexes)
        and left.partition_ids == right.partition_ids
        and left._schemas == right._schemas
        and all(left._row_shapes[name] == right._row_shapes[name] for name in both_known)
        and _status_equal(left, right)
        and np.array_equal(left.padding_mask, right.padding_mask)
        and values_equal(left._extra_info, right._extra_info)
        and _row_dicts_equal(left._custom_meta, right._custom_meta)
        and _row_dicts_equal(left._backend_meta, right._backend_meta)
    )


def _check_fields(pieces: Sequence[BatchMeta]) -> None:
    if not pieces:
        return
    first = pieces[0]._schemas
    for number, piece in enumerate(pieces[1:], start=1):
        if piece._schemas == first:
            continue
        if piece._schemas.keys() != first.keys():
            raise SchemaMismatchError(
                f"BatchMeta.concat: the field_names of the pieces do not match: {sorted(first)} in the first, "
                f"{sorted(piece._schemas)} in number {number}. Select the common fields first",
                expected=sorted(first),
                found=sorted(piece._schemas),
            )
        for name, schema in first.items():
            other = piece._schemas[name]
            if schema.dtype != other.dtype:
                raise SchemaMismatchError(
                    f"BatchMeta.concat: dtype mismatch in field {name!r}: {schema.dtype} in the first piece, "
                    f"{other.dtype} in number {number}",
                    fields=(name,),
                    expected=schema.dtype,
                    found=other.dtype,
                )


def _merged_schemas(pieces: Sequence[BatchMeta]) -> dict[str, FieldSchema]:
    merged = dict(pieces[0]._schemas)
    for piece in pieces[1:]:
        if piece._schemas == merged:
            continue
        for name, schema in merged.items():
            other = piece._schemas.get(name)
            if other is not None:
                merged[name] = schema.merged(other)
    return merged


def _merged_row_shapes(schemas: Mapping[str, FieldSchema], pieces: Sequence[BatchMeta]) -> dict[str, RowShapes]:
    """Row shapes where every piece has them, dense pieces included; for other fields they are in the index."""
    merged: dict[str, RowShapes] = {}
    for name, schema in schemas.items():
        nested_now = schema.is_nested and not all(_is_nested(piece, name) for piece in pieces)
        if not nested_now and not any(name in piece._row_shapes for piece in pieces):
            continue
        shapes = [_row_shapes(piece, name) for piece in pieces]
        known = [shape for shape in shapes if shape is not None]
        if len(known) == len(shapes):
            merged[name] = RowShapes.concat(known)
    return merged


def _is_nested(piece: BatchMeta, name: str) -> bool:
    return name in piece._schemas and piece._schemas[name].is_nested


def _row_shapes(piece: BatchMeta, name: str) -> RowShapes | None:
    known = piece._row_shapes.get(name)
    schema = piece._schemas.get(name)
    if known is None and schema is not None and not schema.is_nested:
        return RowShapes.uniform(schema.shape, piece.size)
    return known


def _concat_status(pieces: Sequence[BatchMeta]) -> tuple[int, NDArray[np.int8] | None]:
    fills = {piece._status_fill for piece in pieces}
    if len(fills) == 1 and all(piece._status is None for piece in pieces):
        return fills.pop(), None
    parts = [
        np.full(piece.size, piece._status_fill, dtype=np.int8) if piece._status is None else piece._status
        for piece in pieces
    ]
    return 1, np.concatenate(parts)


def _status_equal(left: BatchMeta, right: BatchMeta) -> bool:
    if left._status is None and right._status is None:
        return left._status_fill == right._status_fill or left.size == 0
    a = left._status_fill if left._status is None else left._status
    b = right._status_fill if right._status is None else right._status
    return bool(np.all(a == b))


def _concat_row_dicts(parts: Sequence[list[RowDict] | None], sizes: Sequence[int]) -> list[RowDict] | None:
    if all(part is None for part in parts):
        return None
    rows: list[RowDict] = []
    for part, size in zip(parts, sizes, strict=True):
        rows.extend(({} for _ in range(size)) if part is None else copy_row_dicts(part))
    return rows


def _union_row_dicts(own: list[RowDict] | None, other: list[RowDict] | None) -> list[RowDict] | None:
    if own is None or other is None:
        return own if other is None else copy_row_dicts(other)
    for row, new in zip(own, copy_row_dicts(other), strict=True):
        row.update(new)
    return own


def _row_dicts_equal(left: list[RowDict] | None, right: list[RowDict] | None) -> bool:
    if left is None or right is None:
        return not any(left or right or ())
    return values_equal(left, right)
