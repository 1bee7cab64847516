"""What a column comes back as: 1-D dense, all else with a shape nested, and no copy for it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tensordict import LazyStackedTensorDict, NonTensorStack, TensorDict

import transferqueue as native
from transferqueue.compat import transfer_queue as tq

pytestmark = pytest.mark.usefixtures("client")


def round_trip(*columns: Any, rows: list[int] | None = None) -> Any:
    """Puts the columns one below the other as field x and reads all rows, or some, in one call."""
    metas = [tq.get_client().put(TensorDict({"x": column}, [column.size(0)]), partition_id="p") for column in columns]
    meta = tq.BatchMeta([index for piece in metas for index in piece.global_indexes], "p", metas[0].field_schema)
    return tq.get_client().get_data(meta if rows is None else meta.select_samples(rows)).get("x")


def values(column: Any) -> list[Any]:
    return [row.tolist() for row in column.unbind()]


def nested(*shapes: tuple[int, ...], layout: torch.layout = torch.strided) -> torch.Tensor:
    tensors = [torch.arange(float(torch.Size(shape).numel())).view(shape) for shape in shapes]
    return torch.nested.nested_tensor(tensors, layout=layout)


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.bfloat16, torch.float8_e5m2])
def test_scalars_are_dense(dtype: torch.dtype) -> None:
    column = round_trip(torch.tensor([1, 0, 1]).to(dtype))
    assert column.dtype == dtype
    assert not column.is_nested
    assert column.shape == (3,)


@pytest.mark.parametrize("shape", [(3, 4), (3, 4, 2), (1, 5), (3, 0), (2, 3, 0)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dense_columns_with_a_shape_are_jagged(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    given = torch.arange(torch.Size(shape).numel()).view(shape).to(dtype)
    column = round_trip(given)
    assert column.layout is torch.jagged
    assert column.dtype == dtype
    assert values(column) == given.tolist()
    assert torch.equal(column.to_padded_tensor(0.0), given) or not given.numel()


def test_a_large_dense_column_is_not_copied_to_be_jagged() -> None:
    given = torch.arange(64 * 4096).view(64, 4096)
    meta = tq.get_client().put(TensorDict({"x": given, "mask": given > 3}, [64]), partition_id="p")
    batch = tq.get_client().get_data(meta)
    leased = native.get_client().stats().leased_bytes
    assert leased >= given.nbytes
    assert batch["x"].values().data_ptr() % 4096 == 0
    # Columns of one length know that they have it.
    assert torch.equal((batch["x"] * batch["mask"]).values(), (given * (given > 3)).view(-1))
    # A row is private to the reader.
    batch["x"][0, 0] = 99
    batch["x"].values()[1] = 98
    assert batch["x"][0].tolist()[:3] == [99, 98, 2]
    assert torch.equal(tq.get_client().get_data(meta)["x"].values(), given.view(-1))
    del batch


def test_jagged_stays_jagged() -> None:
    column = round_trip(nested((2, 3), (5, 3), layout=torch.jagged))
    assert column.layout is torch.jagged
    assert [row.shape for row in column.unbind()] == [(2, 3), (5, 3)]


@pytest.mark.parametrize(
    ("shapes", "layout"),
    [
        ([(3, 4), (3, 4)], torch.jagged),
        ([(2, 4), (3, 4)], torch.jagged),
        ([(4, 2), (4, 3)], torch.jagged),
        ([(4,), (2,)], torch.jagged),
        ([(2, 3), (3, 2)], torch.strided),
        ([(2, 3, 1), (2, 3, 4), (5, 3, 4)], torch.strided),
    ],
)
def test_strided_becomes_jagged_where_one_dimension_differs(shapes: Any, layout: torch.layout) -> None:
    given = nested(*shapes)
    column = round_trip(given)
    assert column.is_nested
    assert column.layout is layout
    assert values(column) == values(given)
    first_two = values(given)[:2]
    assert values(round_trip(given, rows=[1, 0])) == first_two[::-1]


def test_rows_that_differ_from_put_to_put() -> None:
    assert round_trip(torch.ones(2, 4), torch.ones(2, 6)).layout is torch.jagged
    assert round_trip(torch.ones(2, 4, 5), torch.ones(2, 4, 6)).layout is torch.jagged
    assert round_trip(torch.ones(1, 4, 5), torch.ones(1, 3, 6)).layout is torch.strided
    assert round_trip(nested((2, 3), (3, 2)), torch.ones(1, 3, 2)).layout is torch.strided
    for odd in (torch.ones(1), torch.ones(1, 4, dtype=torch.int64), torch.ones(1, 4, 5)):
        column = round_trip(torch.ones(1, 4), odd)
        assert isinstance(column, NonTensorStack)
        assert [row.dtype for row in column.tolist()] == [torch.float32, odd.dtype]


def test_tensors_given_one_by_one() -> None:
    rows = [torch.ones(3), torch.zeros(5)]
    stack = LazyStackedTensorDict(*[TensorDict({"x": row}) for row in rows], stack_dim=0)
    meta = tq.kv_batch_put(["a", "b"], "q", stack)
    column = tq.kv_batch_get_by_meta(meta)["x"]
    assert column.layout is torch.jagged
    assert values(column) == [row.tolist() for row in rows]
    tq.kv_batch_put(["a", "b"], "q", TensorDict({"x": NonTensorStack(torch.tensor(1), torch.tensor(2))}, [2]))
    assert torch.equal(tq.kv_batch_get(["a", "b"], "q")["x"], torch.tensor([1, 2]))
    tq.kv_batch_put(["a", "b"], "q", TensorDict({"x": NonTensorStack(torch.ones(2), None)}, [2]))
    assert isinstance(tq.kv_batch_get(["a", "b"], "q").get("x"), NonTensorStack)


def test_the_native_face_gives_back_what_was_put() -> None:
    meta = tq.kv_batch_put(["a", "b"], "q", TensorDict({"x": torch.ones(2, 3), "s": nested((2,), (2,))}, [2]))
    stored = native.kv_batch_get_by_meta(meta)
    assert not stored["x"].is_nested
    assert stored["s"].layout is torch.strided
    assert native.kv_batch_get_by_meta(meta, layout="jagged")["x"].layout is torch.jagged
    with pytest.raises(ValueError, match="layout"):
        native.kv_batch_get_by_meta(meta, layout="dense")
