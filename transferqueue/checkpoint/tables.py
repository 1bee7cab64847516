"""The tables of a session as Arrow tables, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from transferqueue import _native
from transferqueue.checkpoint.libraries import pyarrow

Ints = npt.NDArray[np.int64]
Strings = tuple[npt.NDArray[np.uint8], Ints]

_COLUMNS = {
    "blocks": ("partition", "rows", "nbytes", "fields", "elsewhere_nbytes"),
    "runs": ("partition", "first_row", "rows", "cells"),
    "cells": ("block", "block_row", "fields"),
    "rows": ("partition", "row"),
}
_FIELD_COLUMNS = ("kind", "data_offset", "data_nbytes", "row_nbytes", "offsets_offset")


def to_tables(session: _native.SavedSession) -> dict[str, Any]:
    """Name of the file without its ending -> Arrow table."""
    arrow = pyarrow()
    fields, names, schemas = session.fields
    cells = session.cells
    tasks = session.tasks
    marks = [consumed for *_, consumed in tasks]
    return {
        "partitions": arrow.table(
            {
                "name": arrow.array(session.partitions, arrow.string()),
                "known_fields": arrow.array(session.known_fields, arrow.list_(arrow.string())),
            }
        ),
        "blocks": arrow.table(_block_columns(session.blocks)),
        "fields": arrow.table(
            {
                "name": _strings(names, arrow.large_string()).dictionary_encode(),
                **dict(zip(_FIELD_COLUMNS, map(arrow.array, fields.T), strict=True)),
                "schema": _strings(schemas, arrow.large_binary()).dictionary_encode(),
            }
        ),
        "runs": arrow.table(_columns("runs", session.runs)),
        "cells": arrow.table(
            {
                "block": arrow.array(cells[:, 0]),
                "block_row": arrow.array(cells[:, 1]),
                "fields": arrow.LargeListArray.from_arrays(
                    arrow.array(_offsets(np.cumsum(cells[:, 2]))), arrow.array(session.cell_fields)
                ),
            }
        ),
        "rows": arrow.table(
            {
                **_columns("rows", session.rows),
                "key": _strings(session.keys, arrow.large_string()),
                "tags": _strings(session.tags, arrow.large_binary()),
            }
        ),
        "tasks": arrow.table(
            {
                "partition": arrow.array([task[0] for task in tasks], arrow.int64()),
                "name": arrow.array([task[1] for task in tasks], arrow.string()),
                "sampler_state": arrow.array([task[2] for task in tasks], arrow.large_binary()),
                "consumed_first": arrow.array([mark[:, 0] for mark in marks], arrow.large_list(arrow.int64())),
                "consumed_rows": arrow.array([mark[:, 1] for mark in marks], arrow.large_list(arrow.int64())),
            }
        ),
    }


def from_tables(tables: Mapping[str, Any], next_row: int) -> _native.SavedSession:
    """The session in `tables`.

    Raises:
        ValueError, TypeError, KeyError, pyarrow.ArrowException: the tables do not have the columns that they should.
    """
    session = _native.SavedSession()
    session.next_row = next_row
    partitions, fields, cells, tasks = (tables[name] for name in ("partitions", "fields", "cells", "tasks"))
    session.set_partitions(partitions["name"].to_pylist(), partitions["known_fields"].to_pylist())
    session.set_blocks(
        _block_table(tables["blocks"]),
        _stacked([_ints(fields[name]) for name in _FIELD_COLUMNS]),
        _raw(fields["name"]),
        _raw(fields["schema"]),
    )
    in_cell = _whole(cells["fields"])
    ends = in_cell.offsets.to_numpy(zero_copy_only=False).astype(np.int64)
    if len(ends) and ends[0] != 0:
        raise ValueError("lists that do not start at 0")
    session.set_runs(
        _table("runs", tables["runs"]),
        _stacked([_ints(cells["block"]), _ints(cells["block_row"]), np.diff(ends)]),
        _ints(in_cell.values),
    )
    rows = tables["rows"]
    session.set_rows(_table("rows", rows), _raw(rows["key"]), _raw(rows["tags"]))
    for partition, name, state, first, count in zip(
        *(
            tasks[name].to_pylist()
            for name in ("partition", "name", "sampler_state", "consumed_first", "consumed_rows")
        ),
        strict=True,
    ):
        consumed = _stacked([np.asarray(first, np.int64), np.asarray(count, np.int64)])
        session.add_task(partition, name, state, consumed)
    return session


def _columns(table: str, values: Ints) -> dict[str, Any]:
    return dict(zip(_COLUMNS[table], map(pyarrow().array, values.T), strict=True))


def _block_columns(blocks: Ints) -> dict[str, Any]:
    columns = _columns("blocks", blocks)
    if (blocks[:, 4] < 0).all():
        del columns["elsewhere_nbytes"]  # of one machine there is none
    return columns


def _block_table(table: Any) -> Ints:
    *all_have, elsewhere = _COLUMNS["blocks"]
    columns = [_ints(table[column]) for column in all_have]
    has_it = elsewhere in table.column_names
    return _stacked([*columns, _ints(table[elsewhere]) if has_it else np.full(len(columns[0]), -1, np.int64)])


def _table(name: str, table: Any) -> Ints:
    return _stacked([_ints(table[column]) for column in _COLUMNS[name]])


def _stacked(columns: list[Ints]) -> Ints:
    """int64 [rows, columns]."""
    return np.ascontiguousarray(np.stack(columns, axis=1), dtype=np.int64)


def _offsets(ends: Ints) -> Ints:
    return np.concatenate([np.zeros(1, np.int64), ends.astype(np.int64)])


def _strings(column: Strings, kind: Any) -> Any:
    raw, ends = column
    arrow = pyarrow()
    buffers = [None, arrow.py_buffer(_offsets(ends)), arrow.py_buffer(raw)]
    return arrow.Array.from_buffers(kind, len(ends), buffers)


def _whole(column: Any) -> Any:
    """One array of a column that was written as one or more chunks, without nulls."""
    array = column.combine_chunks() if hasattr(column, "combine_chunks") else column
    if hasattr(array, "chunks"):
        array = pyarrow().concat_arrays(array.chunks) if array.num_chunks else pyarrow().array([], column.type)
    array.validate(full=True)  # offsets and text come from outside
    if array.null_count:
        raise ValueError("a column with nulls")
    return array


def _ints(column: Any) -> Ints:
    array = _whole(column)
    if array.type != pyarrow().int64():
        raise TypeError(f"a column of {array.type}, not of int64")
    values: Ints = array.to_numpy(zero_copy_only=False)
    return np.ascontiguousarray(values)


def _raw(column: Any) -> Strings:
    """Bytes and ends of a column of strings or bytes."""
    array = _whole(column)
    arrow = pyarrow()
    if arrow.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    array = array.cast(arrow.large_binary())
    _, offsets, data = array.buffers()
    ends = (
        np.frombuffer(offsets, np.int64)[array.offset : array.offset + len(array) + 1]
        if len(array)
        else np.zeros(1, np.int64)
    )
    raw = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(0, np.uint8)
    return np.ascontiguousarray(raw[ends[0] : ends[-1]]), np.ascontiguousarray(ends[1:] - ends[0])
