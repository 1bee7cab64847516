"""Columns that the native core reads whole, against the same columns read by `FieldReader`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from tensordict import TensorDict

from tests.unit.codec.compare import assert_same_column, assert_same_rows, jagged, same
from tests.unit.codec.general_only import GeneralOnly
from tests.unit.codec.native_store import NativeStore
from tests.unit.native.native_session import new_session
from transferqueue import _native
from transferqueue.codec import decode, plan_put
from transferqueue.codec import schema as forms
from transferqueue.codec.dtypes import _NUMBER_OF, dlpack_type
from transferqueue.codec.plain_columns import PlainColumns
from transferqueue.errors import CorruptSegmentError, LayoutMismatchError

KIB = 1 << 10
NewStore = Callable[[], NativeStore]


@pytest.fixture(scope="module")
def new_store() -> Iterator[NewStore]:
    with new_session() as session:
        store = session.attach()
        yield lambda: NativeStore(store)
        store.close()


def stored(store: NativeStore, *batches: Any) -> NativeStore:
    for batch in batches:
        store.put(plan_put(batch))
    return store


def both(resolved: _native.Resolved, **options: Any) -> Any:
    """The batch read natively, after a look that reading it otherwise gives the same, at the same cost."""
    how = {"mode": "cow", "copy_below": 1, "allow_pickle": False, **options}
    batch, *cost = decode(resolved, **how)
    general, *general_cost = decode(GeneralOnly(resolved), **how)  # type: ignore[arg-type]
    assert list(batch.keys()) == list(general.keys())
    for name in batch.keys():
        if isinstance(batch.get(name), TensorDict):
            for inner in batch.get(name).keys():
                assert_same_column(batch.get(name).get(inner), general.get(name).get(inner))
        else:
            assert_same_column(batch.get(name), general.get(name))
    assert cost == general_cost
    return batch


def native_fields(resolved: _native.Resolved) -> list[str]:
    """The fields that are not left to `FieldReader`."""
    names = list(resolved.fields)
    left = {name for name, parts in PlainColumns(resolved, names, "copy", 1).rest if parts is None}
    return [name for name in names if name not in left]


@pytest.mark.parametrize("rows", [range(12), range(3, 7), [5], [11, 0, 4, 4, 5, 6], list(range(12))[::-1]])
@pytest.mark.parametrize("mode", ["cow", "shared", "copy"])
@pytest.mark.parametrize("copy_below", [1, 256, 1 << 20])
def test_the_fields_of_a_step(new_store: NewStore, rows: Sequence[int], mode: str, copy_below: int) -> None:
    def batch(n: int) -> TensorDict:
        return TensorDict(
            {
                "ids": torch.arange(n * 16).view(n, 16),
                "done": torch.arange(n) % 2 == 0,
                "half": torch.randn(n, 3, 2, dtype=torch.bfloat16),
                "prompts": jagged(*[(7 * row) % 5 for row in range(n)], dtype=torch.int64),
                "wide": jagged(*range(n), rest=(2,), dim=2),
                "inner": TensorDict({"x": torch.rand(n, 4), "y": jagged(*range(n))}, [n]),
                "uid": [f"uid-{row}" for row in range(n)],
                "info": [{"reward": row / 2, "tags": ["a", None]} for row in range(n)],
            },
            [n],
        )

    store = stored(new_store(), batch(8), batch(4))
    resolved = store.resolve(rows)
    both(resolved, mode=mode, copy_below=copy_below)
    assert native_fields(resolved) == list(resolved.fields)


def test_every_dtype_is_typed_or_left_out() -> None:
    for dtype in _NUMBER_OF:
        element = dlpack_type(dtype)
        if element is None:
            assert dtype.itemsize > 1
            continue
        assert element.bits == 8 * dtype.itemsize
        if not element.as_bytes:
            capsule = torch.utils.dlpack.to_dlpack(torch.empty(2, dtype=dtype))
            assert torch.utils.dlpack.from_dlpack(capsule).dtype is dtype


@pytest.mark.parametrize("dtype", sorted(_NUMBER_OF, key=str), ids=str)
def test_dtypes(new_store: NewStore, dtype: torch.dtype) -> None:
    raw = torch.arange(6 * 4 * dtype.itemsize, dtype=torch.uint8)
    x = (raw % 2).view(dtype) if dtype is torch.bool else raw.view(dtype)
    offsets = torch.tensor([0, 6, 6, 24])
    batch = {"x": x[:24].view(3, 8), "j": torch.nested.nested_tensor_from_jagged(x[:24], offsets)}
    store = stored(new_store(), batch)
    for rows in (range(3), [2, 0]):
        out = both(store.resolve(rows))
        assert out["x"].dtype is dtype
        assert_same_rows(out["x"], [batch["x"][row] for row in rows])


def test_rows_of_differing_lengths_put_one_by_one(new_store: NewStore) -> None:
    lengths = [3, 1, 4, 1, 5, 9, 2, 6]
    rows = [torch.arange(2 * length, dtype=torch.int32).view(length, 2) for length in lengths]
    store = stored(
        new_store(), *[{"x": row.unsqueeze(0)} for row in rows], {"x": jagged(2, 0, rest=(2,), dtype=torch.int32)}
    )
    for chosen in (range(8), [6, 1, 3], range(10), [8, 0, 9], [1, 3]):
        resolved = store.resolve(chosen)
        out = both(resolved)["x"]
        assert native_fields(resolved) == ["x"]
        if chosen != [1, 3]:
            assert out.layout is torch.jagged
            assert out.offsets().diff().tolist() == [[*lengths, 2, 0][row] for row in chosen]
        else:  # rows of one length are dense, as they were put
            assert same(out, torch.stack([rows[1], rows[3]]))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (torch.ones(2, 3), torch.ones(2, 3, dtype=torch.float64)),
        (torch.ones(2, 3), torch.ones(2)),
        (torch.ones(2, 3, 2), torch.ones(2, 3, 4)),
        (torch.ones(2, 3), ["a", "b"]),
        (torch.ones(2, 3), [torch.ones(1), torch.ones(2)]),
        (jagged(1, 2), torch.nested.nested_tensor([torch.ones(1), torch.ones(2)])),
        (jagged(1, 2, rest=(3,), dim=2), jagged(1, 2, rest=(3,), dim=1)),
        (jagged(1, 2, rest=(3,), dim=2), torch.ones(2, 3, 2)),
        (torch.ones(2, 0), torch.ones(2, 3)),
        (["a", "b"], [{1, 2}, {3}]),
    ],
    ids=str,
)
def test_mixtures_are_left_to_the_general_way(new_store: NewStore, first: Any, second: Any) -> None:
    store = stored(new_store(), {"x": first, "y": torch.ones(2, 5)}, {"x": second, "y": torch.ones(2, 5)})
    for rows in (range(4), [3, 0], range(2), range(2, 4)):
        both(store.resolve(rows), allow_pickle=True)
    assert native_fields(store.resolve(range(4))) == ["y"]


def test_offsets_are_shared_by_native_and_general_columns(new_store: NewStore) -> None:
    """Rows of the general way whose lengths are those of a native column have its ragged size."""
    native = jagged(3, 1, 2)
    general = jagged(3, 1, 2, rest=(0,))  # no bytes say how long a row is: these rows have headers
    store = stored(new_store(), {"a": native, "b": general})
    resolved = store.resolve(range(3))
    assert native_fields(resolved) == ["a"]
    out = both(resolved)
    assert out["a"].offsets() is out["b"].offsets()


def test_gathered_memory_is_never_shared_by_two_live_results(new_store: NewStore) -> None:
    """Each result is filled with a number of its own; recycled memory would show another's."""
    n, row = 64, 8 * KIB  # 512 KiB a field: from the pool
    store = stored(
        new_store(), {"x": torch.zeros(n, row, dtype=torch.uint8), "y": torch.zeros(n, row, dtype=torch.uint8)}
    )
    rows = list(range(n))[::-1]
    alive: list[tuple[int, Any]] = []
    for number in range(1, 60):
        batch = decode(store.resolve(rows), mode="cow", copy_below=1, allow_pickle=False)[0]
        assert not batch["x"].any()
        assert not batch["y"].any()
        assert batch["x"].untyped_storage().nbytes() == n * row
        batch["x"].fill_(number)
        batch["y"].fill_(number + 100)
        alive.append((number, batch))
        if number % 3 == 0:
            alive.pop(number % len(alive))
        for kept, held in alive[-4:]:
            assert (held["x"] == kept).all()
            assert (held["y"] == kept + 100).all()


def test_one_tensor_kept_keeps_its_own_memory_only(new_store: NewStore) -> None:
    n, row = 64, 8 * KIB
    store = stored(new_store(), {"x": torch.ones(n, row), "y": torch.ones(n, row)})
    rows = list(range(n))[::-1]

    def read() -> Any:
        return decode(store.resolve(rows), mode="cow", copy_below=1, allow_pickle=False)[0]

    batch = read()
    kept, other = batch["x"], batch["y"].data_ptr()
    del batch
    kept.fill_(7)
    again = read()
    assert again["x"].data_ptr() == other or again["y"].data_ptr() == other  # recycled while `kept` lives
    assert (kept == 7).all()
    assert (again["x"] == 1).all()


def test_schemas_of_another_version_or_build(new_store: NewStore) -> None:
    store = new_store()
    for schema, error in (
        (b"\x92\x63\xa5dense", LayoutMismatchError),
        (b"nonsense", CorruptSegmentError),
        (forms.schema_bytes(forms.DENSE, "float128", (2,)), LayoutMismatchError),
    ):
        reservation = store.store.reserve(64, 5.0)
        layout = _native.FieldLayout("x", _native.DENSE, 0, 16, row_nbytes=8, schema=schema)
        found = store.store.publish(store.partition, count=2, reservation=reservation, fields=[layout]).indexes
        resolved = store.store.resolve(store.partition, indexes=found)
        with pytest.raises(error):
            decode(resolved, mode="cow", copy_below=1, allow_pickle=False)


def test_rows_that_are_not_what_their_schema_says(new_store: NewStore) -> None:
    store = new_store()
    dense = forms.schema_bytes(forms.DENSE, "float64", (2,))
    ragged = forms.schema_bytes(forms.JAGGED, "float64", (-1,))
    for layout in (
        _native.FieldLayout("x", _native.DENSE, 0, 24, row_nbytes=8, schema=dense),
        _native.FieldLayout("x", _native.DENSE, 0, 15, row_nbytes=5, schema=ragged),
        _native.FieldLayout("x", _native.RAGGED, 0, 8, offsets_offset=64, schema=dense),
        _native.FieldLayout("x", _native.RAGGED, 0, 8, offsets_offset=64, schema=ragged),
    ):
        reservation = store.store.reserve(128, 5.0)
        bad = torch.tensor([0, 4, 8, 8])
        reservation.copy_in([(64, bad.data_ptr(), 32)])
        found = store.store.publish(store.partition, count=3, reservation=reservation, fields=[layout]).indexes
        for indexes in (found, found[::-1].copy()):
            with pytest.raises(CorruptSegmentError, match="'x'"):
                decode(
                    store.store.resolve(store.partition, indexes=indexes), mode="cow", copy_below=1, allow_pickle=False
                )
