"""Reading: what is viewed, what is copied, and how much memory a tensor that was read drags along."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from tensordict import TensorDict

from tests.unit.codec.compare import assert_same_rows, jagged, same
from tests.unit.codec.fake_native import FakeStore
from tests.unit.codec.native_store import NativeStore
from tests.unit.native.native_session import new_session
from transferqueue.codec import decode, decode_empty, plan_put
from transferqueue.errors import CorruptSegmentError, FieldNotReadyError

KIB = 1 << 10


def read(resolved: Any, **options: Any) -> tuple[Any, int, int]:
    return decode(resolved, **{"mode": "cow", "copy_below": 1, "allow_pickle": False, **options})


def stored(batch: Any) -> FakeStore:
    store = FakeStore()
    store.put(plan_put(batch))
    return store


def test_one_stretch_from_the_threshold_on_is_viewed_and_everything_else_copied() -> None:
    store = stored({"x": torch.arange(64.0).view(16, 4)})
    for rows, copy_below, viewed in (
        (range(16), 256, 256),
        (range(16), 257, 0),
        (range(4, 8), 64, 64),
        ([4, 5, 7], 1, 0),
        ([1, 0], 1, 0),
        ([3], 16, 16),
    ):
        out, was_viewed, was_copied = read(store.resolve(rows), copy_below=copy_below)
        assert (was_viewed, was_copied) == (viewed, 16 * len(rows) - viewed)
        assert same(out["x"], torch.arange(64.0).view(16, 4)[list(rows)])


def test_modes() -> None:
    store = stored({"x": torch.ones(16, 4), "j": jagged(*range(16))})
    for mode, shared in (("cow", False), ("shared", True)):
        resolved = store.resolve(range(16))
        read(resolved, mode=mode)
        assert [how for *_, how in resolved.viewed] == [shared, shared]
    resolved = store.resolve(range(16))
    assert read(resolved, mode="copy")[1] == 0
    assert not resolved.viewed


def test_without_a_further_mapping_it_copies() -> None:
    batch = {"x": torch.arange(16), "j": jagged(*range(16)), "t": [torch.ones(i) for i in range(16)]}
    resolved = stored(batch).resolve(range(16))
    resolved.mappings_fail = True
    out, viewed, copied = read(resolved)
    assert viewed == 0
    assert copied > 0
    assert same(out["x"], batch["x"])
    assert_same_rows(out["j"], batch["j"].unbind())  # type: ignore[union-attr]
    assert_same_rows(out.get("t"), batch["t"])  # type: ignore[arg-type]


def test_chosen_fields_in_their_order_and_fields_that_are_not_there() -> None:
    store = stored({"a": torch.ones(3), "b": torch.zeros(3), "c": ["x", "y", "z"]})
    assert list(read(store.resolve(range(3)), fields=["c", "a"])[0].keys()) == ["c", "a"]
    assert read(store.resolve(range(3)), fields=[])[0].batch_size == (3,)
    with pytest.raises(FieldNotReadyError, match="'nope'") as caught:
        read(store.resolve(range(3)), fields=["a", "nope"])
    assert caught.value.fields == ("nope",)
    store.put(plan_put({"a": torch.ones(2)}))
    with pytest.raises(FieldNotReadyError, match=r"'b'.*2 of 4 rows") as caught:
        read(store.resolve([1, 3, 2, 4]), fields=["a", "b"])
    assert caught.value.rows == (3, 4)


def test_fields_of_equal_lengths_share_their_ragged_size() -> None:
    """A mask on log-probs, both jagged: torch refuses jagged tensors whose offsets are different objects."""
    offsets = torch.tensor([0, 2, 5, 9])
    mask = torch.nested.nested_tensor_from_jagged((torch.arange(9) % 2).float(), offsets)
    values = torch.nested.nested_tensor_from_jagged(torch.arange(9.0), offsets)
    other = jagged(1, 1, 1)
    store = stored({"mask": mask, "values": values, "other": other})
    for rows in ([0, 1, 2], [2, 0]):
        out = read(store.resolve(rows))[0]
        assert_same_rows(out["mask"] * out["values"], [(mask * values).unbind()[row] for row in rows])
    assert out["other"].offsets().tolist() == [0, 1, 2]


def test_jagged_columns_know_their_shortest_and_longest_row() -> None:
    out = read(stored({"j": jagged(3, 1, 7)}).resolve([2, 1]))[0]["j"]
    assert (out._min_seqlen, out._max_seqlen) == (1, 7)
    assert set(out._metadata_cache) >= {"min_seqlen", "max_seqlen"}


def test_offsets_that_contradict_themselves() -> None:
    for position, wrong in ((1, 10**12), (1, -8), (0, -8), (3, 10**9)):
        store = stored({"j": jagged(3, 1, 7)})
        block = store.blocks[0]
        at = block.layouts["j"].offsets_offset
        block.memory.bytes[at : at + 32].view(np.int64)[position] = wrong
        with pytest.raises(CorruptSegmentError, match="'j'"):
            read(store.resolve(range(3)))


def test_rows_that_contradict_themselves() -> None:
    def spoil(batch: Any, offset: int, value: int) -> FakeStore:
        store = stored(batch)
        block = store.blocks[0]
        block.memory.bytes[block.layouts["x"].data_offset + offset] = value
        return store

    for store in (
        spoil({"x": [torch.ones(1), torch.ones(2)]}, 0, 250),  # dtype number
        spoil({"x": [torch.ones(1), torch.ones(2)]}, 1, 200),  # rank
        spoil({"x": [torch.ones(1), torch.ones(2)]}, 9, 77),  # size
        spoil({"x": [(1,), (2,)]}, 4, 255),  # number of buffers
        spoil({"x": [(1,), (2,)]}, 9, 255),  # skeleton size
        spoil({"x": [(1,), (2,)]}, 16, 0xC1),  # msgpack's one byte without a meaning
        spoil({"x": [(torch.ones(1),), (2,)]}, 24 - 3, 255),  # a buffer's place
    ):
        with pytest.raises(CorruptSegmentError):
            read(store.resolve(range(2)))
    store = spoil({"x": ["aa", "bb"]}, 0, 0xC1)
    with pytest.raises(CorruptSegmentError, match="'x'"):  # plain values are read when they are looked at
        list(read(store.resolve(range(2)))[0]["x"])


def test_no_rows() -> None:
    assert read(stored({"x": torch.ones(2)}).resolve([]))[0].batch_size == (0,)
    assert decode_empty({}).batch_size == (0,)
    out = decode_empty({"s": {"dtype": "torch.float64", "shape": [2, -1], "is_nested": True, "is_non_tensor": False}})
    assert (out["s"].size(0), out["s"]._ragged_idx, out["s"].dtype) == (0, 2, torch.float64)


@pytest.fixture(scope="module")
def native() -> Iterator[Callable[[], NativeStore]]:
    with new_session() as session:
        store = session.attach()
        yield lambda: NativeStore(store)
        store.close()


def test_a_view_drags_along_its_own_rows_and_nothing_else(native: Callable[[], NativeStore]) -> None:
    rows = 64
    batch = {
        "dense": torch.rand(rows, 4 * KIB),
        "jagged": jagged(*[KIB + i for i in range(rows)]),
        "strided": torch.nested.nested_tensor([torch.rand(2 + i % 3, KIB) for i in range(rows)]),
        "stack": [torch.rand(KIB + i) for i in range(rows)],
        "objects": [{"t": torch.rand(2 * KIB), "a": np.random.rand(KIB)} for _ in range(rows)],
    }
    store = native()
    store.put(plan_put(batch))
    part = range(8, 16)
    out, _, copied = read(store.resolve(part), copy_below=4 * KIB)
    assert copied == 0
    sizes = {
        "dense": 8 * 16 * KIB,
        "jagged": 4 * sum(KIB + i for i in part),
        "strided": 4 * sum((2 + i % 3) * KIB for i in part),
        "stack": 4 * sum(KIB + i for i in part),
        "objects": 8 * 16 * KIB,
    }
    for name, nbytes in sizes.items():
        assert storage_nbytes(out.get(name)) == nbytes, name
        for carried in (pickle.dumps(out.get(name)), saved(out.get(name))):
            assert nbytes <= len(carried) < nbytes + 40 * KIB, name
        if name != "strided":  # torch cannot deepcopy those, wherever they come from
            assert storage_nbytes(copy.deepcopy(out.get(name))) == nbytes
    single = out.get("stack").tolist()[3]
    assert single.untyped_storage().nbytes() == 4 * (KIB + 11)
    assert len(pickle.dumps(single)) < 4 * (KIB + 11) + KIB
    again = pickle.loads(pickle.dumps(out))
    assert same(again["dense"], batch["dense"][8:16])  # type: ignore[call-overload]
    assert_same_rows(again["jagged"], batch["jagged"].unbind()[8:16])  # type: ignore[union-attr]
    assert_same_rows(again.get("objects"), batch["objects"][8:16])  # type: ignore[arg-type]


def storage_nbytes(column: Any) -> int:
    if isinstance(column, torch.Tensor):
        if not column.is_nested:
            return column.untyped_storage().nbytes()
        return (column._values if column.layout is torch.jagged else column.values()).untyped_storage().nbytes()  # type: ignore[attr-defined]
    total = 0
    for row in column.tolist():
        if isinstance(row, dict):
            base = row["a"]
            total += row["t"].untyped_storage().nbytes() + base.nbytes
        else:
            total += row.untyped_storage().nbytes()
    return total


def saved(value: Any) -> bytes:
    stream = io.BytesIO()
    torch.save(value, stream)
    return stream.getvalue()


def test_views_are_private_and_writable_and_end_with_their_tensors(native: Callable[[], NativeStore]) -> None:
    store = native()
    batch = {
        "x": torch.zeros(64, KIB),
        "j": jagged(*[KIB] * 64),
        "o": [{"t": torch.zeros(2 * KIB)} for _ in range(64)],
        "t": [torch.zeros(KIB + i) for i in range(64)],
    }
    store.put(plan_put(batch))
    for mode in ("cow", "copy"):
        out = read(store.resolve(range(64)), mode=mode, copy_below=4 * KIB)[0]
        out["x"] += 1
        out["j"].values().fill_(7)
        out["o"][5]["t"].fill_(7)
        out["t"][5].fill_(7)
        again = read(store.resolve(range(64)), mode=mode, copy_below=4 * KIB)[0]
        assert (again["x"] == 0).all()
        assert_same_rows(again["j"], batch["j"].unbind())  # type: ignore[union-attr]
        assert (again["o"][5]["t"] == 0).all()
        assert (again["t"][5] == 0).all()
        assert (out["x"] == 1).all()
        assert (out["o"][5]["t"] == 7).all()
        resolved = store.resolve(range(64))
        kept = read(resolved, mode=mode, copy_below=4 * KIB)[0]
        resolved.release()
        leased = store.store.stats()["leased_bytes"]
        assert (leased > 0) == (mode == "cow")
        del out, again, kept, resolved
        assert store.store.stats()["leased_bytes"] == 0  # without a collection: no cycle holds a view


def test_batches_with_an_extra_field_of_text_stay_lazy(native: Callable[[], NativeStore]) -> None:
    store = native()
    store.put(plan_put(TensorDict({"u": [f"u{i}" for i in range(8)]}, [8])))
    resolved = store.resolve([3, 1])
    out = read(resolved)[0]
    resolved.release()
    store.store.clear_partition(store.partition)
    store.store.reclaim()
    assert list(out["u"]) == ["u3", "u1"]
