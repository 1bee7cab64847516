"""Pools by name and by role, with the cluster replaced by a table of nodes."""

from __future__ import annotations

import pytest

from tests.unit.controller.pools.fake_cluster import use_cluster
from transferqueue.controller import InsufficientResourcesError, PoolNotFoundError, ResourcePoolManager, Role


def manager(**options: object) -> ResourcePoolManager:
    spec = {"global_pool": [4, 4], "reward_pool": [2]}
    mapping = {Role.ActorRollout: "global_pool", Role.Critic: "global_pool", "judge": "reward_pool"}
    return ResourcePoolManager(resource_pool_spec=spec, mapping=mapping, **options)  # type: ignore[arg-type]


def test_roles_find_their_pools(monkeypatch: pytest.MonkeyPatch) -> None:
    use_cluster(monkeypatch, *[{"CPU": 32.0, "GPU": 8.0}] * 2)
    pools = manager()
    with pytest.raises(PoolNotFoundError, match=r"not made yet: call create_resource_pool\(\)"):
        pools.get_resource_pool(Role.Critic)
    pools.create_resource_pool()
    actor, critic = pools.get_resource_pool(Role.ActorRollout), pools.get_resource_pool(Role.Critic)
    assert actor is critic
    assert (actor.store, actor.name_prefix, actor.max_colocate_count, actor.use_gpu) == ([4, 4], "global_pool", 3, True)
    assert pools.get_resource_pool("judge").store == [2]
    assert pools.get_n_gpus() == 10
    assert list(pools.resource_pool_dict) == ["global_pool", "reward_pool"]
    with pytest.raises(KeyError, match="no pool for role env; there are pools for actor_rollout, critic, judge"):
        pools.get_resource_pool(Role.Env)


def test_a_role_without_a_pool_in_the_specification(monkeypatch: pytest.MonkeyPatch) -> None:
    use_cluster(monkeypatch, {"CPU": 32.0})
    pools = ResourcePoolManager({"a": [1]}, {Role.Actor: "b"})
    with pytest.raises(PoolNotFoundError, match=r"role actor is mapped to pool 'b'; specified are \['a'\]"):
        pools.create_resource_pool()


def test_accelerators_by_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    use_cluster(monkeypatch, *[{"CPU": 32.0, "GPU": 4.0}] * 2)
    with pytest.raises(InsufficientResourcesError):
        manager().create_resource_pool()
    pools = manager(use_gpu={"reward_pool": False})
    pools.create_resource_pool()
    assert pools.get_resource_pool(Role.Critic).use_gpu
    assert not pools.get_resource_pool("judge").use_gpu
    assert pools.get_n_gpus() == 8


def test_all_pools_must_fit_at_the_same_time_node_by_node(monkeypatch: pytest.MonkeyPatch) -> None:
    # 10 GPUs for 10 ranks, but 4 + 4 leave 1 and 1, and the two ranks of the reward pool belong on one node.
    use_cluster(monkeypatch, *[{"CPU": 64.0, "GPU": 5.0}] * 2)
    pools = manager()
    with pytest.raises(ValueError, match="together is more than the cluster has") as caught:
        pools.create_resource_pool()
    assert "'global_pool' of [4, 4]" in str(caught.value)
    assert "'reward_pool' of [2]" in str(caught.value)
    assert pools.resource_pool_dict == {}
    manager(bin_pack=False).create_resource_pool()
