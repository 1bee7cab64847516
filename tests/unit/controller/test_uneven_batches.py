"""Rows that do not divide by the ranks: spread, refused or padded, and what becomes of the pads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from tensordict import NonTensorData, TensorDict

from tests.unit.workers.fake_client import FakeClient
from transferqueue.controller import DataProtoConfig, DispatchError, LocalWorkerGroup
from transferqueue.metadata import BatchMeta
from transferqueue.workers import (
    DataProto,
    Dispatch,
    Worker,
    make_nd_compute_dataproto_dispatch_fn,
    padding_mask,
    register,
)

MESH = make_nd_compute_dataproto_dispatch_fn("actor")


class Shards(Worker):
    """DP 4 x TP 1 over four ranks, DP 2 x TP 2 for the mesh "actor". `seen` notes the rows of each call."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[int] = []
        self._register_dispatch_collect_info("actor", dp_rank=self.rank // 2, is_collect=self.rank % 2 == 0)

    def _doubled(self, batch: TensorDict) -> TensorDict:
        self.seen.append(len(batch["x"]))
        return TensorDict({"y": batch["x"] * 2, "rank": NonTensorData(self.rank)}, batch_size=batch.batch_size)

    @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO)
    def dp(self, batch: TensorDict, other: TensorDict | None = None) -> TensorDict:
        return self._doubled(batch)

    @register(dispatch_mode=MESH)
    def mesh(self, batch: TensorDict) -> TensorDict:
        return self._doubled(batch)

    @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO, uneven="error")
    def even_only(self, batch: TensorDict) -> TensorDict:
        return self._doubled(batch)

    @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO, uneven="spread")
    def any_rows(self, batch: TensorDict) -> TensorDict:
        return self._doubled(batch)

    @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO, auto_padding=True, blocking=False)
    def padded_later(self, batch: TensorDict) -> TensorDict:
        return self._doubled(batch)

    @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO)
    def listed(self, batch: TensorDict) -> list[int]:
        self.seen.append(len(batch["x"]))
        return [int(x) for x in batch["x"]]

    @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO)
    def array(self, batch: TensorDict) -> Any:
        return batch["x"].numpy()

    @register(dispatch_mode=Dispatch.DP_COMPUTE_METRIC, auto_padding=True)
    def count(self, batch: TensorDict) -> int:
        self.seen.append(len(batch["x"]))
        return len(batch["x"])

    @register(dispatch_mode=MESH)
    def total(self, batch: TensorDict) -> dict[str, Any]:
        mask = padding_mask()
        assert mask is not None
        return {"sum": int(batch["x"][~torch.from_numpy(mask)].sum()), "pads": int(mask.sum())}

    @register(dispatch_mode=MESH)
    async def total_later(self, *, batch: TensorDict) -> dict[str, Any]:
        return Shards.total.__wrapped__(self, batch)  # type: ignore[attr-defined, no-any-return]

    @register(dispatch_mode=MESH)
    def no_pads(self, batch: TensorDict) -> bool:
        return padding_mask() is None

    @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO)
    def largest(self, batch: TensorDict) -> float:
        return float(batch["x"].max())


def group(**options: Any) -> LocalWorkerGroup:
    return LocalWorkerGroup(Shards, 4, **options)


def batch(count: int) -> TensorDict:
    return TensorDict({"x": torch.arange(count)}, [count])


def rows(client: FakeClient, count: int) -> BatchMeta:
    return client.put(batch(count), None, "train")


def seen(ranks: LocalWorkerGroup) -> list[int]:
    return [worker.seen[-1] for worker in ranks.workers]


@pytest.fixture
def padding_everywhere() -> Iterator[None]:
    DataProtoConfig.auto_padding = True
    yield
    DataProtoConfig.auto_padding = False


@pytest.mark.parametrize("count", range(1, 10))
def test_pieces_are_as_many_as_ranks_and_differ_by_one_row_at_most(count: int) -> None:
    with group() as ranks:
        assert ranks.dp(batch(count))["y"].tolist() == [2 * i for i in range(count)]
        sizes = seen(ranks)
        assert sizes == sorted(sizes, reverse=True)
        assert (sum(sizes), max(sizes) - min(sizes) <= 1) == (count, True)
        assert ranks.mesh(batch(count))["y"].tolist() == [2 * i for i in range(count)]
        assert sum(seen(ranks)) == 2 * count, "the two ranks of a replica have the same rows"


def test_uneven_rows_are_refused_where_that_is_asked_for(client: FakeClient) -> None:
    with group(uneven="error") as ranks:
        for rows_of_call in (batch(6), rows(client, 6)):
            with pytest.raises(DispatchError, match=r"\.dp: argument 'batch' has 6 rows.* 4 shards.*auto_padding=True"):
                ranks.dp(rows_of_call)
        assert len(ranks.mesh(batch(6))) == 6, "the mesh has two shards"
        assert ranks.workers[0].seen == [3]
        assert len(ranks.dp(batch(8))) == 8
        assert len(ranks.any_rows(batch(6))) == 6
    with group() as ranks:
        with pytest.raises(DispatchError, match="6 rows"):
            ranks.even_only(batch=batch(6))
        ranks.auto_padding = True
        assert len(ranks.even_only(batch(6))) == 6, "pads make them even"
    with pytest.raises(ValueError, match="'spread' or 'error', got 'no'"):
        group(uneven="no")
    with pytest.raises(ValueError, match="'spread' or 'error', got 'no'"):
        register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO, uneven="no")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="uneven needs a dispatch mode that splits rows"):
        register(dispatch_mode=Dispatch.ONE_TO_ALL, uneven="error")


@pytest.mark.parametrize("by_keyword", [False, True])
@pytest.mark.parametrize(("method", "sizes"), [("dp", [2, 2, 2, 2]), ("mesh", [3, 3, 3, 3]), ("listed", [2, 2, 2, 2])])
def test_pads_are_in_no_result(method: str, sizes: list[int], by_keyword: bool, padding_everywhere: None) -> None:
    with group() as ranks:
        call, whole = getattr(ranks, method), batch(5)
        result = call(batch=whole) if by_keyword else call(whole)
        assert seen(ranks) == sizes
        if method == "listed":
            assert result == [[0, 1], [2, 3], [4]], "neither pads nor the rank that had nothing else"
        else:
            assert result["y"].tolist() == [0, 2, 4, 6, 8]
        assert len(whole) == 5


def test_pads_are_neither_stored_nor_in_metadata(client: FakeClient, padding_everywhere: None) -> None:
    meta = rows(client, 5)
    writes = len(client.stored)
    with group() as ranks:
        for method in ("dp", "mesh"):
            result = getattr(ranks, method)(meta)
            assert (result.global_indexes, result.num_padding) == (meta.global_indexes, 0)
            assert client.column(result, "y") == [0, 2, 4, 6, 8]
    assert sorted(index for indexes, _ in client.stored[writes:] for index in indexes) == sorted(2 * list(range(5)))
    assert meta.num_padding == 0


def test_a_rank_that_has_only_pads_counts_in_no_metric(client: FakeClient, padding_everywhere: None) -> None:
    with group() as ranks:
        for call in (batch(5), rows(client, 5)):
            assert getattr(ranks.dp(call), "extra_info", None) in (None, {"rank": [0, 1, 2]})
            assert ranks.largest(call) == [1.0, 3.0, 4.0]
            assert ranks.count(call) == [2, 1, 1, 1]
        assert seen(ranks) == [2, 1, 1, 1], "metrics are never padded"
        assert ranks.dp(batch(5))["rank"] == [0, 1, 2]
        assert ranks.total(rows(client, 5)).extra_info == {"sum": [3, 7], "pads": [0, 1]}
        for call in (batch(5), batch(3)):
            expected = ranks.total(call)
            assert expected == ranks.total_later(batch=call)
            assert sum(part["sum"] for part in expected) == int(call["x"].sum())
            assert [part["pads"] for part in expected] == [0, 1]
        assert ranks.no_pads(batch(4)) == [True, True]
    assert padding_mask() is None


def test_arrays_row_for_row_lose_their_pads(padding_everywhere: None) -> None:
    with group() as ranks:
        assert [part.tolist() for part in ranks.array(batch(5))] == [[0, 1], [2, 3], [4]]
        assert isinstance(ranks.array(batch(1))[0], np.ndarray)


def test_futures_keep_the_removal() -> None:
    with group() as ranks:
        future = ranks.padded_later(batch(5))
        assert future.get()["y"].tolist() == [0, 2, 4, 6, 8]
        assert seen(ranks) == [2, 2, 2, 2]


def test_a_future_is_waited_for_where_its_rows_must_be_known() -> None:
    class Chained(Shards):
        @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO, materialize_futures=False, auto_padding=True)
        def padded(self, batch: TensorDict) -> TensorDict:
            self.seen.append(len(batch))
            return TensorDict({"z": batch["y"] + 1}, batch.batch_size)

        @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO, materialize_futures=False, uneven="error")
        def even(self, batch: TensorDict) -> TensorDict:
            return batch

    with LocalWorkerGroup(Chained, 4) as ranks:
        assert ranks.padded(ranks.padded_later(batch(5)))["z"].tolist() == [1, 3, 5, 7, 9]
        assert seen(ranks) == [2, 2, 2, 2]
        with pytest.raises(DispatchError, match="5 rows"):
            ranks.even(ranks.padded_later(batch(5)))


def test_who_decides_about_padding(monkeypatch: pytest.MonkeyPatch) -> None:
    with group() as ranks:
        ranks.dp(batch(5))
        assert seen(ranks) == [2, 1, 1, 1]
        monkeypatch.setenv("VERL_AUTO_PADDING", "TRUE")
        assert DataProtoConfig.auto_padding
        ranks.dp(batch(5))
        assert seen(ranks) == [2, 2, 2, 2]
        ranks.auto_padding = False
        ranks.dp(batch(5))
        assert seen(ranks) == [2, 1, 1, 1], "the group says no"
        ranks.padded_later(batch(5)).get()
        assert seen(ranks) == [2, 2, 2, 2], "the method says yes"
    with pytest.raises(TypeError, match="True or False, got 1"):
        DataProtoConfig.auto_padding = 1  # type: ignore[assignment]


class Protos(Worker):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[int] = []
        self._register_dispatch_collect_info("actor", dp_rank=self.rank // 2, is_collect=self.rank % 2 == 0)

    def _doubled(self, data: DataProto) -> DataProto:
        self.seen.append(len(data))
        doubled = DataProto.from_dict({"y": data.batch["x"] * 2}, {"uid": data.non_tensor_batch["uid"]})
        doubled.meta_info["metrics"] = {"rank": self.rank}
        return doubled

    @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO)
    def dp(self, data: DataProto, other: DataProto | None = None) -> DataProto:
        return self._doubled(data)

    @register(dispatch_mode=MESH)
    def mesh(self, data: DataProto) -> DataProto:
        return self._doubled(data)

    @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO, auto_padding=False)
    def never(self, data: DataProto) -> DataProto:
        return self._doubled(data)

    @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO)
    def metrics_alone(self, data: DataProto) -> DataProto:
        return DataProto(meta_info={"metrics": {"rank": self.rank}})

    @register(dispatch_mode=Dispatch.DP_COMPUTE_METRIC)
    def count(self, data: DataProto) -> int:
        return len(data)


def proto(count: int, **options: Any) -> DataProto:
    uids = np.array([f"u{i}" for i in range(count)], dtype=object)
    return DataProto(TensorDict({"x": torch.arange(count)}, [count]), {"uid": uids}, **options)


@pytest.mark.parametrize("method", ["dp", "mesh"])
@pytest.mark.parametrize("count", [1, 5, 8])
@pytest.mark.parametrize("auto_padding", [False, True])
def test_a_data_proto_asks_for_padding_by_itself(method: str, count: int, auto_padding: bool) -> None:
    with LocalWorkerGroup(Protos, 4) as ranks:
        data = proto(count, auto_padding=auto_padding)
        for result in (getattr(ranks, method)(data), getattr(ranks, method)(data=data)):
            assert result.batch["y"].tolist() == [2 * i for i in range(count)]
            assert result.non_tensor_batch["uid"].tolist() == [f"u{i}" for i in range(count)]
            sizes = seen(ranks)
            if auto_padding:
                assert sizes == [-(-count // (4 if method == "dp" else 2))] * 4
            else:
                assert sum(sizes) == count * (1 if method == "dp" else 2)
        assert (len(data), data.batch["x"].tolist()) == (count, list(range(count)))


def test_metrics_of_pads_alone_are_in_no_meta_info() -> None:
    with LocalWorkerGroup(Protos, 4) as ranks:
        for method in (ranks.dp, ranks.metrics_alone):
            assert method(proto(5, auto_padding=True)).meta_info == {"metrics": {"rank": [0, 1, 2]}}
            assert method(proto(5)).meta_info == {"metrics": {"rank": [0, 1, 2, 3]}}
        assert ranks.mesh(proto(1, auto_padding=True)).meta_info == {"metrics": {"rank": [0]}}


def test_what_a_data_proto_asks_for_is_only_for_who_does_not_say() -> None:
    with LocalWorkerGroup(Protos, 4) as ranks:
        ranks.never(proto(5, auto_padding=True))
        assert seen(ranks) == [2, 1, 1, 1]
        ranks.dp(proto(5), other=proto(5, auto_padding=True))
        assert seen(ranks) == [2, 2, 2, 2], "all batches of a call are padded when one asks for it"
        assert ranks.count(proto(5, auto_padding=True)) == [2, 1, 1, 1]
        assert len(proto(5, auto_padding=True).chunk(4)) == 4


def test_several_batches_are_padded_together_and_need_the_same_rows(padding_everywhere: None) -> None:
    with group() as ranks:
        assert ranks.dp(batch(5), other=batch(5))["y"].tolist() == [0, 2, 4, 6, 8]
        with pytest.raises(DispatchError, match=r"'other' has 7 rows.*has 5"):
            ranks.dp(batch(5), other=batch(7))
        ranks.auto_padding = False
        with pytest.raises(DispatchError, match=r"'other' has 7 rows.*has 5"):
            ranks.dp(batch(5), batch(7))


def test_no_rows_at_all(client: FakeClient, padding_everywhere: None) -> None:
    with group() as ranks:
        assert ranks.dp(batch(0))["y"].shape == (0,)
        assert ranks.dp(rows(client, 1).select_samples([])).size == 0
