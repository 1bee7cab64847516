"""Groups of the roles of one class, with ranks in this process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from tensordict import TensorDict

from tests.unit.controller.colocated.role_workers import Actor, AsyncRollout, Broken, Meshed, Rollout
from transferqueue.controller import (
    LocalWorkerGroup,
    RayClassWithInitArgs,
    RoleNotFoundError,
    create_colocated_worker_cls,
    create_colocated_worker_cls_fused,
)
from transferqueue.workers import Dispatch, Worker, register

pytestmark = pytest.mark.timeout(60)

ROLES = {
    "actor": RayClassWithInitArgs(Actor, 5),
    "actor_rollout": RayClassWithInitArgs(Rollout),
    "broken": RayClassWithInitArgs(Broken),
}


@pytest.fixture(params=[create_colocated_worker_cls, create_colocated_worker_cls_fused])
def create(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture
def group(create: Any) -> Iterator[LocalWorkerGroup]:
    with LocalWorkerGroup(create(ROLES), 2) as group:
        yield group


def test_a_group_per_role(group: LocalWorkerGroup) -> None:
    groups = group.spawn(ROLES)
    assert list(groups) == list(ROLES)
    actor = groups["actor"]
    assert actor.workers == group.workers
    assert [place["rank"] for place in actor.place()] == [0, 1]
    assert actor.rollout_update() == ["actor: rollout_update"] * 2
    assert groups["actor_rollout"].update() == ["rollout: update"] * 2
    assert groups["actor_rollout"].scale_of_actor() == [5, 5]
    assert actor.execute_all_sync("unregistered", 1) == [6, 6]
    assert actor.execute_rank_zero_sync("unregistered", 2) == 7
    assert "update" not in dir(actor)
    assert actor.place.__doc__ == "Where this rank is."
    with pytest.raises(AttributeError):
        actor.update()
    batch = TensorDict({"x": torch.arange(4)}, batch_size=[4])
    assert actor.scaled(batch)["y"].tolist() == [0, 5, 10, 15]
    assert group.spawn_fused(["actor"])["actor"].rollout_update() == actor.rollout_update()


def test_a_role_that_is_not_there(group: LocalWorkerGroup) -> None:
    for call in (group.spawn, group.spawn_fused, group.fuse):
        with pytest.raises(RoleNotFoundError, match="no role 'critic'; the class was made of the roles 'actor', 'act"):
            call(["actor", "critic"])
    with pytest.raises(RoleNotFoundError, match="the class was made of the roles none"):
        group.spawn(["actor"])["actor"].spawn(["actor"])


def test_roles_as_attributes(group: LocalWorkerGroup) -> None:
    group.fuse(["actor"])
    group.fuse(["actor", "actor_rollout"])
    assert group.actor.rollout_update() == ["actor: rollout_update"] * 2
    assert group.actor_rollout.update() == ["rollout: update"] * 2


def test_a_role_named_as_a_member_is_no_attribute(create: Any) -> None:
    with LocalWorkerGroup(create({"workers": ROLES["actor"]})) as group:
        with pytest.raises(ValueError, match="role 'workers' cannot be an attribute: the group has a member of that"):
            group.fuse(["workers"])
        assert group.spawn(["workers"])["workers"].rollout_update() == ["actor: rollout_update"]


def test_the_constructors_error_is_that_of_the_first_call(group: LocalWorkerGroup) -> None:
    broken = group.spawn(["broken"])["broken"]
    for _ in range(2):
        with pytest.raises(FileNotFoundError, match=r"update failed on rank \d .*no checkpoint at step 3") as caught:
            broken.update()
    assert 'raise FileNotFoundError("no checkpoint at step 3")' in caught.value.remote_traceback
    assert group.spawn(["actor"])["actor"].rollout_update() == ["actor: rollout_update"] * 2


def test_prefixed_methods_are_those_of_the_roles() -> None:
    roles = {"a": RayClassWithInitArgs(Meshed), "b": RayClassWithInitArgs(Meshed, swapped=True)}
    with LocalWorkerGroup(create_colocated_worker_cls({**roles, **ROLES}), 2) as group:
        assert [place["name"] for place in group.actor_place()] == ["actor", "actor"]
        assert {"a_which_rank", "actor_rollout_scale_of_actor"} <= set(dir(group))
        # Each by the mesh of its role, of which there are two with the same name.
        batch = TensorDict({"x": torch.arange(4)}, batch_size=[4])
        assert group.a_which_rank(batch)["rank"].tolist() == [0, 0, 1, 1]
        assert group.b_which_rank(batch)["rank"].tolist() == [1, 1, 0, 0]
        with pytest.raises(AttributeError, match=r"may mean actor.rollout_update and actor_rollout.update"):
            group.actor_rollout_update()


def test_coroutines(create: Any) -> None:
    with LocalWorkerGroup(create({"rollout": RayClassWithInitArgs(AsyncRollout), **ROLES}), 2) as group:
        groups = group.spawn(["rollout", "actor"])
        assert groups["rollout"].generate(3) == [(0, 3), (1, 3)]
        assert groups["rollout"].plain(3) == [3, 3]
        assert groups["actor"].rollout_update() == ["actor: rollout_update"] * 2


class Leaving(Worker):
    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def leave(self) -> None:
        raise SystemExit(3)


def test_a_dead_rank_makes_every_group_dead_and_closing_a_role_ends_nothing(create: Any) -> None:
    with LocalWorkerGroup(create({"leaving": RayClassWithInitArgs(Leaving), **ROLES}), 2) as group:
        groups = group.spawn(["leaving", "actor", "actor_rollout"])
        groups["actor_rollout"].close()
        assert groups["actor_rollout"].is_dead
        assert not groups["actor"].is_dead
        with pytest.raises(RuntimeError, match="died during leave"):
            groups["leaving"].leave()
        assert groups["actor"].is_dead
        assert group.is_dead


def test_which_kind_it_is(group: LocalWorkerGroup, create: Any) -> None:
    assert group.fused_worker_used == (create is create_colocated_worker_cls_fused) == create(ROLES).fused_worker_used
    assert not group.spawn(["actor"])["actor"].fused_worker_used
