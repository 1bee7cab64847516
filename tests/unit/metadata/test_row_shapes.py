"""Shapes row by row: held where a program gave them, else looked up."""

from __future__ import annotations

import weakref
from collections.abc import Iterator

import numpy as np
import pytest

from tests.unit.metadata.builders import DENSE, JAGGED, meta_of, shipped
from transferqueue.errors import SessionNotFoundError
from transferqueue.metadata import BatchMeta, set_row_shape_lookup
from transferqueue.metadata.row_shapes import RowShapes, look_up_row_shapes


@pytest.fixture
def lengths_by_index() -> Iterator[list[tuple[str, list[int]]]]:
    """A stand-in for the index: row i has length 10 * i; what was asked is recorded."""
    asked: list[tuple[str, list[int]]] = []

    def look_up(meta: BatchMeta, field: str) -> list[tuple[int, ...]]:
        asked.append((field, meta.global_indexes))
        return [(10 * index,) for index in meta.global_indexes]

    set_row_shape_lookup(look_up)
    yield asked
    set_row_shape_lookup(None)


def test_shapes_of_any_rank_come_back() -> None:
    shapes = [(1, 2), (), None, (0,), (3, 4)]
    rows = RowShapes.of(shapes)
    assert len(rows) == 5
    assert rows.tolist() == shapes
    assert [rows.row(position) for position in range(5)] == shapes
    assert rows.take(slice(1, 3)).tolist() == [(), None]
    assert rows.take(np.array([4, 0])).tolist() == [(3, 4), (1, 2)]
    assert RowShapes.concat([rows.take(slice(1, 2)), RowShapes.of([(7, 8, 9)]), rows]).tolist() == [
        (),
        (7, 8, 9),
        *shapes,
    ]
    assert RowShapes.uniform((5,), 3).tolist() == [(5,)] * 3
    assert RowShapes.uniform((), 2).tolist() == [(), ()]
    assert RowShapes.of([]).tolist() == []
    assert rows == RowShapes.of(shapes)
    assert rows != RowShapes.of(shapes[::-1])


def test_stored_rows_are_looked_up_when_asked_for_and_not_before(
    lengths_by_index: list[tuple[str, list[int]]],
) -> None:
    meta = shipped(meta_of([3, 0, 7], field_schema={"j": JAGGED, "a": DENSE}))
    field = meta.field_schema["j"]
    assert "per_sample_shapes" in field
    assert "per_sample_shapes" not in meta.field_schema["a"]
    assert dict(field)["shape"] == (-1,)
    BatchMeta.concat(meta.chunk(2)).union(meta)
    BatchMeta(meta.global_indexes, "p", meta.field_schema)
    assert lengths_by_index == []
    assert field["per_sample_shapes"] == [(30,), (0,), (70,)]
    assert meta.get_shapes("j") == [(30,), (0,), (70,)]
    assert meta.samples[2].fields["j"]["shape"] == (70,)
    assert lengths_by_index == [("j", [3, 0, 7]), ("j", [3, 0, 7]), ("j", [7])]


def test_without_an_attached_client_the_session_is_named() -> None:
    meta = meta_of([1], field_schema={"j": JAGGED})
    with pytest.raises(SessionNotFoundError, match=r"field 'j' stand in the index of session 's'.*init\(\)"):
        meta.get_shapes("j")
    assert meta[0:0].get_shapes("j") == []


def test_given_shapes_travel_and_need_no_lookup() -> None:
    meta = meta_of([1, 2], field_schema={"j": {**JAGGED, "per_sample_shapes": [(5,), (6,)]}})
    back = shipped(meta)
    assert back.field_schema["j"]["per_sample_shapes"] == [(5,), (6,)]
    assert back[1].get_shapes("j") == [(6,)]
    back.add_schema({"j": JAGGED})
    assert back.known_row_shapes("j") is None


def test_a_client_that_is_let_go_is_not_kept_for_lookups() -> None:
    class Client:
        def row_shapes(self, meta: BatchMeta, field: str) -> list[tuple[int, ...]]:
            return [(3,)] * len(meta)

    client = Client()
    set_row_shape_lookup(client.row_shapes)
    rows = meta_of([4, 5], field_schema={"j": JAGGED})
    assert look_up_row_shapes(rows, "j")[0] == (3,)
    alive = weakref.ref(client)
    del client
    assert alive() is None
    with pytest.raises(SessionNotFoundError, match="init"):
        look_up_row_shapes(rows, "j")
