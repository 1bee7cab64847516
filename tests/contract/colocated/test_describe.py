"""What groups and pools say of themselves, also while a rank hangs and after one died."""

from __future__ import annotations

import io
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tensordict import TensorDict

from transferqueue.controller import (
    RayClassWithInitArgs,
    RayResourcePool,
    RayWorkerGroup,
    WorkerDiedError,
    create_colocated_worker_cls,
)
from transferqueue.workers import (
    Dispatch,
    Worker,
    init_process_group,
    make_nd_compute_dataproto_dispatch_fn,
    register,
)

pytestmark = pytest.mark.timeout(120)


class Trainer(Worker):
    """Three ranks: 0 and 1 are one replica of mesh "model", 2 the other."""

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def setup(self) -> None:
        init_process_group("gloo", timeout_s=60.0)
        self._register_dispatch_collect_info("model", dp_rank=self.rank // 2, is_collect=self.rank != 1)

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn("model"))
    def train(self, batch: TensorDict) -> TensorDict:
        return batch

    @register(dispatch_mode=Dispatch.ONE_TO_ALL, blocking=False)
    def hang(self, rank: int, until: str) -> None:
        while self.rank == rank and not os.path.exists(until):
            time.sleep(0.02)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def die(self, rank: int) -> None:
        if self.rank == rank:
            os.kill(os.getpid(), signal.SIGKILL)


class Judge(Worker):
    def __init__(self) -> None:
        raise ValueError("no model")

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def score(self) -> None: ...


@pytest.fixture(scope="module")
def group(ray_cluster: Any) -> Iterator[RayWorkerGroup]:
    pool = RayResourcePool([3], name_prefix="train", max_colocate_count=2)
    roles = {"trainer": RayClassWithInitArgs(Trainer), "judge": RayClassWithInitArgs(Judge)}
    with RayWorkerGroup(pool, create_colocated_worker_cls(roles)) as group:
        yield group


def test_describe(group: RayWorkerGroup, capsys: pytest.CaptureFixture[str]) -> None:
    trainer = group.spawn(["trainer"])["trainer"]
    trainer.setup()
    description = trainer.describe(timeout_s=30)
    printed = capsys.readouterr().out
    assert printed == f"{description}\n"
    assert (description.worker_class, description.role, description.world_size) == ("Trainer", "trainer", 3)
    assert description.missing == ()
    assert not description.is_dead
    assert description.master == (group.master_address, group.master_port)
    assert [rank.pid for rank in description.ranks] == [facts.pid for facts in group.actors.ranks]
    assert [rank.report.actor_id for rank in description.ranks if rank.report] == [
        worker._actor_id.hex() for worker in group.workers
    ]
    assert len({rank.actor for rank in description.ranks}) == 3
    assert sorted(rank.devices for rank in description.ranks) == [("0",), ("1",), ("2",)]
    reports = [rank.report for rank in description.ranks if rank.report]
    assert [rank.actor for rank in description.ranks] == [one.actor_name for one in reports]
    assert [(one.rank, one.local_rank, one.local_world_size) for one in reports] == [(0, 0, 3), (1, 1, 3), (2, 2, 3)]
    assert [one.process_group for one in reports] == [f"gloo, rank {rank} of 3" for rank in range(3)]
    (mesh,) = description.meshes
    assert (mesh.name, mesh.dp_size, mesh.dp_ranks, mesh.collecting_ranks) == ("model", 2, (0, 0, 1), (0, 2))
    assert "mesh 'model': DP size 2; DP rank of each rank: 0 0 1; collects: x - x" in printed
    assert "RayWorkerGroup of Trainer, role 'trainer' of colocated workers: world size 3 on 1 node; takes" in printed
    assert "a bundle is CPU 2, GPU 1; each of up to 2 groups asks for CPU 1, GPU 0.5 of it" in printed
    assert f"rendezvous: {group.master_address}:{group.master_port}; session: none" in printed
    assert [rank.bundle.rpartition(":")[2] for rank in description.ranks] == ["0", "1", "2"]


def test_a_slice_and_a_role_that_was_not_built(group: RayWorkerGroup) -> None:
    judge = group.spawn(["judge"])["judge"]
    description = judge[1:].describe(timeout_s=30)
    assert [(rank.rank, rank.report.rank) for rank in description.ranks if rank.report] == [(0, 1), (1, 2)]
    assert description.role == "judge"
    assert description.meshes == ()
    assert "the constructor of role 'judge' raised ValueError: no model" in str(description)


def test_pool_describe(group: RayWorkerGroup, capsys: pytest.CaptureFixture[str]) -> None:
    assert group.resource_pool is not None
    description = group.resource_pool.describe()
    printed = capsys.readouterr().out
    assert printed == f"{description}\n"
    assert "pool 'train': world size 3, ranks per node [3], reserved (STRICT_PACK)" in printed
    assert "bundles 0-2 on" in printed
    assert sorted(index for _, index in description.bundle_nodes) == [0, 1, 2]
    assert {bundle.users for bundle in description.facts.bundles} == {("WorkerDict_trainer_judge",)}
    assert "not reserved yet" in str(RayResourcePool([2]).describe())


def test_a_rank_that_hangs(group: RayWorkerGroup, tmp_path: Path) -> None:
    trainer = group.spawn(["trainer"])["trainer"]
    trainer.describe(timeout_s=30)
    hanging = trainer.hang(1, str(tmp_path / "go"))
    try:
        for _ in range(2):  # asked again, it has one question waiting and not two
            description = trainer.describe(timeout_s=0.5)
            assert description.missing == (1,)
            rank = description.ranks[1]
            assert rank.running.endswith(".hang")
            assert rank.state == "alive"
            assert rank.pid == group.actors.ranks[1].pid
            assert description.meshes[0].dp_ranks == (0, 0, 1), "as it was before"
            assert "no answer within 0.5 s from rank 1" in str(description)
            assert "alive, NO ANSWER, runs" in str(description)
        assert group.resource_pool is not None
        assert group.resource_pool.describe().facts.is_reserved
        assert len(group.actors._reports._asked) == 1
        assert not hanging.done()
    finally:
        (tmp_path / "go").touch()
    hanging.get(timeout_s=30)
    assert trainer.describe(timeout_s=30).missing == ()


def test_trace_while_a_rank_hangs(group: RayWorkerGroup, tmp_path: Path) -> None:
    trainer = group.spawn(["trainer"])["trainer"]
    output = io.StringIO()
    try:
        with group.trace(timeout_s=0.2, file=output) as trace:  # of all groups over these ranks
            assert trainer.train(TensorDict({"x": torch.zeros(3, 2)}, batch_size=[3]))["x"].shape == (3, 2)
            hanging = trainer.hang(1, str(tmp_path / "go"))
            while "no answer" not in output.getvalue():
                time.sleep(0.02)
            assert not hanging.done()
            (tmp_path / "go").touch()
            hanging.get(timeout_s=30)
    finally:
        (tmp_path / "go").touch()
    train, hang = trace.calls
    assert (train.method, train.rows, train.collected) == ("Trainer.train", {0: 2, 1: 2, 2: 1}, (0, 2))
    assert hang.collected == (0, 1, 2)
    lines = output.getvalue().splitlines()
    assert "    ranks 0-1: batch: TensorDict 2 rows, x (2, 2) float32" in lines
    (late,) = [line for line in lines if "no answer" in line]
    assert late.startswith("[2] Trainer.hang: no answer after 0.")
    assert late.endswith("from rank 1")


def test_a_dead_rank(group: RayWorkerGroup) -> None:  # the last
    trainer = group.spawn(["trainer"])["trainer"]
    with pytest.raises(WorkerDiedError):
        trainer.die(2)
    description = trainer.describe(timeout_s=10)
    assert description.is_dead
    assert description.missing == (2,)
    assert description.ranks[2].state.startswith("dead")
    assert "dead: rank 2" in str(description)
    assert [rank.answered for rank in description.ranks] == [True, True, False]
    group.close()
    text = str(group.describe())
    assert "stopped" in text
    assert "answer" not in text.lower()
