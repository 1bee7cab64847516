"""What is put and what comes back, row by row and by type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from tensordict import NonTensorStack, TensorDict

from tests.unit.codec.fake_native import FakeStore
from transferqueue.codec import decode, plan_put


def rows_of(column: Any) -> list[Any]:
    """Every row of a column: tensors of dense and nested ones, values of stacks and lists."""
    if isinstance(column, torch.Tensor):
        return list(column.detach().unbind(0)) if column.size(0) else []
    return list(column.tolist() if isinstance(column, NonTensorStack) else column)


def same(a: Any, b: Any) -> bool:
    """Equal in type and value all the way down; tensors bit for bit (NaN included), of the same dtype and shape."""
    if isinstance(a, torch.Tensor) or isinstance(b, torch.Tensor):
        return (
            isinstance(a, torch.Tensor)
            and isinstance(b, torch.Tensor)
            and a.dtype == b.dtype
            and a.shape == b.shape
            and bits(a) == bits(b)
        )
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray):
        return bool(a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes())
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    return bool(a == b) or (a != a and b != b)


def bits(tensor: torch.Tensor) -> bytes:
    plain = tensor.detach().cpu().resolve_conj().resolve_neg()
    if plain.dtype.itemsize == 1:  # sub-byte dtypes have no copy kernel
        plain = plain.view(torch.uint8)
    return plain.clone(memory_format=torch.contiguous_format).reshape(-1).view(torch.uint8).numpy().tobytes()


def assert_same_rows(column: Any, expected: Sequence[Any]) -> None:
    rows = rows_of(column)
    assert len(rows) == len(expected)
    for position, (row, wanted) in enumerate(zip(rows, expected, strict=True)):
        assert same(row, wanted), f"row {position}: {row!r} is not {wanted!r}"


def assert_same_column(a: Any, b: Any) -> None:
    """Two readings of the same rows: equal in kind, dtype, layout and every row."""
    assert type(a) is type(b)
    if isinstance(a, torch.Tensor):
        assert (a.dtype, a.is_nested, a.layout, a.dim()) == (b.dtype, b.is_nested, b.layout, b.dim())
        if a.layout is torch.jagged:
            for part in ("_ragged_idx", "_min_seqlen", "_max_seqlen"):
                assert getattr(a, part) == getattr(b, part)
            assert same(a.offsets(), b.offsets())
            assert same(a.values(), b.values())
            assert a.values().stride() == b.values().stride()
    assert_same_rows(a, rows_of(b))


def put_get(
    *batches: Any, rows: Sequence[int] | None = None, mode: str = "cow", copy_below: int = 1, allow_pickle: bool = False
) -> TensorDict:
    """The batches put one after another into one store; then those rows of all of them."""
    store = FakeStore()
    for batch in batches:
        store.put(plan_put(batch))
    resolved = store.resolve(range(store.n_rows) if rows is None else rows)
    return decode(resolved, mode=mode, copy_below=copy_below, allow_pickle=allow_pickle)[0]  # type: ignore[arg-type]


def put_get_column(value: Any, n_rows: int, **options: Any) -> Any:
    return put_get(TensorDict({"x": value}, [n_rows]), **options).get("x")


def jagged(*lengths: int, dtype: torch.dtype = torch.float32, rest: Sequence[int] = (), dim: int = 1) -> torch.Tensor:
    """A jagged tensor with those lengths, counted up from 0; `dim` is the ragged dimension of the whole tensor."""
    total = sum(lengths)
    elements = total * int(np.prod(rest, dtype=np.int64))
    values = torch.arange(elements).to(dtype).view(total, *rest).movedim(0, dim - 1)
    offsets = torch.tensor(np.concatenate(([0], np.cumsum(lengths))), dtype=torch.int64)
    return torch.nested.nested_tensor_from_jagged(values, offsets, jagged_dim=dim)
