"""Fields computed straight into the store."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tests.unit.codec.compare import assert_same_rows, jagged, same
from tests.unit.codec.fake_native import FakeReservation, FakeStore
from transferqueue.codec import Jagged, decode, plan_alloc, plan_put
from transferqueue.errors import SchemaMismatchError

FIELDS: dict[Any, Any] = {
    "x": ((3,), torch.bfloat16),
    "scalar": ((), torch.float32),
    "empty": ((0, 2), torch.int64),
    "j": Jagged([2, 0, 3, 1], torch.int64),
    "wide": Jagged(torch.tensor([1, 1, 0, 2]), torch.float32, row_shape=(5,)),
    ("in", "y"): ((2,), torch.bool),
}


def test_written_in_place_reads_like_a_put() -> None:
    plan = plan_alloc(FIELDS, 4)
    reservation = FakeReservation(plan.nbytes)
    data = plan.tensors(reservation)  # type: ignore[arg-type]
    assert data.batch_size == (4,)
    x = torch.arange(12.0).view(4, 3).bfloat16()
    wide = jagged(1, 1, 0, 2, rest=(5,))
    data["x"].copy_(x)
    data["scalar"].fill_(2.5)
    data["j"].values().copy_(torch.arange(6))
    for mine, theirs in zip(data["wide"].unbind(), wide.unbind(), strict=True):
        mine.copy_(theirs)
    data["in", "y"].fill_(True)
    plan.finish(reservation)  # type: ignore[arg-type]
    store = FakeStore()
    store.publish(reservation, plan.layouts, 4)
    out = decode(store.resolve([3, 0, 1, 2]), mode="cow", copy_below=1, allow_pickle=False)[0]  # type: ignore[arg-type]
    order = [3, 0, 1, 2]
    assert same(out["x"], x[order])
    assert out["scalar"].tolist() == [2.5] * 4
    assert out["empty"].shape == (4, 0, 2)
    assert [row.tolist() for row in out["j"].unbind()] == [[5], [0, 1], [], [2, 3, 4]]
    assert_same_rows(out["wide"], [wide.unbind()[row] for row in order])
    assert out["in", "y"].all()


def test_its_schema_is_that_of_a_put() -> None:
    allocated = plan_alloc({"x": ((3,), torch.float32), "j": Jagged([2, 3], torch.float32)}, 2)
    put = plan_put({"x": torch.ones(2, 3), "j": jagged(2, 3)})
    assert [(a.name, a.schema, a.kind, a.data_nbytes) for a in allocated.layouts] == [
        (b.name, b.schema, b.kind, b.data_nbytes) for b in put.layouts
    ]
    assert allocated.schemas == put.schemas


def test_tensors_die_with_the_last_reference() -> None:
    """Commit asks how many are alive: none may be held by a cycle."""
    plan = plan_alloc(FIELDS, 4)
    reservation = FakeReservation(plan.nbytes)
    data = plan.tensors(reservation)  # type: ignore[arg-type]
    assert reservation.producer_tensors_alive() == 5  # all but the field without bytes
    kept = data["j"].values()[1:]
    del data
    assert reservation.producer_tensors_alive() == 1
    del kept
    assert reservation.producer_tensors_alive() == 0


def test_no_rows() -> None:
    plan = plan_alloc({"x": ((3,), torch.int8), "j": Jagged([], torch.int8)}, 0)
    data = plan.tensors(FakeReservation(plan.nbytes))  # type: ignore[arg-type]
    assert data["x"].shape == (0, 3)
    assert data["j"].size(0) == 0


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"x": (3, torch.int8)}, "'x'"),
        ({"x": ((3,),)}, "'x'"),
        ({"x": ((3,), "int8")}, "'x'"),
        ({"x": ((-1,), torch.int8)}, "'x'"),
        ({"x": ((3,), torch.qint8)}, "'x'"),
        ({"x": torch.ones(4)}, "'x'"),
        ({"x": Jagged([1, 2], torch.int8)}, "2 lengths for 4 rows"),
        ({"x": Jagged([1] * 4, torch.int8, (0,))}, "no bytes"),
        ({"": ((3,), torch.int8)}, "empty"),
        ({(): ((3,), torch.int8)}, "no name"),
        ({"a/b": ((3,), torch.int8), ("a", "b"): ((3,), torch.int8)}, "a/b"),
    ],
)
def test_descriptions_that_are_none_are_refused_by_name(fields: Any, message: str) -> None:
    with pytest.raises(SchemaMismatchError, match=message):
        plan_alloc(fields, 4)


def test_jagged_takes_lengths_of_any_kind_and_keeps_its_own() -> None:
    lengths = np.array([1, 2], dtype=np.int32)
    description = Jagged(lengths, torch.int8, [3])
    lengths[0] = 9
    assert description.lengths.tolist() == [1, 2]
    assert description.lengths.dtype == np.int64
    assert description.row_shape == (3,)
    assert len(description) == 2
    assert "2 rows" in repr(description)
    for wrong in ([1, -1], [[1]], ["a"], [1.5], 3):
        with pytest.raises(SchemaMismatchError):
            Jagged(wrong, torch.int8)
    with pytest.raises(SchemaMismatchError):
        Jagged([1], "int8")  # type: ignore[arg-type]
    with pytest.raises(SchemaMismatchError):
        Jagged([1], torch.int8, (-1,))
