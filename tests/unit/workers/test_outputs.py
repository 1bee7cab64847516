"""`alloc_outputs`: published without a copy where the method's outputs are stored, ordinary tensors everywhere else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tensordict import NonTensorData, NonTensorStack, TensorDict

from tests.unit.workers.fake_client import SESSION, FakeClient
from transferqueue.codec import Jagged
from transferqueue.errors import SchemaMismatchError
from transferqueue.metadata import BatchMeta, KVBatchMeta
from transferqueue.workers import (
    Dispatch,
    Worker,
    alloc_outputs,
    async_alloc_outputs,
    make_nd_compute_dataproto_dispatch_fn,
    register,
    tqbridge,
)

FIELDS: dict[Any, Any] = {"y": ((2,), torch.float32)}


def put_rows(client: FakeClient, rows: int = 4) -> BatchMeta:
    return client.put_keys([f"k{i}" for i in range(rows)], TensorDict({"x": torch.arange(rows)}, [rows]), "train")


def compute(batch: TensorDict) -> TensorDict:
    """What every test's method does: y[i] = x[i], computed in place."""
    out = alloc_outputs(FIELDS)
    assert out.batch_size == batch.batch_size
    out["y"].copy_(batch["x"][:, None].expand(-1, 2))
    return out


EXPECTED = [[float(row)] * 2 for row in range(4)]


@tqbridge()
def in_place(batch: TensorDict) -> TensorDict:
    return compute(batch)


def test_what_was_handed_out_is_committed_and_nobody_holds_it_then(client: FakeClient) -> None:
    meta = put_rows(client)
    client.calls.clear()
    result = in_place(meta)
    assert client.calls == ["get", "alloc", "commit", "put"]
    assert client.stored[-1] == (meta.global_indexes, ["y"])
    assert client.column(result, "y") == EXPECTED
    assert result.field_names == ["x", "y"]
    assert result.is_ready
    assert meta.field_names == ["x"], "the caller's own metadata is not changed"


def test_metadata_by_keys_comes_back_by_keys(client: FakeClient) -> None:
    meta = put_rows(client)
    keyed = KVBatchMeta(
        keys=["k3", "k1"], tags=[{"n": 3}, {"n": 1}], partition_id="train", fields=["x"], session=SESSION
    )
    result = in_place(keyed)
    assert isinstance(result, KVBatchMeta)
    assert (result.keys, result.tags, result.fields) == (["k3", "k1"], [{"n": 3}, {"n": 1}], ["x", "y"])
    assert client.column(meta.select_samples([3, 1]), "y") == [EXPECTED[3], EXPECTED[1]]


def test_fields_beside_are_published_together_and_values_of_the_batch_become_extra_info(client: FakeClient) -> None:
    @tqbridge()
    def method(batch: TensorDict) -> TensorDict:
        mine = compute(batch)
        names = NonTensorStack(*(f"n{i}" for i in range(4)))
        out = TensorDict({"name": names, "y": mine["y"]}, batch.batch_size)
        out["loss"] = NonTensorData(0.5)
        return out

    result = method(put_rows(client))
    assert client.calls.count("put") == 2, "one for the rows, one for both fields"
    assert client.stored[-1][1] == ["name", "y"]
    assert client.column(result, "name") == ["n0", "n1", "n2", "n3"]
    assert result.extra_info == {"loss": 0.5}


def replaced(out: TensorDict) -> TensorDict:
    out["y"] = out["y"].clone()
    return out


def part(out: TensorDict) -> TensorDict:
    return TensorDict({"y": out["y"]}, out.batch_size)


def reshaped(out: TensorDict) -> TensorDict:
    return TensorDict({"y": out["y"].view(4, 1, 2)[:, 0], "z": out["z"].view(torch.int32)}, out.batch_size)


@pytest.mark.parametrize(("change", "stored"), [(replaced, ["y", "z"]), (part, ["y"]), (reshaped, ["y", "z"])])
def test_what_is_not_what_was_handed_out_is_copied_and_the_room_given_back(
    client: FakeClient, change: Callable[[TensorDict], TensorDict], stored: list[str]
) -> None:
    @tqbridge()
    def method(batch: TensorDict) -> TensorDict:
        out = alloc_outputs({**FIELDS, "z": ((), torch.float32)})
        out["y"].copy_(batch["x"][:, None].expand(-1, 2))
        out["z"].zero_()
        return change(out)

    meta = put_rows(client)
    client.calls.clear()
    result = method(meta)
    assert client.calls == ["get", "alloc", "put", "abort"]
    assert client.stored[-1] == (meta.global_indexes, stored)
    assert client.column(result, "y") == EXPECTED


def test_the_same_memory_under_another_object_is_what_was_handed_out(client: FakeClient) -> None:
    fields = {"y": ((2,), torch.float32), "j": Jagged([1, 0, 2, 1], torch.int64)}

    @tqbridge()
    def method(batch: TensorDict) -> TensorDict:
        out = alloc_outputs(fields)
        out["y"].copy_(batch["x"][:, None].expand(-1, 2))
        out["j"].values().copy_(torch.arange(4))
        j = torch.nested.nested_tensor_from_jagged(out["j"].values(), offsets=out["j"].offsets().clone())
        return TensorDict({"y": out["y"].detach(), "j": j}, [4])

    result = method(put_rows(client)[:])
    assert [call for call in client.calls if call.startswith(("commit", "abort"))] == ["commit"]
    assert client.column(result, "j") == [[0], [], [1, 2], [3]]


@pytest.mark.parametrize("output", [None, 3, {"loss": 1.0}])
def test_what_is_not_returned_is_given_back(client: FakeClient, output: Any) -> None:
    @tqbridge()
    def method(batch: TensorDict) -> Any:
        compute(batch)
        return output

    meta = put_rows(client)
    client.calls.clear()
    method(meta)
    assert client.calls == ["get", "alloc", "abort"]


def test_an_exception_gives_the_room_back_at_once(client: FakeClient) -> None:
    @tqbridge()
    def method(batch: TensorDict) -> None:
        compute(batch)
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine") as raised:
        method(put_rows(client))
    assert client.calls[-1] == "abort", "although the traceback still holds the method's frame"
    assert raised.value.args == ("mine",)


def test_a_method_that_raises_stop_iteration_is_not_taken_for_done(client: FakeClient) -> None:
    @tqbridge()
    def method(batch: TensorDict) -> None:
        next(iter([]))

    with pytest.raises(StopIteration):
        method(put_rows(client))


class Meshed(Worker):
    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn("actor"))
    def compute(self, batch: TensorDict) -> TensorDict:
        return compute(batch)

    @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO)
    async def later(self, batch: TensorDict) -> TensorDict:
        out = await async_alloc_outputs(FIELDS)
        await asyncio.sleep(0)
        out["y"].copy_(batch["x"][:, None].expand(-1, 2))
        return out

    @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO)
    def through_another(self, batch: TensorDict) -> TensorDict:
        half: TensorDict = self.half(batch[:2])
        assert half["y"].shape == (2, 2)
        return compute(batch)

    @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO)
    def half(self, batch: TensorDict) -> TensorDict:
        return alloc_outputs(FIELDS, batch_size=batch.batch_size)


def test_a_rank_that_does_not_collect_gets_private_tensors(client: FakeClient) -> None:
    worker = Meshed()
    worker._register_dispatch_collect_info("actor", dp_rank=0, is_collect=False)
    meta = put_rows(client)
    client.calls.clear()
    assert worker.compute(meta).size == 0
    assert client.calls == ["get"]


@pytest.mark.parametrize("kind", ["padded", "two partitions", "empty"])
def test_where_the_rows_are_not_stored_as_they_are_outputs_are_copied(client: FakeClient, kind: str) -> None:
    meta = put_rows(client, 3)
    other = client.put(TensorDict({"x": torch.tensor([3])}, [1]), partition_id="other")
    wanted = {"padded": meta.pad_to_divisor(2), "two partitions": BatchMeta.concat([meta, other]), "empty": meta[:0]}
    client.calls.clear()
    result = in_place(wanted[kind])
    assert "alloc" not in client.calls
    assert client.column(result, "y") == EXPECTED[: result.size]
    assert result.size == {"padded": 3, "two partitions": 4, "empty": 0}[kind]


def test_coroutines(client: FakeClient) -> None:
    async def both() -> list[BatchMeta]:
        worker = Meshed()
        return list(await asyncio.gather(worker.later(first), worker.later(second)))

    first, second = put_rows(client), client.put(TensorDict({"x": torch.arange(4, 8)}, [4]), partition_id="train")
    client.calls.clear()
    results = asyncio.run(both())
    assert client.column(results[0], "y") == EXPECTED, "each task has the rows of its own call"
    assert client.column(results[1], "y") == [[float(row)] * 2 for row in range(4, 8)]
    assert client.calls.count("commit") == 2
    assert "abort" not in client.calls


def test_a_call_without_metadata_gets_private_tensors(client: FakeClient) -> None:
    worker = Meshed()
    assert worker.half(TensorDict({"x": torch.arange(3)}, [3]))["y"].shape == (3, 2)
    assert asyncio.run(worker_later_by_value()).shape == (2, 2)
    assert worker.through_another(put_rows(client)).field_names == ["x", "y"]
    assert client.calls.count("alloc") == 1, "the inner call was one of its own, without metadata"
    assert alloc_outputs({"j": Jagged([1, 2], torch.int8)})["j"].size(0) == 2


async def worker_later_by_value() -> torch.Tensor:
    made: torch.Tensor = (await async_alloc_outputs(FIELDS, batch_size=2))["y"]
    return made


def test_rows_and_calls_that_do_not_fit_are_refused(client: FakeClient) -> None:
    with pytest.raises(SchemaMismatchError, match="how many rows"):
        alloc_outputs(FIELDS)
    with pytest.raises(SchemaMismatchError, match="one number of rows"):
        alloc_outputs(FIELDS, batch_size=(2, 3))

    @tqbridge()
    def wrong_rows(batch: TensorDict) -> None:
        with pytest.raises(SchemaMismatchError, match="5 rows; the first metadata argument has 4"):
            alloc_outputs(FIELDS, batch_size=5)

    @tqbridge()
    def twice(batch: TensorDict) -> TensorDict:
        alloc_outputs(FIELDS)
        with pytest.raises(RuntimeError, match="all fields in one call"):
            alloc_outputs({"z": ((), torch.int8)})
        return TensorDict({}, [4])

    meta = put_rows(client)
    wrong_rows(meta)
    twice(meta)
    assert client.calls[-1] == "abort"
