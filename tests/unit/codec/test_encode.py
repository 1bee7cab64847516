"""What a put plan takes, and what it refuses by name."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest
import torch
from tensordict import LazyStackedTensorDict, MemoryMappedTensor, NonTensorData, NonTensorStack, TensorDict, tensorclass
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.masked import masked_tensor

from tests.unit.codec.compare import assert_same_rows, jagged, put_get, same
from tests.unit.codec.fake_native import FakeReservation
from transferqueue.codec import plan_put
from transferqueue.errors import SchemaMismatchError


@tensorclass
class Sample:
    tokens: torch.Tensor
    name: str


WRONG_ROWS: dict[str, Any] = {
    "dense": torch.ones(3, 2),
    "0-dimensional": torch.tensor(1.0),
    "jagged": jagged(1, 2, 3),
    "strided": torch.nested.nested_tensor([torch.ones(1)] * 3),
    "list": ["a"] * 3,
    "array": np.ones((3, 2)),
    "text": np.array(["a", "b", "c"]),
    "stack": NonTensorStack("a", "b", "c"),
    "batch": TensorDict({"y": torch.ones(3)}, [3]),
}


@pytest.mark.parametrize("value", WRONG_ROWS.values(), ids=list(WRONG_ROWS))
def test_another_number_of_rows_names_field_and_both_numbers(value: Any) -> None:
    with pytest.raises(SchemaMismatchError, match="'wrong'") as caught:
        plan_put({"first": torch.ones(4), "wrong": value})
    assert isinstance(caught.value, ValueError)
    assert caught.value.fields == ("wrong",)
    assert caught.value.expected == 4


REFUSED: dict[str, Any] = {
    "sparse": torch.eye(4).to_sparse(),
    "quantized": torch.quantize_per_tensor(torch.ones(4), 0.1, 0, torch.qint8),
    "meta": torch.ones(4, device="meta"),
    "unpicklable": [lambda: 1] * 4,
}


@pytest.mark.parametrize("value", REFUSED.values(), ids=list(REFUSED))
def test_what_cannot_be_stored_is_refused_by_name(value: Any) -> None:
    with pytest.raises(SchemaMismatchError, match="'wrong'"):
        plan_put({"wrong": value})


def freed() -> torch.Tensor:
    """As sharded training frees parameters: the shape stays, the storage goes."""
    tensor = torch.ones(4, 64)
    tensor.untyped_storage().resize_(0)
    return tensor


NO_MEMORY: dict[str, Any] = {
    "fake": lambda: FakeTensorMode().from_tensor(torch.ones(4, 4)),
    "fake, transposed": lambda: FakeTensorMode().from_tensor(torch.ones(4, 4)).t(),
    "of zeros": lambda: torch._efficientzerotensor((4, 4)),
    "masked": lambda: masked_tensor(torch.ones(4, 4), torch.eye(4) > 0),
    "freed": freed,
    "freed row": lambda: LazyStackedTensorDict(TensorDict({"x": torch.ones(4, 64)}), TensorDict({"x": freed()})),
}


@pytest.mark.parametrize("make", NO_MEMORY.values(), ids=list(NO_MEMORY))
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_tensor_without_memory_is_refused_rather_than_read(make: Any) -> None:
    with pytest.raises(SchemaMismatchError, match=r"'wrong.*has no memory"):
        plan_put({"wrong": make()})


@pytest.mark.parametrize("transform", ["functionalize", "vmap", "grad"])
def test_a_tensor_inside_a_transform_is_refused_rather_than_read(transform: str) -> None:
    def put(x: torch.Tensor) -> torch.Tensor:
        with pytest.raises(SchemaMismatchError, match=r"'wrong'.*has no memory"):
            plan_put({"wrong": x})
        return x.sum()

    getattr(torch.func, transform)(put)(torch.ones(4, 4))


def test_batches_without_rows_or_of_other_types() -> None:
    with pytest.raises(SchemaMismatchError, match="batch dimension"):
        plan_put(TensorDict({"x": torch.ones(3)}, []))
    with pytest.raises(SchemaMismatchError, match="not a list"):
        plan_put([torch.ones(3)])
    with pytest.raises(SchemaMismatchError, match="n_rows"):
        plan_put({"cfg": "c"})
    with pytest.raises(SchemaMismatchError, match="3 rows where 4"):
        plan_put({"x": torch.ones(3)}, 4)
    assert plan_put({"cfg": "c"}, 4).n_rows == 4


def test_two_fields_of_one_name() -> None:
    with pytest.raises(SchemaMismatchError, match="a/b"):
        plan_put({"a": {"b": torch.ones(2)}, "a/b": torch.ones(2)})


def test_tensorclasses_memory_mapped_tensors_and_dicts() -> None:
    sample = Sample(tokens=torch.arange(6).view(3, 2), name="n", batch_size=[3])
    plan = plan_put(sample)
    assert [layout.name for layout in plan.layouts] == ["tokens"]
    assert plan.batch_info == {"name": "n"}
    mapped = MemoryMappedTensor.from_tensor(torch.arange(6.0).view(3, 2))
    out = put_get({"m": mapped, "inner": {"s": sample, "l": [1, 2, 3]}}, rows=[2, 0])
    assert same(out["m"], torch.tensor([[4.0, 5.0], [0.0, 1.0]]))
    assert same(out["inner", "s", "tokens"], torch.tensor([[4, 5], [0, 1]]))
    assert list(out["inner", "l"]) == [3, 1]


def test_lazy_stacks_along_any_dimension_and_rows_with_other_fields() -> None:
    columns = [TensorDict({"x": torch.full((4, 2), i)}, [4]) for i in range(3)]
    out = put_get(LazyStackedTensorDict.lazy_stack(columns, 1), rows=[3])
    assert same(out["x"], torch.tensor([[[0, 0], [1, 1], [2, 2]]]))
    inside = TensorDict({"in": LazyStackedTensorDict(*[TensorDict({"x": torch.ones(i)}) for i in range(3)])}, [3])
    assert_same_rows(put_get(inside)["in"].get("x"), [torch.ones(i) for i in range(3)])
    with pytest.raises(SchemaMismatchError, match=r"row 1.*'y'"):
        plan_put(
            LazyStackedTensorDict(
                TensorDict({"x": torch.ones(1)}), TensorDict({"x": torch.ones(1), "y": torch.ones(1)})
            )
        )


def test_stacks_of_other_dtypes_and_devices_are_not_converted() -> None:
    rows = LazyStackedTensorDict(TensorDict({"x": torch.ones(2)}), TensorDict({"x": torch.ones(2, dtype=torch.int32)}))
    assert_same_rows(put_get(rows).get("x"), [torch.ones(2), torch.ones(2, dtype=torch.int32)])


def test_nothing_of_the_batch_is_kept_after_writing() -> None:
    batch = {
        "x": torch.ones(4, 3),
        "strided": torch.ones(3, 4).t(),
        "j": jagged(1, 2, 0, 3),
        "o": [{"t": torch.ones(2)} for _ in range(4)],
        "t": [torch.ones(i) for i in range(4)],
        "n": np.array(["a", "b", "c", "d"]),
    }
    plan = plan_put(batch)
    owners = [weakref.ref(batch["x"]), weakref.ref(batch["strided"]), weakref.ref(batch["o"][2]["t"])]
    reservation = FakeReservation(plan.nbytes)
    plan.write(reservation)  # type: ignore[arg-type]
    assert reservation.memory.alive == 0
    del batch
    gc.collect()
    assert [owner() for owner in owners] == [None] * 3
    with pytest.raises(RuntimeError, match="already"):
        plan.write(reservation)  # type: ignore[arg-type]


def test_a_plan_copies_nothing_and_asks_only_for_types() -> None:
    x = torch.ones(1000, 1000)
    plan = plan_put({"x": x, "y": x.t()})
    x.fill_(3)  # until `write`, the caller's memory is the only one
    reservation = FakeReservation(plan.nbytes)
    plan.write(reservation)  # type: ignore[arg-type]
    assert reservation.copied_nbytes == 8_000_000
    assert (reservation.memory.bytes[: plan.nbytes].view(np.float32)[:1000] == 3).all()


def test_constants_and_columns_of_numpy_arrays() -> None:
    plan = plan_put(TensorDict({"x": torch.ones(2), "c": NonTensorData(np.arange(3))}, [2]))
    assert [layout.name for layout in plan.layouts] == ["x"]
    assert plan.batch_info["c"].tolist() == [0, 1, 2]
