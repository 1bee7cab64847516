"""Which rows have which fields, of one resolution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from transferqueue.client.row_meta import Coverage, batch_meta, merge_schemas, meta_of
from transferqueue.metadata import FieldSchema


class Resolution:
    """Four rows: "all" has every row, in two pieces; "some" rows 1 and 2; "none" no row."""

    indexes = np.array([10, 11, 12, 13])
    fields: Sequence[str] = ("all", "some", "none", "also all")
    complete = False
    _pieces = (
        np.array([[0, 1, 0, 0], [1, 3, 1, 0]]),
        np.array([[1, 2, 0, 0]]),
        np.empty((0, 4), dtype=np.int64),
    )

    def pieces(self, field: int) -> Any:
        return self._pieces[field % 3]

    def piece_list_id(self, field: int) -> int:
        return field % 3


def test_masks_ready_and_missing() -> None:
    coverage = Coverage(Resolution())  # type: ignore[arg-type]
    assert coverage.mask("all").tolist() == [True] * 4
    assert coverage.mask("some").tolist() == [False, True, True, False]
    assert coverage.mask("none").tolist() == coverage.mask("unknown").tolist() == [False] * 4
    assert coverage.mask("also all") is coverage.mask("all")
    assert coverage.ready(["all", "some"]).tolist() == [False, True, True, False]
    assert coverage.ready([]).tolist() == [False] * 4
    assert coverage.on_every_row() == ["all", "also all"]
    assert coverage.missing(["all", "some", "unknown"]) == {"some": [0, 3], "unknown": [0, 1, 2, 3]}
    assert [bool(coverage.mask(name).any()) for name in ("some", "none", "unknown")] == [True, False, False]
    assert coverage.schema("unknown") == FieldSchema()


class CompleteResolution(Resolution):
    """Every row has both fields, which is said and need not be looked for."""

    fields = ("all", "also all")
    complete = True

    def pieces(self, field: int) -> Any:
        raise AssertionError("nobody has to look at rows")

    def schemas(self, field: int) -> list[bytes]:
        return []


def test_what_is_complete_is_described_without_a_look_at_rows() -> None:
    coverage = Coverage(CompleteResolution())  # type: ignore[arg-type]
    assert coverage.is_complete(["all", "also all"])
    assert not coverage.is_complete([])
    assert not coverage.is_complete(["all", "unknown"])
    assert coverage.missing(["all"]) == {}
    assert coverage.on_every_row() == ["all", "also all"]
    tagged = meta_of("s", "p", coverage, ["all"], [{"t": 1}, {}, {}, {}])
    assert (tagged.global_indexes, tagged.is_ready, tagged.session) == ([10, 11, 12, 13], True, "s")
    assert tagged.custom_meta == [{"t": 1}, {}, {}, {}]
    assert meta_of("s", "p", coverage, ["all"], [{}, {}, {}, {}])._custom_meta is None


def test_types_of_rows_that_differ() -> None:
    short, long = FieldSchema("int64", (3,)), FieldSchema("int64", (5,))
    assert merge_schemas(short, short) == short
    assert merge_schemas(short, long) == FieldSchema("int64", (-1,), is_nested=True)
    assert merge_schemas(short, FieldSchema("int8", (3,))).dtype is None


def test_metadata_that_is_all_ready_says_so_once() -> None:
    schemas = {"x": FieldSchema("int64", ())}
    indexes = np.arange(1000)
    for ready in (True, np.ones(1000, dtype=np.bool_)):
        meta = batch_meta("s", "p", indexes, schemas, ready)
        assert meta.is_ready
        assert meta._status is None
    partly = batch_meta("s", "p", indexes[:3], schemas, np.array([True, False, True]), [{}, {"t": 1}, {}])
    assert partly.production_status.tolist() == [1, 0, 1]
    assert partly.custom_meta == [{}, {"t": 1}, {}]
    assert not batch_meta("s", "p", indexes, schemas, False).is_ready
