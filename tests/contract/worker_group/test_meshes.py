"""Workers inside workers, and several meshes in one group: on a group in this process."""

from __future__ import annotations

import pytest
import torch
from tensordict import TensorDict

from transferqueue.controller import Broadcast, LocalWorkerGroup, WorkerError
from transferqueue.workers import (
    DataProto,
    Dispatch,
    MeshNotRegisteredError,
    RankInfo,
    Worker,
    make_nd_compute_dataproto_dispatch_fn,
    register,
)


class Engine(Worker):
    """DP over all ranks or, with `tp`, over groups of so many."""

    def __init__(self, tp: int) -> None:
        super().__init__()
        self._register_dispatch_collect_info("train", dp_rank=self.rank // tp, is_collect=self.rank % tp == 0)


class Holder(Worker):
    """Two engines under names of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.set_dispatch_collect("actor", **Engine(tp=1).get_dispatch_collect())
        self.set_dispatch_collect("rollout", **Engine(tp=2).get_dispatch_collect())

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn("actor"))
    def by_actor(self, batch: DataProto) -> DataProto:
        return self._seen(batch)

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn("rollout"))
    def by_rollout(self, batch: DataProto) -> DataProto:
        return self._seen(batch)

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn("critic"))
    def by_critic(self, batch: DataProto) -> DataProto:
        return self._seen(batch)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def info(self) -> RankInfo:
        return self.rank_info

    def _seen(self, batch: DataProto) -> DataProto:
        rows = torch.full((len(batch),), len(batch))
        ranks = torch.full((len(batch),), self.rank)
        return DataProto(TensorDict({"rows": rows, "rank": ranks, "x": batch.batch["x"]}, batch_size=len(batch)))


def batch(rows: int = 8) -> DataProto:
    return DataProto(TensorDict({"x": torch.arange(rows)}, batch_size=rows))


def row_sums(worker: object, data: DataProto, *, factor: int) -> DataProto:
    """Runs on ranks and, with any object as worker, in the program."""
    return DataProto(TensorDict({"sum": data.batch["x"] * factor}, batch_size=len(data)))


def test_one_group_has_meshes_of_different_dp_size() -> None:
    with LocalWorkerGroup(Holder, world_size=4) as group:
        by_actor, by_rollout = group.by_actor(batch()), group.by_rollout(batch())
        with pytest.raises(
            WorkerError, match=r"mesh 'critic' is not registered on rank . of Holder; registered: 'a"
        ) as e:
            group.by_critic(batch())
    assert by_actor.batch["rows"].tolist() == [2] * 8
    assert by_actor.batch["rank"].tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert by_rollout.batch["rows"].tolist() == [4] * 8
    assert by_rollout.batch["rank"].tolist() == [0, 0, 0, 0, 2, 2, 2, 2], "ranks 1 and 3 do not collect"
    assert by_rollout.batch["x"].tolist() == by_actor.batch["x"].tolist() == list(range(8))
    assert isinstance(e.value, MeshNotRegisteredError)
    assert isinstance(e.value, AssertionError)


def test_a_function_of_the_program_runs_on_the_shards() -> None:
    with LocalWorkerGroup(Holder, world_size=4) as group:
        result = group.execute_with_func_generator(row_sums, batch(), factor=Broadcast(3))
        assert group.execute_func_rank_zero(max, 3, 4) == 4
    assert torch.equal(result.batch["sum"], row_sums(object(), batch(), factor=3).batch["sum"])


def test_ranks_of_this_process_know_its_node() -> None:
    with LocalWorkerGroup(Holder, world_size=3) as group:
        infos = group.info()
    assert [(info.rank, info.local_rank, info.local_world_size) for info in infos] == [(0, 0, 3), (1, 1, 3), (2, 2, 3)]
    for info in infos:
        assert {node.node_ip for node in info.nodes.values()} == {"127.0.0.1"}
        assert list(info.nodes) == [0, 1, 2]
