from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from transferqueue import _native
from transferqueue.checkpoint.tables import from_tables, to_tables


def strings(*values: bytes) -> tuple[Any, Any]:
    return np.frombuffer(b"".join(values), np.uint8), np.cumsum([len(value) for value in values], dtype=np.int64)


def session() -> _native.SavedSession:
    made = _native.SavedSession()
    made.next_row = 100
    made.set_partitions(["p", "ä/\n"], [["x", "y"], []])
    made.set_blocks(
        np.array([[0, 3, 128, 2, -1]]),
        np.array([[0, 0, 24, 8, 0], [1, 64, 5, 0, 32]]),
        strings(b"x", b"y"),
        strings(b"\x00\xff", b""),
    )
    made.set_runs(
        np.array([[0, 5, 2, 1], [0, 7, 1, 1], [1, 9, 4, 0]]), np.array([[0, 0, 2], [0, 2, 1]]), np.array([0, 1, 1])
    )
    made.set_rows(np.array([[0, 5], [1, 10]]), strings("ключ".encode(), b""), strings(b"", b"\x01\x02"))
    made.add_task(0, "train", b"state", np.array([[5, 2]]))
    made.add_task(1, "eval", b"", np.zeros((0, 2), np.int64))
    return made


def same(a: _native.SavedSession, b: _native.SavedSession) -> None:
    assert (a.next_row, a.partitions, a.known_fields) == (b.next_row, b.partitions, b.known_fields)
    for name in ("blocks", "runs", "cells", "cell_fields", "rows"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))
    for one, other in zip((*a.fields[1:], a.keys, a.tags), (*b.fields[1:], b.keys, b.tags), strict=True):
        assert one[0].tobytes() == other[0].tobytes()
        np.testing.assert_array_equal(one[1], other[1])
    np.testing.assert_array_equal(a.fields[0], b.fields[0])
    for one, other in zip(a.tasks, b.tasks, strict=True):
        assert one[:3] == other[:3]
        np.testing.assert_array_equal(one[3], other[3])


@pytest.mark.parametrize("made", [session(), _native.SavedSession()], ids=["rows", "nothing"])
def test_tables_and_back(made: _native.SavedSession) -> None:
    tables = to_tables(made)
    same(from_tables(tables, made.next_row), made)
    # In several chunks, as another writer might leave them.
    chunked = {name: pa.concat_tables([table.slice(0, 1), table.slice(1)]) for name, table in tables.items()}
    same(from_tables(chunked, made.next_row), made)


def test_what_blocks_stand_for_elsewhere_is_a_column_only_where_there_is_some() -> None:
    made = session()
    assert "elsewhere_nbytes" not in to_tables(made)["blocks"].column_names, "as checkpoints of one machine always were"
    made.set_blocks(np.array([[0, 3, 128, 2, 5000]]), made.fields[0], *made.fields[1:])
    tables = to_tables(made)
    assert tables["blocks"]["elsewhere_nbytes"].to_pylist() == [5000]
    same(from_tables(tables, made.next_row), made)


@pytest.mark.parametrize("name", ["partitions", "blocks", "fields", "runs", "cells", "rows", "tasks"])
def test_tables_of_another_kind_are_refused(name: str) -> None:
    tables = to_tables(session())
    for wrong in (pa.table({}), tables["tasks" if name != "tasks" else "runs"]):
        with pytest.raises((ValueError, TypeError, KeyError, pa.ArrowException)):
            from_tables({**tables, name: wrong}, 100)


def test_setters_refuse_what_does_not_fit() -> None:
    made = session()
    with pytest.raises(ValueError, match="columns"):
        made.set_rows(np.zeros((1, 3), np.int64), strings(b"k"), strings(b""))
    with pytest.raises(ValueError, match="names or schemas"):
        made.set_blocks(np.zeros((0, 5), np.int64), np.zeros((1, 5), np.int64), strings(), strings())
    with pytest.raises(ValueError, match="more fields"):
        made.set_blocks(np.array([[0, 1, 1, 7, -1]]), np.zeros((0, 5), np.int64), strings(), strings())
    with pytest.raises(ValueError, match="of no block"):
        made.set_blocks(np.zeros((0, 5), np.int64), np.zeros((1, 5), np.int64), strings(b"x"), strings(b""))
    with pytest.raises(ValueError, match="negative"):
        made.set_blocks(np.array([[0, 1, 1, 0, -2]]), np.zeros((0, 5), np.int64), strings(), strings())
    with pytest.raises(TypeError):
        made.set_runs(np.zeros((1, 4)), np.zeros((0, 3), np.int64), np.zeros(0, np.int64))  # type: ignore[arg-type]
