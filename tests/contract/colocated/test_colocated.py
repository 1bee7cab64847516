"""Several roles in the actors of one group."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from tensordict import TensorDict

from tests.unit.controller.colocated.role_workers import Actor, AsyncRollout, Broken, Rollout
from transferqueue.controller import (
    RayClassWithInitArgs,
    RayResourcePool,
    RayWorkerGroup,
    WorkerDiedError,
    WorkerGroupDeadError,
    create_colocated_worker_cls,
    create_colocated_worker_cls_fused,
)
from transferqueue.workers import Dispatch, Worker, register

pytestmark = pytest.mark.timeout(120)


class Dying(Worker):
    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def die(self, rank: int) -> None:
        if self.rank == rank:
            os.kill(os.getpid(), signal.SIGKILL)


ROLES: dict[str, RayClassWithInitArgs] = {
    "actor": RayClassWithInitArgs(Actor, 5),
    "actor_rollout": RayClassWithInitArgs(Rollout),
    "broken": RayClassWithInitArgs(Broken),
    "rollout": RayClassWithInitArgs(AsyncRollout),
    "dying": RayClassWithInitArgs(Dying),
}
CREATES = [create_colocated_worker_cls, create_colocated_worker_cls_fused]


def start(created: RayClassWithInitArgs) -> RayWorkerGroup:
    return RayWorkerGroup(RayResourcePool([2], use_gpu=False, max_colocate_count=2), created)


@pytest.fixture(scope="module", params=CREATES)
def group(ray_cluster: Any, request: pytest.FixtureRequest) -> Iterator[RayWorkerGroup]:
    with start(request.param(ROLES)) as group:
        yield group


def test_roles_are_in_the_same_processes(group: RayWorkerGroup) -> None:
    groups = group.spawn(ROLES)
    places = groups["actor"].place()
    assert [place["pid"] for place in places] == [facts.pid for facts in group.actors.ranks]
    assert all(one.workers == group.workers for one in groups.values())
    for rank, place in enumerate(places):
        assert (place["rank"], place["world_size"]) == (place["local_rank"], place["local_world_size"]) == (rank, 2)
        assert place["master"] == (group.master_address, group.master_port)


def test_roles_whose_names_begin_alike(group: RayWorkerGroup) -> None:
    groups = group.spawn(["actor", "actor_rollout"])
    assert groups["actor"].rollout_update() == ["actor: rollout_update"] * 2
    assert groups["actor_rollout"].update() == ["rollout: update"] * 2
    assert groups["actor_rollout"].scale_of_actor() == [5, 5], "roles reach each other"
    assert groups["actor"].execute_all_sync("unregistered", 1) == [6, 6]
    batch = TensorDict({"x": torch.arange(3)}, batch_size=[3])
    assert groups["actor"].scaled(batch)["y"].tolist() == [0, 5, 10]


def test_names_on_the_actors(group: RayWorkerGroup, ray_cluster: Any) -> None:
    worker = group.workers[1]
    if group.fused_worker_used:
        group.fuse(["actor"])
        assert group.actor.rollout_update() == ["actor: rollout_update"] * 2
        assert ray_cluster.get(worker._fuw_execute.remote("actor_fwmn_unregistered", 2)) == 7
    else:
        assert group.actor_place()[1]["rank"] == 1
        assert ray_cluster.get(worker.actor_place.remote())["rank"] == 1


def test_the_constructors_error_is_that_of_the_first_call(group: RayWorkerGroup) -> None:
    broken = group.spawn(["broken"])["broken"]
    for _ in range(2):
        with pytest.raises(FileNotFoundError, match=r"update failed on rank \d .*no checkpoint at step 3") as caught:
            broken.update()
    assert 'raise FileNotFoundError("no checkpoint at step 3")' in caught.value.remote_traceback


def test_coroutines_run_together(group: RayWorkerGroup, ray_cluster: Any) -> None:
    rollout = group.spawn(["rollout"])["rollout"]
    waiting = rollout.wait_to_be_let_go()
    assert rollout.let_go() == [0, 1], "runs while the other waits for it"
    assert waiting.get(timeout_s=30) == ["free", "free"]
    assert rollout.plain(3) == [3, 3]
    if group.fused_worker_used:
        refs = [worker._fuw_execute.remote("rollout_fwmn_generate", 4) for worker in group.workers]
        assert ray_cluster.get(refs) == [(0, 4), (1, 4)]


def test_a_dead_rank_makes_every_group_dead(group: RayWorkerGroup) -> None:  # the last of its group
    groups = group.spawn(["dying", "actor"])
    groups["actor"].close()
    with pytest.raises(WorkerDiedError, match=r"rank 1 .*died during die"):
        groups["dying"].die(1)
    fresh = group.spawn(["actor"])["actor"]
    assert group.is_dead
    assert fresh.is_dead
    with pytest.raises(WorkerGroupDeadError, match="place was not sent: the worker group is dead: rank 1"):
        fresh.place()
