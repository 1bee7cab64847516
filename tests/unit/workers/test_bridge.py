"""`tqbridge`: what a method sees and what its caller gets back."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
import torch
from tensordict import NonTensorData, NonTensorStack, TensorDict

from tests.unit.workers.fake_client import SESSION, FakeClient
from transferqueue.errors import FieldNotReadyError, KeyNotFoundError, SchemaMismatchError
from transferqueue.metadata import BatchMeta, KVBatchMeta
from transferqueue.workers import Dispatch, Worker, make_nd_compute_dataproto_dispatch_fn, register, tqbridge


def put_rows(client: FakeClient, rows: int = 4, keys: bool = False) -> BatchMeta:
    batch = TensorDict(
        {"x": torch.arange(rows), "uid": NonTensorStack(*(NonTensorData(f"u{i}") for i in range(rows)))}, [rows]
    )
    return client.put_keys([f"k{i}" for i in range(rows)], batch, "train") if keys else client.put(batch, None, "train")


def kv_meta(rows: int = 4, fields: list[str] | None = None) -> KVBatchMeta:
    return KVBatchMeta(
        keys=[f"k{i}" for i in range(rows)],
        tags=[{"n": i} for i in range(rows)],
        partition_id="train",
        fields=fields,
        extra_info={"step": 7},
        session=SESSION,
    )


@tqbridge()
def plus_one(batch: TensorDict) -> TensorDict:
    return TensorDict({"y": batch["x"] + 1}, batch_size=batch.batch_size)


def test_a_method_sees_a_tensordict_and_the_caller_gets_metadata_with_the_new_fields(client: FakeClient) -> None:
    meta = put_rows(client)
    result = plus_one(meta)
    assert isinstance(result, BatchMeta)
    assert result.global_indexes == meta.global_indexes
    assert result.field_names == ["uid", "x", "y"]
    assert result.is_ready
    assert client.column(result, "y") == [1, 2, 3, 4]
    assert client.stored[-1] == (meta.global_indexes, ["y"]), "only what the method returned is written"
    assert meta.field_names == ["uid", "x"], "the caller's own metadata is not changed"


def test_rows_keep_the_callers_order(client: FakeClient) -> None:
    meta = put_rows(client)
    meta.reorder([3, 1, 0, 2])
    result = plus_one(meta)
    assert result.global_indexes == [3, 1, 0, 2]
    assert client.column(result, "y") == [4, 2, 1, 3]


def test_only_the_fields_that_the_metadata_names_are_seen(client: FakeClient) -> None:
    seen: list[set[str]] = []

    @tqbridge()
    def look(batch: TensorDict) -> None:
        seen.append(set(batch.keys()))

    look(put_rows(client, keys=True).select_fields(["x"]))
    look(kv_meta(fields=["uid"]))
    look(kv_meta())
    assert seen == [{"x"}, {"uid", "step"}, {"x", "uid", "step"}]


def test_metadata_by_keys_comes_back_by_keys(client: FakeClient) -> None:
    put_rows(client, keys=True)
    meta = kv_meta(fields=["x"])
    meta.reorder([2, 0, 3, 1])
    result = plus_one(meta)
    assert isinstance(result, KVBatchMeta)
    assert result.keys == ["k2", "k0", "k3", "k1"]
    assert result.tags == [{"n": 2}, {"n": 0}, {"n": 3}, {"n": 1}]
    assert result.partition_id == "train"
    assert result.session == SESSION
    assert result.fields == ["x", "y"]
    assert client.column(client.kv_retrieve_meta(result.keys, "train"), "y") == [3, 1, 4, 2]


def test_keys_and_fields_that_are_not_there_are_named(client: FakeClient) -> None:
    put_rows(client, rows=2, keys=True)
    with pytest.raises(KeyNotFoundError, match="k2"):
        plus_one(kv_meta())
    with pytest.raises(FieldNotReadyError, match="'nope'"):
        plus_one(kv_meta(rows=2, fields=["nope"]))


def test_rows_of_several_partitions_are_written_partition_by_partition(client: FakeClient) -> None:
    mixed = BatchMeta.concat(
        [put_rows(client, 2), client.put(TensorDict({"x": torch.arange(2) + 10}, [2]), None, "val")], validate=False
    )
    mixed = mixed.select_fields(["x"])
    mixed.reorder([2, 0, 3, 1])
    result = plus_one(mixed)
    assert result.global_indexes == mixed.global_indexes
    assert (result.field_names, result.is_ready) == (["x", "y"], True)
    assert client.column(result, "y") == [11, 1, 12, 2]
    assert [indexes for indexes, _ in client.stored[-2:]] == [[2, 3], [0, 1]]


def test_a_failing_method_is_logged_too(client: FakeClient, caplog: pytest.LogCaptureFixture) -> None:
    @tqbridge()
    def broken(batch: TensorDict) -> None:
        raise ZeroDivisionError

    with caplog.at_level(logging.INFO, logger="transferqueue"), pytest.raises(ZeroDivisionError):
        broken(put_rows(client))
    assert [record.getMessage().split()[0].rpartition(".")[2] for record in caplog.records] == ["broken"]


def test_extra_info_is_seen_as_non_tensor_entries(client: FakeClient) -> None:
    seen: list[Any] = []

    @tqbridge()
    def look(batch: TensorDict) -> None:
        seen.append((batch["temperature"], batch["config"]["lr"], tuple(batch.batch_size)))

    meta = put_rows(client)
    meta.extra_info = {"temperature": 0.7, "config": {"lr": 1e-3}}
    look(meta)
    look(meta[:0])
    look(BatchMeta.empty({"temperature": 0.7, "config": {"lr": 1e-3}}))
    assert seen == [(0.7, 1e-3, (4,)), (0.7, 1e-3, (0,)), (0.7, 1e-3, (0,))]


def test_extra_info_with_the_name_of_a_field_is_refused(client: FakeClient) -> None:
    meta = put_rows(client)
    meta.extra_info = {"x": 1}
    with pytest.raises(SchemaMismatchError, match="'x' has the name of a field"):
        plus_one(meta)


def test_non_tensor_entries_of_the_output_replace_extra_info(client: FakeClient) -> None:
    @tqbridge()
    def loss(batch: TensorDict) -> TensorDict:
        output = TensorDict({"y": batch["x"] * 2}, batch_size=batch.batch_size)
        output["loss"] = NonTensorData(0.5)
        return output

    meta = put_rows(client)
    meta.extra_info = {"step": 3}
    result = loss(meta)
    assert result.extra_info == {"loss": 0.5}
    assert "loss" not in result.field_names
    assert meta.extra_info == {"step": 3}


def test_a_dict_becomes_extra_info_and_nothing_is_written(client: FakeClient) -> None:
    @tqbridge()
    def metrics(batch: TensorDict) -> dict[str, float]:
        return {"mean": float(batch["x"].float().mean())}

    meta = put_rows(client)
    writes = len(client.stored)
    result = metrics(meta)
    assert isinstance(result, BatchMeta)
    assert result.extra_info == {"mean": 1.5}
    assert result.global_indexes == meta.global_indexes
    assert len(client.stored) == writes


def test_a_string_column_of_equal_values_stays_a_column(client: FakeClient) -> None:
    @tqbridge()
    def relabel(batch: TensorDict) -> TensorDict:
        return TensorDict({"uid": NonTensorData("same", batch_size=batch.batch_size)}, batch_size=batch.batch_size)

    result = relabel(put_rows(client))
    assert client.column(result, "uid") == ["same"] * 4
    assert result.extra_info == {}


@pytest.mark.parametrize("value", [None, 3, 2.5, "done", [1, 2], torch.ones(2)])
def test_other_outputs_pass_through(client: FakeClient, value: Any) -> None:
    @tqbridge()
    def give(batch: TensorDict) -> Any:
        return value

    assert give(put_rows(client)) is value


def test_other_arguments_pass_through_beside_metadata(client: FakeClient) -> None:
    @tqbridge()
    def scale(self: object, factor: int, batch: TensorDict, *, other: TensorDict, name: str) -> TensorDict:
        assert name == "n"
        return TensorDict({"y": batch["x"] * factor + other["x"]}, batch_size=batch.batch_size)

    first, second = put_rows(client), put_rows(client)
    result = scale(object(), 10, first, other=second, name="n")
    assert result.global_indexes == first.global_indexes, "outputs go to the rows of the first metadata argument"
    assert client.column(result, "y") == [0, 11, 22, 33]


def test_metadata_by_keyword_only(client: FakeClient) -> None:
    @tqbridge()
    def named(self: object, batch: TensorDict) -> TensorDict:
        return TensorDict({"y": batch["x"]}, batch_size=batch.batch_size)

    assert client.column(named(object(), batch=put_rows(client)), "y") == [0, 1, 2, 3]


def test_without_metadata_the_function_is_called_straight_through(client: FakeClient) -> None:
    batch = TensorDict({"x": torch.arange(2)}, [2])
    assert plus_one(batch)["y"].tolist() == [1, 2]
    assert client.calls == []


def test_a_wrong_row_count_names_method_rank_and_both_sizes(
    client: FakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Short(Worker):
        @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO)
        def halve(self, batch: TensorDict) -> TensorDict:
            return TensorDict({"y": batch["x"][:2]}, [2])

        @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO)
        def shapeless(self, batch: TensorDict) -> TensorDict:
            return TensorDict({"y": batch["x"]}, [])

    monkeypatch.setenv("RANK", "3")
    writes = len(client.stored)
    with pytest.raises(SchemaMismatchError, match=r"Short.halve on rank 3 returned 2 rows for a batch of 4") as caught:
        Short().halve(put_rows(client))
    assert (caught.value.expected, caught.value.found) == (4, 2)
    with pytest.raises(SchemaMismatchError, match=r"Short.shapeless on rank 3 .*without a batch dimension.* 4 rows"):
        Short().shapeless(put_rows(client))
    assert len(client.stored) == writes + 2, "nothing but the inputs was written"


def test_empty_batches_are_run_and_nothing_is_written(client: FakeClient) -> None:
    meta = put_rows(client)[:0]
    writes = len(client.stored)
    result = plus_one(meta)
    assert result.size == 0
    assert len(client.stored) == writes


def test_a_rank_without_keys_sees_the_columns_of_the_partition(client: FakeClient) -> None:
    put_rows(client, rows=2, keys=True)
    for fields in (["x"], None):
        pieces = kv_meta(rows=2, fields=fields).chunk(4)
        results = [plus_one(piece) for piece in pieces]
        assert [result.keys for result in results] == [["k0"], ["k1"], [], []]


def test_padded_rows_are_seen_but_not_stored(client: FakeClient) -> None:
    seen: list[list[int]] = []

    @tqbridge()
    def square(batch: TensorDict) -> TensorDict:
        seen.append(batch["x"].tolist())
        return TensorDict({"y": batch["x"] ** 2, "uid": batch.get("uid")}, batch_size=batch.batch_size)

    meta = put_rows(client, rows=5).pad_to_divisor(4)
    result = square(meta)
    assert seen == [[0, 1, 2, 3, 4, 4, 4, 4]]
    assert (result.size, result.num_padding) == (5, 0)
    assert client.stored[-1][0] == meta.unpad().global_indexes
    assert client.column(result, "y") == [0, 1, 4, 9, 16]


def test_padded_keys_are_seen_but_not_stored(client: FakeClient) -> None:
    put_rows(client, rows=3, keys=True)
    pieces = kv_meta(rows=3).pad_to_divisor(4).chunk(2)
    results = [plus_one(piece) for piece in pieces]
    assert [result.keys for result in results] == [["k0", "k1"], ["k2"]]
    assert [len(indexes) for indexes, _ in client.stored[1:]] == [2, 1]


def test_jagged_columns_survive_padding(client: FakeClient) -> None:
    @tqbridge()
    def grow(batch: TensorDict) -> TensorDict:
        rows = [torch.full((int(n) + 1,), int(n)) for n in batch["x"]]
        return TensorDict(
            {"ragged": torch.nested.nested_tensor(rows, layout=torch.jagged)}, batch_size=batch.batch_size
        )

    result = grow(put_rows(client, rows=3).pad_to_divisor(2))
    assert client.column(result, "ragged") == [[0], [1, 1], [2, 2, 2]]


class Meshed(Worker):
    """Rank 1 of the mesh does not collect."""

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn("actor"))
    def compute(self, batch: TensorDict) -> TensorDict:
        return TensorDict({"y": batch["x"]}, batch_size=batch.batch_size)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def one(self, batch: TensorDict) -> TensorDict:
        return TensorDict({"y": batch["x"]}, batch_size=batch.batch_size)

    @register(dispatch_mode=Dispatch.RANK_ZERO)
    def zero(self, batch: TensorDict) -> TensorDict:
        return TensorDict({"y": batch["x"]}, batch_size=batch.batch_size)

    @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO)
    def own(self, batch: TensorDict) -> dict[str, int]:
        return {"rank": self.rank}


@pytest.mark.parametrize("rank", [0, 1])
def test_ranks_that_do_not_collect_write_nothing_and_return_empty_metadata(
    client: FakeClient, monkeypatch: pytest.MonkeyPatch, rank: int
) -> None:
    monkeypatch.setenv("RANK", str(rank))
    worker = Meshed()
    worker._register_dispatch_collect_info("actor", dp_rank=0, is_collect=rank == 0)
    meta = put_rows(client, keys=True)
    writes = len(client.stored)
    for method in (worker.compute, worker.one, worker.zero):
        result = method(meta)
        assert (result.size, result.field_names) == ((4, ["uid", "x", "y"]) if rank == 0 else (0, []))
        keyed = method(kv_meta())
        assert isinstance(keyed, KVBatchMeta)
        assert keyed.size == (4 if rank == 0 else 0)
    assert len(client.stored) == writes + (6 if rank == 0 else 0)
    assert worker.own(meta).extra_info == {"rank": rank}, "with DP_COMPUTE_PROTO every rank has rows of its own"


def test_a_mesh_that_was_not_registered_is_named(client: FakeClient) -> None:
    with pytest.raises(KeyError, match="'actor' is not registered"):
        Meshed().compute(put_rows(client))


def test_async_methods(client: FakeClient) -> None:
    class Slow(Worker):
        @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO)
        async def compute(self, batch: TensorDict) -> TensorDict:
            await asyncio.sleep(0)
            return TensorDict({"y": batch["x"] + 5}, batch_size=batch.batch_size)

    put_rows(client, keys=True)
    client.calls.clear()
    result = asyncio.run(Slow().compute(kv_meta(fields=["x"])))
    assert result.keys == ["k0", "k1", "k2", "k3"]
    assert client.calls.count("async") == 3, "look-up, read and write leave the event loop free"
    assert asyncio.run(Slow().compute(TensorDict({"x": torch.ones(1)}, [1])))["y"].tolist() == [6.0]


def test_one_line_per_call_at_info(client: FakeClient, caplog: pytest.LogCaptureFixture) -> None:
    meta = put_rows(client)
    with caplog.at_level(logging.WARNING, logger="transferqueue"):
        plus_one(meta)
    assert caplog.records == []
    with caplog.at_level(logging.INFO, logger="transferqueue"):
        plus_one(meta)
        plus_one(TensorDict({"x": torch.ones(1)}, [1]))
    assert len(caplog.records) == 1
    line = caplog.records[0].getMessage()
    for part in ("plus_one", "rank=0", "pid=", "partition=train", "rows=4", "viewed=1000B", "copied=10B"):
        assert part in line
    for part in ("resolve=0.5", "wait=0.25", "method=0.0", "write_back=0.0"):
        assert part in line


def test_every_call_is_counted_with_its_figures(client: FakeClient) -> None:
    @tqbridge()
    async def async_plus_one(batch: TensorDict) -> TensorDict:
        return TensorDict({"z": batch["x"] + 1}, batch_size=batch.batch_size)

    @tqbridge()
    def broken(batch: TensorDict) -> None:
        raise ZeroDivisionError

    meta = put_rows(client)
    plus_one(meta)
    asyncio.run(async_plus_one(meta))
    plus_one(TensorDict({"x": torch.ones(1)}, [1]))  # no metadata: not bridged
    with pytest.raises(ZeroDivisionError):
        broken(meta)
    assert [(method, figures["failed"]) for method, figures in client.counted] == [
        ("plus_one", False),
        ("async_plus_one", False),
        ("broken", True),
    ]
    for method, figures in client.counted:
        assert (figures["rows"], figures["viewed_bytes"], figures["copied_bytes"]) == (4, 1000, 10)
        assert figures["get_s"] > 0
        assert figures["run_s"] > 0
        assert (figures["put_s"] > 0) == (method != "broken")
