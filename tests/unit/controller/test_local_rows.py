"""Rows of a call sent to ranks on the nodes that keep them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tensordict import TensorDict

from tests.support.sessions import embedded
from transferqueue.controller import LocalWorkerGroup, local_rows
from transferqueue.controller.local_rows import Arrangement, by_rows, by_shards
from transferqueue.metadata import BatchMeta
from transferqueue.workers import Dispatch, Worker, register
from transferqueue.workers.data_proto import DataProto

NODES = ["A", "A", "B", "B"]  # of ranks


def _at(*nodes: int) -> np.ndarray[Any, Any]:
    return np.array(nodes, dtype=np.int64)


def _local(kept_at: np.ndarray[Any, Any], order: np.ndarray[Any, Any], sizes: list[int], nodes: list[int]) -> int:
    assert sorted(order.tolist()) == list(range(len(kept_at)))
    return local_rows.local_rows(kept_at[order], sizes, nodes)


def test_rows_go_to_shards_on_their_node_while_these_have_room() -> None:
    kept_at = _at(1, 0, 1, 0, 1, 0, 1, 0)
    order = by_rows(kept_at, [2, 2, 2, 2], [0, 0, 1, 1])
    assert order.tolist() == [1, 3, 5, 7, 0, 2, 4, 6]
    # More than fit: the others fill what is left, shards stay as large.
    kept_at = _at(0, 0, 0, 0, 0, 0, 1, 5)
    assert _local(kept_at, by_rows(kept_at, [2, 2, 2, 2], [0, 1, 1, 0]), [2, 2, 2, 2], [0, 1, 1, 0]) == 5
    # Shards of which no node is known, uneven and empty ones.
    order = by_rows(_at(0, 1, 1), [2, 1, 0], [-1, 1, 1])
    assert order.tolist() == [0, 2, 1]
    assert by_rows(_at(), [0, 0], [0, 1]).tolist() == []


def test_whole_shards_change_places() -> None:
    kept_at = _at(1, 1, 0, 0, 0, 1, 1, 1)
    order = by_shards(kept_at, [2, 2, 2, 2], [0, 0, 1, 1])
    assert order.tolist() == [4, 5, 2, 3, 0, 1, 6, 7]  # of shard 2 half is on 0, of shards 0 and 3 all on 1
    # Shards of different size do not.
    assert by_shards(_at(1, 1, 0), [2, 1], [0, 1]).tolist() == [0, 1, 2]
    # What is where it should be stays.
    assert by_shards(_at(0, 0, 1, 1), [1, 1, 1, 1], [0, 0, 1, 1]).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("arrange", [by_rows, by_shards])
def test_any_placement_keeps_all_rows_and_never_loses(arrange: Any) -> None:
    rng = np.random.default_rng(5)
    for _ in range(200):
        shards = int(rng.integers(1, 7))
        rows = int(rng.integers(0, 40))
        sizes = [rows // shards + (shard < rows % shards) for shard in range(shards)]
        kept_at, nodes = rng.integers(-1, 3, rows), rng.integers(-1, 3, shards).tolist()
        local = _local(kept_at, arrange(kept_at, sizes, nodes), sizes, nodes)
        if arrange is by_rows:
            room = {node: sum(size for size, at in zip(sizes, nodes, strict=True) if at == node) for node in range(3)}
            assert local == sum(min(room[node], int((kept_at == node).sum())) for node in range(3))


class _Client:
    """Row n is on node n % 2."""

    looks = 0

    def node_ordinals(self) -> dict[str, int]:
        return {"A": 0, "B": 1}

    def row_nodes(self, metadata: BatchMeta) -> Any:
        self.looks += 1
        return np.asarray(metadata.index_array) % 2


class _Ranks(Worker):
    @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO)
    def ran(self, data: TensorDict, beside: TensorDict) -> TensorDict:
        assert data["n"].tolist() == beside["n"].tolist()
        return TensorDict({"rank": torch.full((len(data["n"]),), self.rank), "twice": 2 * data["n"]}, [len(data["n"])])

    @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO)
    def handed_through(self, meta: BatchMeta) -> BatchMeta:
        return meta


class _Group(LocalWorkerGroup):
    @property
    def node_ids(self) -> list[str]:
        return NODES


@pytest.mark.parametrize("locality", ["off", "shards", "rows"])
@pytest.mark.parametrize("rows", [8, 10])
@pytest.mark.parametrize("padded", [False, True])
def test_results_are_in_the_order_of_the_batch(
    monkeypatch: pytest.MonkeyPatch, locality: Any, rows: int, padded: bool
) -> None:
    near = _Client()
    monkeypatch.setattr(local_rows, "client_for", lambda meta: near)
    with embedded() as session, _Group(_Ranks, 4, locality=locality, auto_padding=padded) as group:
        values = TensorDict({"n": torch.arange(rows)}, [rows])
        meta = session.client.put(values, partition_id="p")
        out = group.ran(meta, values)
        assert out.global_indexes == meta.global_indexes
        data = session.client.get_data(out, fields=["rank", "twice"])
        assert data["twice"].tolist() == [2 * n for n in range(rows)]
        nodes = [NODES[rank] for rank in data["rank"].tolist()]
        local = sum(node == "AB"[row % 2] for row, node in enumerate(nodes))
        if locality == "rows":
            assert local == rows - (rows == 10)  # shards of 3, 3, 2, 2 rows, or 3, 3, 3, 1: five do not fit on B
        sizes = np.bincount(data["rank"].numpy(), minlength=4).tolist()
        assert sizes == ([3, 3, 3, 1] if padded and rows == 10 else [rows // 4 + (r < rows % 4) for r in range(4)])
        assert group[:2].locality == locality
    assert bool(near.looks) == (locality != "off")
    with pytest.raises(ValueError, match="locality is one of"):
        LocalWorkerGroup(_Ranks, 1, locality="near")  # type: ignore[arg-type]


def test_what_is_row_for_row_comes_back_in_order() -> None:
    order = _at(2, 0, 1)
    arrangement = Arrangement(order)
    rows = TensorDict({"n": torch.tensor([2, 0, 1])}, [3])
    assert arrangement.restored(rows)["n"].tolist() == [0, 1, 2]
    assert arrangement.restored(DataProto(batch=rows)).batch["n"].tolist() == [0, 1, 2]
    assert arrangement.restored(BatchMeta([2, 0, 1], ["p"] * 3)).global_indexes == [0, 1, 2]
    for plain in ([2, 0, 1], np.array([2, 0, 1]), torch.tensor([2, 0, 1])):
        assert list(map(int, arrangement.restored(plain))) == [0, 1, 2]
    for other in ([1, 2], {"loss": 0.5}, None, torch.tensor(3), rows[:2]):
        assert arrangement.restored(other) is other
    assert Arrangement().restored(rows) is rows
