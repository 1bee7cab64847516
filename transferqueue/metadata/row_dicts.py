"""One small dict per row (custom_meta, tags) in a form that repeats nothing.

Rows of a batch mostly have the same keys, and many values are the same on all of them, so the keys are written once
and so is every constant value; what differs is written by column.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Any

import msgspec

from transferqueue.errors import CorruptSegmentError
from transferqueue.metadata.copying import copy_value

RowDict = dict[str, Any]

_MAX_DEPTH = 16
_SCALARS: frozenset[type] = frozenset({str, int, float, bool, bytes, type(None)})
# A value that is written once and stands in every row costs the reader a place per row, which no byte of the message
# pays for: so many places at most (of lists and dicts, which are copied: bytes of them); more is written by column.
MOST_REPEATED = 1 << 18
_EQUAL_MEANS_SAME: frozenset[type] = frozenset({str, int, bool, bytes, type(None)})  # not so 0.0 and -0.0


class RowDictsOnWire(msgspec.Struct, array_like=True, omit_defaults=True):
    """Either `rows` as they are, or `keys` in order, each with one value in `same` or one column in `columns`."""

    keys: list[str] = []
    same: dict[str, Any] = {}
    columns: list[list[Any]] = []
    rows: list[RowDict] | None = None


def is_plain(value: Any, depth: int = 0) -> bool:
    """Whether msgpack gives `value` back with the same types (a tuple would return as a list, for instance).

    Values out of msgpack's range (ints beyond 64 bits, lone surrogates) pass here and are refused by the encoder.
    """
    kind = type(value)
    if kind in _SCALARS:
        return True
    if depth >= _MAX_DEPTH:
        return False
    if kind is dict:
        return all(type(key) is str and is_plain(item, depth + 1) for key, item in value.items())
    return kind is list and all(is_plain(item, depth + 1) for item in value)


def pack_row_dicts(rows: Sequence[RowDict] | None) -> tuple[RowDictsOnWire | None, list[RowDict] | None]:
    """(`rows` in the short form or `None` when all are empty, `None`); or (`None`, `rows`) when one is not plain."""
    if not rows or not any(rows):
        return None, None
    keys = list(rows[0])
    if not all(list(row) == keys for row in rows):
        if all(is_plain(row) for row in rows):
            return RowDictsOnWire(rows=list(rows)), None
        return None, list(rows)
    same: RowDict = {}
    columns: list[list[Any]] = []
    left = MOST_REPEATED
    for key in keys:
        column = [row[key] for row in rows]
        kinds = set(map(type, column))
        if type(key) is not str or not (kinds <= _SCALARS or all(map(is_plain, column))):
            return None, list(rows)
        if _is_constant(column, kinds) and (weight := _weight(column[0]) * len(rows)) <= left:
            same[key] = column[0]
            left -= weight
        else:
            columns.append(column)
    return RowDictsOnWire(keys=keys, same=same, columns=columns), None


def unpack_row_dicts(packed: RowDictsOnWire | None, size: int) -> list[RowDict] | None:
    """One dict per row that shares nothing with another row's, or `None` when all are empty."""
    if packed is None:
        return None
    if packed.rows is not None:
        if len(packed.rows) != size:
            raise CorruptSegmentError(f"metadata: {len(packed.rows)} dicts do not fit {size} rows")
        return packed.rows
    if sum(_weight(packed.same[key]) for key in packed.keys if key in packed.same) * size > MOST_REPEATED:
        raise CorruptSegmentError(f"metadata: values that {size} rows share, larger than any that are written so")
    columns = iter(packed.columns)
    values: list[Iterable[Any]] = []
    for key in packed.keys:
        if key in packed.same:
            constant = packed.same[key]
            shareable = type(constant) in _SCALARS
            values.append(repeat(constant, size) if shareable else [copy_value(constant) for _ in range(size)])
        else:
            column = next(columns, None)
            if column is None or len(column) != size:
                raise CorruptSegmentError(f"metadata: values of {key!r} do not fit {size} rows")
            values.append(column)
    if not values or next(columns, None) is not None:
        raise CorruptSegmentError("metadata: per-row values without a name")
    return [dict(zip(packed.keys, row, strict=True)) for row in zip(*values, strict=True)]


def _weight(constant: Any) -> int:
    """What one more row with this value costs who reads it."""
    return 1 if type(constant) in _SCALARS else 1 + len(_bytes_or_none(constant) or b"")


def _is_constant(column: list[Any], kinds: set[type]) -> bool:
    if len(kinds) == 1 and kinds <= _EQUAL_MEANS_SAME:
        return column.count(column[0]) == len(column)
    # By bytes, because 1 == True == 1.0 and NaN differs from itself; stops at the first that differs.
    first = _bytes_or_none(column[0])
    return first is not None and all(_bytes_or_none(value) == first for value in column)


def _bytes_or_none(value: Any) -> bytes | None:
    try:
        return msgspec.msgpack.encode(value)
    except (UnicodeEncodeError, OverflowError):
        return None
