"""Any column, put in any number of puts: any rows of it come back as they are, in any reading mode.

Every property holds in ordinary memory (`FakeStore`, which also cuts pieces as it likes) and in the real store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tensordict import NonTensorStack

from tests.unit.codec.compare import assert_same_column, assert_same_rows, rows_of
from tests.unit.codec.fake_native import FakeResolved, FakeStore
from tests.unit.codec.general_only import GeneralOnly
from tests.unit.codec.native_store import NativeStore
from tests.unit.native.native_session import new_session
from transferqueue.codec import decode, plan_put

SETTINGS = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])

DTYPES = [
    *(torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.bool, torch.int8, torch.int16, torch.int32),
    *(torch.int64, torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.complex64, torch.complex128),
    *(torch.float8_e4m3fn, torch.float8_e5m2),
]
dtypes = st.sampled_from(DTYPES)
sizes = st.integers(0, 4)
shapes = st.lists(sizes, max_size=3).map(tuple)


def random_tensor(shape: Any, dtype: torch.dtype, seed: int) -> torch.Tensor:
    """Any bits at all: NaN patterns, denormals."""
    nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    raw = torch.from_numpy(np.random.default_rng(seed).integers(0, 256, nbytes, dtype=np.uint8))
    if dtype is torch.bool:
        raw = raw % 2
    return raw.view(dtype).view(shape) if nbytes else torch.empty(shape, dtype=dtype)


@st.composite
def dense(draw: Any, n: int) -> torch.Tensor:
    dtype, shape, seed = draw(dtypes), draw(shapes), draw(st.integers(0, 2**32))
    x = random_tensor((n, *shape), dtype, seed)
    change = draw(st.sampled_from(["none", "transposed", "strided", "expanded", "offset"]))
    if change == "transposed" and x.dim() > 1:
        return random_tensor((*shape[::-1], n), dtype, seed).permute(*range(x.dim() - 1, -1, -1))
    if change == "strided" and x.dim() > 1:
        return random_tensor((n, *shape[:-1], 2 * shape[-1]), dtype, seed)[..., ::2]
    if change == "expanded" and n:
        return x[:1].expand(n, *shape)
    return random_tensor((n + 2, *shape), dtype, seed)[2:] if change == "offset" else x


@st.composite
def jagged(draw: Any, n: int) -> torch.Tensor:
    dtype, rest, seed = draw(dtypes), draw(st.lists(sizes, max_size=2)), draw(st.integers(0, 2**32))
    lengths = draw(st.lists(st.integers(0, 5), min_size=n, max_size=n))
    holes = draw(st.lists(st.integers(0, 2), min_size=n, max_size=n)) if draw(st.booleans()) else None
    space = lengths if holes is None else [a + b for a, b in zip(lengths, holes, strict=True)]
    offsets = torch.tensor(np.concatenate(([0], np.cumsum(space))), dtype=torch.int64)
    dim = draw(st.integers(1, len(rest) + 1))
    values = random_tensor((int(offsets[-1]), *rest), dtype, seed).movedim(0, dim - 1)
    if draw(st.booleans()):
        values = values.contiguous() if dtype.itemsize > 1 else values
    return torch.nested.nested_tensor_from_jagged(
        values, offsets, torch.tensor(lengths) if holes is not None else None, jagged_dim=dim
    )


@st.composite
def strided(draw: Any, n: int) -> torch.Tensor:
    rank, dtype, seed = draw(st.integers(1, 3)), draw(dtypes), draw(st.integers(0, 2**32))
    rows = [random_tensor(draw(st.tuples(*[sizes] * rank)), dtype, seed + i) for i in range(n)]
    offsets = np.cumsum([0] + [row.numel() for row in rows])
    buffer = torch.cat([row.reshape(-1) for row in rows])
    nested = torch._nested_view_from_buffer(  # the public constructor has no fp8 and no uint16
        buffer,
        torch.tensor([list(row.shape) for row in rows]),
        torch.tensor([list(row.stride()) for row in rows]),
        torch.from_numpy(offsets[:-1].copy()),
    )
    return nested.transpose(1, 2) if rank > 1 and draw(st.booleans()) else nested


@st.composite
def tensor_rows(draw: Any, n: int) -> Any:
    rows = [random_tensor(draw(shapes), draw(dtypes), draw(st.integers(0, 2**32))) for _ in range(n)]
    return NonTensorStack(*rows) if draw(st.booleans()) else rows


plain_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=3)
    ),
    max_leaves=6,
)
array_values = st.builds(
    lambda shape, dtype, seed: random_tensor(shape, dtype, seed).numpy(),
    shapes,
    st.sampled_from([torch.float32, torch.int64, torch.bool]),
    st.integers(0, 2**32),
) | st.sampled_from([np.float64(1.5), np.str_("x\0"), np.datetime64("2020-01-01"), np.int32(7)])
rich_values = st.dictionaries(
    st.text(max_size=2), plain_values | array_values | st.builds(random_tensor, shapes, dtypes, st.integers(0, 9))
)


def value_rows(n: int) -> st.SearchStrategy[Any]:
    row = st.sampled_from([st.text(), st.text() | st.none(), plain_values, rich_values | st.none()])
    return row.flatmap(lambda each: st.lists(each, min_size=n, max_size=n))


def columns(n: int) -> st.SearchStrategy[Any]:
    return dense(n) | jagged(n) | strided(n) | tensor_rows(n) | value_rows(n)


@pytest.fixture(scope="module", params=["ordinary memory", "native store"])
def new_store(request: pytest.FixtureRequest) -> Iterator[Callable[[], Any]]:
    """Makes empty stores."""
    if request.param == "ordinary memory":
        yield FakeStore
        return
    with new_session() as session:
        store = session.attach()

        def make() -> NativeStore:
            for name in store.partitions():
                store.clear_partition(name)
            store.reclaim()
            return NativeStore(store)

        yield make
        make()
        assert store.stats()["used_bytes"] == 0  # every view of every example is gone, and its lease with it
        store.close()


def read(store: Any, chosen: list[int], merge: bool, mode: str, copy_below: int) -> Any:
    resolved = store.resolve(chosen, merge=merge)
    out, viewed, copied = decode(resolved, mode=mode, copy_below=copy_below, allow_pickle=True)
    assert out.batch_size == (len(chosen),)
    if isinstance(resolved, FakeResolved):
        assert viewed == sum(nbytes for _, _, nbytes, _ in resolved.viewed)
        assert all(shared == (mode == "shared") for *_, shared in resolved.viewed)
    else:
        general, *cost = decode(GeneralOnly(resolved), mode=mode, copy_below=copy_below, allow_pickle=True)  # type: ignore[arg-type]
        assert_same_column(out.get("x"), general.get("x"))
        assert cost == [viewed, copied]
        resolved.release()  # as the client does: what was decoded must not need it
    if mode == "copy":
        assert viewed == 0
    return out.get("x")


modes = st.sampled_from(["cow", "shared", "copy"])
thresholds = st.sampled_from([0, 1, 64, 1 << 20])


@SETTINGS
@given(data=st.data(), n=st.integers(1, 6), merge=st.booleans(), mode=modes, copy_below=thresholds)
def test_one_put(new_store: Callable[[], Any], data: Any, n: int, merge: bool, mode: str, copy_below: int) -> None:
    column = data.draw(columns(n))
    expected = rows_of(column)
    store = new_store()
    store.put(plan_put({"x": column}))
    chosen = data.draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=8))
    out = read(store, chosen, merge, mode, copy_below)
    assert_same_rows(out, [expected[row] for row in chosen])
    if isinstance(column, torch.Tensor):
        assert isinstance(out, torch.Tensor)
        assert (out.is_nested, out.layout, out.dtype) == (column.is_nested, column.layout, column.dtype)
        if column.is_nested and column.layout is torch.jagged:
            assert out._ragged_idx == column._ragged_idx
    else:
        assert isinstance(out, NonTensorStack)


@SETTINGS
@given(data=st.data(), merge=st.booleans(), mode=modes, copy_below=thresholds)
def test_several_puts_of_any_types(
    new_store: Callable[[], Any], data: Any, merge: bool, mode: str, copy_below: int
) -> None:
    store = new_store()
    expected: list[Any] = []
    for n in data.draw(st.lists(st.integers(1, 3), min_size=2, max_size=4)):
        column = data.draw(columns(n))
        store.put(plan_put({"x": column}))
        expected.extend(rows_of(column))
    chosen = data.draw(st.lists(st.integers(0, len(expected) - 1), min_size=1, max_size=10))
    assert_same_rows(read(store, chosen, merge, mode, copy_below), [expected[row] for row in chosen])


@SETTINGS
@given(data=st.data(), n=st.integers(1, 5))
def test_overwritten_rows_and_fields_side_by_side(new_store: Callable[[], Any], data: Any, n: int) -> None:
    first, second = data.draw(columns(n)), data.draw(columns(n))
    store = new_store()
    store.put(plan_put({"x": first, "y": second}))
    expected = {"x": rows_of(first), "y": rows_of(second)}
    for name in data.draw(st.lists(st.sampled_from(["x", "y"]), max_size=3)):
        rows = data.draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=n, unique=True))
        again = data.draw(columns(len(rows)))
        store.put(plan_put({name: again}), rows=rows)
        for row, value in zip(rows, rows_of(again), strict=True):
            expected[name][row] = value
    out = decode(store.resolve(range(n)), mode="cow", copy_below=1, allow_pickle=True)[0]
    for name, rows in expected.items():
        assert_same_rows(out.get(name), rows)
