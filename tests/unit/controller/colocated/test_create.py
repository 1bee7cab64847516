"""Classes of several roles, built in this process."""

from __future__ import annotations

import asyncio
import inspect
import pickle
from typing import Any

import cloudpickle
import pytest

from tests.unit.controller.colocated.role_workers import Actor, AsyncRollout, Broken, Plain, Rollout
from transferqueue.controller import ClassWithInitArgs, PerRank, RayClassWithInitArgs
from transferqueue.controller.colocated import (
    ColocatedWorker,
    FusedWorker,
    RoleNotFoundError,
    create_colocated_worker_cls,
    create_colocated_worker_cls_fused,
    create_colocated_worker_raw_cls,
)

ROLES = {"actor": RayClassWithInitArgs(Actor, 5), "actor_rollout": RayClassWithInitArgs(Rollout)}


def build(made: RayClassWithInitArgs) -> Any:
    """The worker, in this process."""
    return made.user_class(*made.args, **made.kwargs)


@pytest.fixture
def rank_2_of_4(monkeypatch: pytest.MonkeyPatch) -> None:
    place = {"RANK": "2", "WORLD_SIZE": "4", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2"}
    for name, value in {**place, "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "4711"}.items():
        monkeypatch.setenv(name, value)


def test_roles_are_attributes_and_reach_each_other() -> None:
    fused = create_colocated_worker_raw_cls(ROLES)()
    assert isinstance(fused, FusedWorker)
    assert type(fused).__name__ == "FusedWorker_actor_actor_rollout"
    assert type(fused).is_fused_worker
    assert fused.cls_names == ["actor", "actor_rollout"]
    assert fused.raw_cls_dict == {"actor": Actor, "actor_rollout": Rollout}
    assert fused.fused_worker_dict == {"actor": fused.actor, "actor_rollout": fused.actor_rollout}
    assert fused.actor.scale == 5
    assert fused.actor_rollout.scale_of_actor() == 5
    assert fused.actor_rollout.fused_worker_dict is fused.fused_worker_dict


@pytest.mark.usefixtures("rank_2_of_4")
def test_roles_keep_rank_sizes_and_master_address() -> None:
    fused = create_colocated_worker_raw_cls({**ROLES, "second": ClassWithInitArgs(Actor, name="second")})()
    expected = {"rank": 2, "world_size": 4, "local_rank": 0, "local_world_size": 2, "master": ("10.0.0.1", "4711")}
    for role in ("actor", "second"):
        place = getattr(fused, f"{role}.place")()
        assert {**expected, "name": role} == {name: place[name] for name in (*expected, "name")}
    assert (fused.rank, fused.world_size, fused.get_master_addr_port()) == (2, 4, ("10.0.0.1", "4711"))


@pytest.mark.usefixtures("rank_2_of_4")
def test_constructor_arguments_may_differ_by_rank() -> None:
    made = create_colocated_worker_cls({"actor": RayClassWithInitArgs(Actor, PerRank([1, 2, 3, 4]))})
    assert build(made).worker_of("actor").scale == 3


@pytest.mark.parametrize("create", [create_colocated_worker_cls, create_colocated_worker_cls_fused])
def test_roles_whose_names_begin_alike_stay_apart(create: Any) -> None:
    worker = build(create(ROLES))
    assert getattr(worker, "actor.rollout_update")() == "actor: rollout_update"
    assert getattr(worker, "actor_rollout.update")() == "rollout: update"


def test_prefixed_methods() -> None:
    worker = build(create_colocated_worker_cls(ROLES))
    assert isinstance(worker, ColocatedWorker)
    assert worker.actor_place()["name"] == "actor"
    assert worker.actor_rollout_scale_of_actor() == 5
    assert not hasattr(worker, "actor_unregistered")
    assert getattr(worker, "actor.unregistered")(1) == 6
    with pytest.raises(AttributeError, match=r"may mean actor.rollout_update and actor_rollout.update: call it"):
        worker.actor_rollout_update()


def test_names_that_programs_for_fused_workers_call() -> None:
    fused = create_colocated_worker_raw_cls(ROLES)()
    assert fused._fuw_execute("actor_fwmn_unregistered", value=2) == 7
    assert fused._fuw_execute("actor_rollout_fwmn_update") == "rollout: update"
    for name, text in [
        ("critic_fwmn_update", "no role 'critic'; the class was made of the roles 'actor', 'actor_rollout'"),
        ("actor_fwmn_nothing", r"role 'actor' \(Actor\) has no method 'nothing'"),
    ]:
        with pytest.raises(RoleNotFoundError, match=text) as caught:
            fused._fuw_execute(name)
        assert isinstance(caught.value, AssertionError), "what programs catch"
        assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


@pytest.mark.parametrize("create", [create_colocated_worker_cls, create_colocated_worker_cls_fused])
def test_coroutines_stay_coroutines(create: Any) -> None:
    worker = build(create({"rollout": RayClassWithInitArgs(AsyncRollout), "actor": ROLES["actor"]}))
    generate = getattr(worker, "rollout.generate")
    assert inspect.iscoroutinefunction(generate)
    assert not inspect.iscoroutinefunction(getattr(worker, "rollout.plain"))
    assert asyncio.run(generate(3)) == (0, 3)
    if isinstance(worker, FusedWorker):
        assert asyncio.run(worker._fuw_execute("rollout_fwmn_generate", 4)) == (0, 4)
        assert asyncio.run(worker._fuw_execute("actor_fwmn_unregistered", 4)) == 9


def test_a_constructor_that_raises_is_an_error_of_each_call_on_its_role() -> None:
    fused = create_colocated_worker_raw_cls({"broken": RayClassWithInitArgs(Broken), **ROLES})()
    lengths = []
    for _ in range(3):
        with pytest.raises(FileNotFoundError, match="no checkpoint at step 3") as caught:
            getattr(fused, "broken.update")()
        assert [entry.name for entry in caught.traceback][-1] == "__init__"
        lengths.append(len(caught.traceback))
    assert len(set(lengths)) == 1, "the traceback does not grow from call to call"
    assert getattr(fused, "actor.unregistered")(1) == 6


def test_routes_look_like_the_methods() -> None:
    worker_class = create_colocated_worker_cls(ROLES).user_class
    for name in ("actor.place", "actor_place"):
        assert getattr(worker_class, name).__doc__ == "Where this rank is."
        assert getattr(worker_class, name).__name__ == name
    # Ray adds a parameter to the signatures of functions that were in the class of an actor.
    assert list(inspect.signature(getattr(worker_class, "actor.unregistered")).parameters)[:2] == ["self", "value"]


def test_a_class_that_is_no_worker() -> None:
    fused = create_colocated_worker_raw_cls({"plain": ClassWithInitArgs(Plain, 4), "actor": ROLES["actor"]})()
    assert getattr(fused, "plain.add")(1) == 5
    assert fused.plain.fused_worker_dict["actor"].scale == 5


def test_the_class_travels_by_value() -> None:
    made = cloudpickle.loads(cloudpickle.dumps(create_colocated_worker_cls_fused(ROLES)))
    assert build(made).actor.scale == 5


def test_what_cannot_be_one_actor_is_refused() -> None:
    first, second = RayClassWithInitArgs(Actor), RayClassWithInitArgs(Rollout)
    first.update_options({"max_concurrency": 2, "num_cpus": 1})
    second.update_options({"max_concurrency": 3})
    with pytest.raises(ValueError, match="'a' and 'b' are one actor and want its option 'max_concurrency' to be 2 and"):
        create_colocated_worker_cls({"a": first, "b": second})
    second.update_options({"max_concurrency": 2, "memory": 10})
    second.set_additional_resource({"licence": 1})
    merged = create_colocated_worker_cls({"a": first, "b": second}).options_over({"resources": {"NPU": 1}, "name": "x"})
    resources = {"NPU": 1, "licence": 1}
    assert merged == {"max_concurrency": 2, "num_cpus": 1, "memory": 10, "resources": resources, "name": "x"}
    with pytest.raises(ValueError, match="no roles"):
        create_colocated_worker_cls({})
    with pytest.raises(ValueError, match="does not start with an underscore, got '_a'"):
        create_colocated_worker_cls({"_a": first})
    with pytest.raises(ValueError, match="cannot be named 'rank': fused workers have a member of that name"):
        create_colocated_worker_cls_fused({"rank": first})
    creates: tuple[Any, ...] = (
        create_colocated_worker_cls,
        create_colocated_worker_cls_fused,
        create_colocated_worker_raw_cls,
    )
    for create in creates:
        with pytest.raises(TypeError, match=r"role 'a' is a RayClassWithInitArgs\(cls, ...\), got 3"):
            create({"a": 3})
