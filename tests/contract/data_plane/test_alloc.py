"""Rows written in place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tensordict import NonTensorStack, TensorDict

import transferqueue as tq
from transferqueue import TransferQueueClient

pytestmark = pytest.mark.timeout(120)
LARGE = 50_000


def test_what_is_written_in_place_is_what_is_read(client: TransferQueueClient) -> None:
    spec = {"x": ((LARGE,), torch.float32), "r": tq.Jagged([1, 3, 2], torch.int64), "s": ((), torch.bool)}
    with client.alloc(spec, partition_id="p", batch_size=3) as allocation:
        allocation.data["x"][:] = torch.arange(3).unsqueeze(1)
        allocation.data["r"].values().copy_(torch.arange(6))
        allocation.data["s"].fill_(True)
        assert client.get_partition_list() == []
    found = client.get_data(allocation.meta)
    assert found["x"][:, -1].tolist() == [0, 1, 2]
    assert [row.tolist() for row in found["r"].unbind()] == [[0], [1, 2, 3], [4, 5]]
    assert found["s"].tolist() == [True] * 3
    assert found["x"].dtype == torch.float32


def test_tensors_that_outlive_the_commit_cannot_reach_the_store(client: TransferQueueClient) -> None:
    allocation = client.alloc({"x": ((LARGE,), torch.int64)}, partition_id="p", batch_size=2)
    kept = allocation.data["x"]
    kept.fill_(5)
    meta = allocation.commit()
    kept.fill_(-1)
    assert client.get_data(meta)["x"].unique().tolist() == [5]
    assert kept.unique().tolist() == [-1]
    client.clear_partition("p")
    assert kept.unique().tolist() == [-1]


def test_an_entry_of_the_data_cannot_be_exchanged_for_a_tensor_that_is_not_published(
    client: TransferQueueClient,
) -> None:
    nines = torch.full((2, 3000), 9)
    with client.alloc({"y": ((3000,), torch.int64)}, partition_id="p", batch_size=2) as allocation:
        for assign in (
            lambda: allocation.data.__setitem__("y", nines),
            lambda: allocation.data.update({"y": nines}),
            lambda: allocation.data.__setitem__("z", nines),
        ):
            with pytest.raises(RuntimeError, match="locked"):
                assign()
        allocation.data.set_("y", nines)
    assert torch.equal(client.get_data(allocation.meta)["y"], nines)


def test_an_exception_aborts_and_nothing_is_there(client: TransferQueueClient, until_freed: Callable[[], None]) -> None:
    allocation = client.alloc({"x": ((LARGE,), torch.int64)}, partition_id="p", batch_size=2)
    kept = allocation.data["x"]

    def produce(allocation: Any) -> None:
        with allocation:
            allocation.data["x"].fill_(1)
            raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        produce(allocation)
    assert client.kv_list() == {}
    filled = [client.put(TensorDict({"x": torch.full((2, LARGE), 7)}, [2]), partition_id="q") for _ in range(3)]
    kept.fill_(-1)
    for meta in filled:
        assert client.get_data(meta)["x"].unique().tolist() == [7]
    del kept, allocation
    client.clear_partition("q")
    until_freed()
    stats = client.stats()
    assert stats.pending_bytes == 0
    assert stats.used_bytes == 0


def test_by_keys_with_tags_and_further_fields(client: TransferQueueClient) -> None:
    allocation = client.alloc({"x": ((4,), torch.float32)}, partition_id="p", keys=["a", "b"])
    allocation.data["x"].fill_(2)
    extra = TensorDict({"uid": NonTensorStack("u1", "u2"), "n": torch.arange(2)}, [2])
    meta = allocation.commit(extra=extra, tags=[{"t": 1}, {}])
    assert isinstance(meta, tq.KVBatchMeta)
    assert meta.fields == ["n", "uid", "x"]
    assert meta.tags == [{"t": 1}, {}]
    found = client.kv_batch_get(["b", "a"], "p")
    assert list(found["uid"]) == ["u2", "u1"]
    assert found["n"].tolist() == [1, 0]
    assert found["x"].tolist() == [[2.0] * 4] * 2


@pytest.mark.parametrize("extra_columns", [1, 20_000])
def test_extra_fields_of_any_size_are_published_with_the_others(
    client: TransferQueueClient, extra_columns: int
) -> None:
    allocation = client.alloc({"x": ((LARGE,), torch.int64), "r": tq.Jagged([2, 1], torch.int8)}, partition_id="p")
    allocation.data["x"].copy_(torch.arange(LARGE).repeat(2, 1))
    allocation.data["r"].values().copy_(torch.tensor([1, 2, 3]))
    extra = TensorDict({"e": torch.rand(2, extra_columns), "s": NonTensorStack("one", "two")}, [2])
    found = client.get_data(allocation.commit(extra=extra))
    assert torch.equal(found["e"], extra["e"])
    assert torch.equal(found["x"], torch.arange(LARGE).repeat(2, 1))
    assert [row.tolist() for row in found["r"].unbind()] == [[1, 2], [3]]
    assert list(found["s"]) == ["one", "two"]


def test_fields_of_existing_rows(client: TransferQueueClient) -> None:
    meta = client.put(TensorDict({"x": torch.arange(3)}, [3]), partition_id="p")
    allocation = client.alloc({"y": ((2,), torch.int32)}, partition_id="p", metadata=meta)
    allocation.data["y"].copy_(torch.arange(6).reshape(3, 2))
    assert allocation.commit() is meta
    assert meta.field_names == ["x", "y"]
    assert client.get_data(meta)["y"].tolist() == [[0, 1], [2, 3], [4, 5]]


def test_rows_cleared_meanwhile_are_refused_and_leave_nothing(client: TransferQueueClient) -> None:
    meta = client.put(TensorDict({"x": torch.arange(3)}, [3]), partition_id="p")
    allocation = client.alloc({"y": ((LARGE,), torch.int64)}, partition_id="p", metadata=meta)
    client.clear_samples(meta)
    with pytest.raises(tq.StaleMetadataError):
        allocation.commit()
    with pytest.raises(RuntimeError, match="aborted"):
        allocation.commit()
    assert client.stats().pending_bytes == 0


def test_the_end_of_an_allocation_is_final(client: TransferQueueClient) -> None:
    allocation = client.alloc({"x": ((), torch.int64)}, partition_id="p", batch_size=1)
    allocation.data["x"].fill_(1)
    allocation.commit()
    for call in (allocation.commit, lambda: allocation.data):
        with pytest.raises(RuntimeError, match="committed"):
            call()
    allocation.abort()
    assert client.get_data(allocation.meta)["x"].tolist() == [1]
    other = client.alloc({"x": ((), torch.int64)}, partition_id="p", batch_size=1)
    with pytest.raises(RuntimeError, match="not committed"):
        _ = other.meta
    other.abort()
    other.abort()


def test_extra_must_fit(client: TransferQueueClient) -> None:
    for extra in (TensorDict({"x": torch.arange(2)}, [2]), TensorDict({"y": torch.arange(3)}, [3])):
        allocation = client.alloc({"x": ((), torch.int64)}, partition_id="p", batch_size=2)
        with pytest.raises(tq.SchemaMismatchError):
            allocation.commit(extra=extra)
        allocation.abort()
    assert client.stats().pending_bytes == 0


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"fields": {"x": ((2,), torch.float32)}}, ValueError),
        ({"fields": {}, "batch_size": 2}, ValueError),
        ({"fields": {"x": ((2,), torch.float32)}, "batch_size": 0}, ValueError),
        ({"fields": {"x": ((2,), "float")}, "batch_size": 2}, tq.SchemaMismatchError),
        ({"fields": {"x": ((-2,), torch.float32)}, "batch_size": 2}, tq.SchemaMismatchError),
        ({"fields": {"x": tq.Jagged([1, 2], torch.int8)}, "batch_size": 3}, tq.SchemaMismatchError),
        ({"fields": {"x": ((2,), torch.float32)}, "batch_size": 2, "keys": ["a", "b"]}, ValueError),
        ({"fields": {"x": ((2,), torch.float32)}, "keys": ["a", "a"]}, ValueError),
    ],
)
def test_wrong_descriptions_are_refused(client: TransferQueueClient, arguments: dict[str, Any], error: Any) -> None:
    with pytest.raises(error):
        client.alloc(**arguments, partition_id="p")
    assert client.stats().pending_bytes == 0


def test_a_loop_over_the_same_extent_never_writes_to_what_it_published(client: TransferQueueClient) -> None:
    spec = {"x": ((LARGE,), torch.int64)}
    held: list[Any] = []
    for step in range(6):
        allocation = client.alloc(spec, partition_id="p", batch_size=2)
        allocation.data["x"].fill_(step)
        meta = allocation.commit()
        held.append((step, meta, client.get_data(meta)["x"]))
        if step % 2:  # room for the next, of an extent that this process has written to before
            earlier, gone, _ = held.pop(0)
            client.clear_samples(gone)
            assert earlier < step
    for step, meta, view in held:
        assert view.unique().tolist() == [step]
        assert client.get_data(meta)["x"].unique().tolist() == [step]


def test_a_description_that_changes_between_two_calls_is_seen(client: TransferQueueClient) -> None:
    spec: dict[str, Any] = {"x": ((2,), torch.int64)}
    first = client.alloc(spec, partition_id="p", batch_size=2)
    again = client.alloc(spec, partition_id="p", batch_size=2)
    longer = client.alloc(spec, partition_id="p", batch_size=3)
    spec["y"] = ((), torch.float32)
    more = client.alloc(spec, partition_id="p", batch_size=3)
    spec["x"] = ((4,), torch.int64)
    wider = client.alloc(spec, partition_id="p", batch_size=3)
    turned = client.alloc(dict(reversed(spec.items())), partition_id="p", batch_size=3)
    ragged: dict[str, Any] = {"r": tq.Jagged([1, 2], torch.int64)}
    jagged = client.alloc(ragged, partition_id="p")
    ragged["r"].lengths[:] = 3
    changed = client.alloc(ragged, partition_id="p")
    shapes = [{name: tuple(value.shape) for name, value in one.data.items()} for one in (first, again, longer)]
    assert shapes == [{"x": (2, 2)}, {"x": (2, 2)}, {"x": (3, 2)}]
    assert {name: tuple(value.shape) for name, value in more.data.items()} == {"x": (3, 2), "y": (3,)}
    assert tuple(wider.data["x"].shape) == (3, 4)
    assert list(turned.data.keys()) == ["y", "x"]
    assert [row.numel() for one in (jagged, changed) for row in one.data["r"].unbind()] == [1, 2, 3, 3]
    for allocation in (first, again, longer, more, wider, turned, jagged, changed):
        allocation.abort()


def test_rows_that_metadata_names_twice_are_refused(client: TransferQueueClient) -> None:
    meta = client.put(TensorDict({"x": torch.arange(4)}, [4]), partition_id="p")
    backwards = meta.select_samples([3, 1, 0])
    with client.alloc({"y": ((), torch.int64)}, partition_id="p", metadata=backwards) as allocation:
        allocation.data["y"].copy_(torch.tensor([30, 10, 0]))
    assert client.get_data(meta.select_samples([0, 1, 3]), fields="y")["y"].tolist() == [0, 10, 30]
    twice = meta.select_samples([2, 0, 2])
    with pytest.raises(ValueError, match="names rows twice"):
        client.alloc({"y": ((), torch.int64)}, partition_id="p", metadata=twice)
    with pytest.raises(ValueError, match="names rows twice"):
        client.put(TensorDict({"y": torch.arange(3)}, [3]), metadata=twice)


def test_metadata_of_new_rows_is_like_any_other(client: TransferQueueClient) -> None:
    with client.alloc({"x": ((2,), torch.int64)}, partition_id="p", batch_size=3) as allocation:
        allocation.data["x"].fill_(1)
    for meta in (allocation.meta, client.put(TensorDict({"x": torch.ones(3, 2)}, [3]), partition_id="p")):
        assert meta.is_ready
        assert meta.production_status.tolist() == [1, 1, 1]
        assert meta.custom_meta == [{}, {}, {}]
        assert meta.partition_ids == ["p"] * 3
        assert not meta.index_array.flags.writeable
        assert meta[1:].global_indexes == meta.global_indexes[1:]
        meta.production_status[0] = 0
        assert not meta.is_ready
    assert allocation.meta.extra_info == {}
