"""Pools with accelerators, which Ray only counts: who shares one, who waits, who is refused."""

from __future__ import annotations

import gc
import logging
import os
import pickle
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.contract.pools.device_workers import Blind, Seer
from tests.support.sessions import wait_for
from transferqueue.controller import (
    InsufficientResourcesError,
    PoolSharedOutError,
    RayClassWithInitArgs,
    RayResourcePool,
    RayWorkerGroup,
    ResourcePool,
    ResourcePoolManager,
    merge_resource_pool,
    split_resource_pool,
)
from transferqueue.controller.pools import placement, placement_wait
from transferqueue.controller.pools.existing import extract_pg_from_exist, sort_placement_group_by_node_ip
from transferqueue.controller.pools.rank_place import RankPlace

pytestmark = pytest.mark.timeout(120)


class User:
    """Stands for a group where no process is needed."""


@pytest.fixture(scope="module")
def ray(ray_cluster: Any) -> Any:
    return ray_cluster


def states(ray: Any, name: str) -> list[str]:
    """Of the placement groups whose names start so."""
    table = ray.util.placement_group_table().values()
    return sorted(group["state"] for group in table if group["name"].startswith(name))


def devices_of(ray: Any, places: list[RankPlace]) -> list[str]:
    """What a task in each bundle sees. A function of the standard library: a task of ours would import torch."""
    see = ray.remote(num_cpus=0, num_gpus=1)(os.getenv)
    strategy = ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy
    tasks = [see.options(scheduling_strategy=strategy(place.placement_group, place.bundle_index)) for place in places]
    found: list[str] = ray.get([task.remote("CUDA_VISIBLE_DEVICES") for task in tasks])
    return found


def test_three_groups_see_the_same_devices_and_a_fourth_does_not_start(ray: Any) -> None:
    pool = RayResourcePool([1], max_colocate_count=3, name_prefix="shared")
    groups: list[RayWorkerGroup] = []
    try:
        for cls in (Seer, Seer, Blind):
            groups.append(RayWorkerGroup(pool, RayClassWithInitArgs(cls), device_name="cuda"))
        devices = [group.execute_all_sync("devices") for group in groups]
        assert devices[0] == devices[1] == devices[2]
        assert devices[0][0]
        assert [bundle.devices for bundle in pool.facts().bundles] == [(devices[0][0],)]
        with pytest.raises(PoolSharedOutError, match=r"Blind does not start: 3 worker groups share the pool") as why:
            RayWorkerGroup(pool, RayClassWithInitArgs(Blind))
        with pytest.raises(ValueError, match="needs bundles with NPU; those of pool 'shared' have GPU"):
            RayWorkerGroup(pool, RayClassWithInitArgs(Blind), device_name="npu")
        assert why.value.users == ("Seer", "Seer", "Blind")
        assert "max_colocate_count=3" in str(why.value)
        assert "Bundle 0 of pool 'shared'" in str(why.value)
        assert "is used by Seer, Seer, Blind" in str(why.value)
        assert states(ray, "shared") == ["CREATED"]
    finally:
        pool.remove()  # ends all processes at once
        for group in groups:
            group.close()
    assert states(ray, "shared") == ["REMOVED"]


def test_a_merged_pool_has_the_ranks_of_its_parts_in_their_order(ray: Any) -> None:
    pool = RayResourcePool([2, 1], max_colocate_count=1, name_prefix="merged")
    first, second = split_resource_pool(pool, [2, 1])
    swapped = merge_resource_pool(second, first)
    user, another = User(), User()
    places = pool.acquire(user, name="critic")
    devices = devices_of(ray, places)
    assert len(set(devices)) == 3, "entries on one node have distinct devices"
    assert devices_of(ray, swapped.places()) == [devices[2], *devices[:2]]
    with pytest.raises(PoolSharedOutError, match="is used by critic"):
        swapped.acquire(another)
    pool.release(user)
    assert states(ray, "merged") == ["REMOVED"] * 2
    found = swapped.acquire(another)
    try:
        assert [place.bundle_index for place in found] == [0, 0, 1]
        assert [place.bundle_index for place in places] == [0, 1, 0]
        assert found[1].placement_group == found[2].placement_group != found[0].placement_group
        assert swapped.local_rank_list() == [0, 1, 2]
        assert swapped.local_world_size_list() == [3, 3, 3]
    finally:
        swapped.release(another)
    assert states(ray, "merged") == ["REMOVED"] * 4


def test_a_group_may_leave_the_accelerators_of_its_pool_alone(ray: Any) -> None:
    pool = RayResourcePool([1], max_colocate_count=2, name_prefix="on_cpu")
    with RayWorkerGroup(pool, RayClassWithInitArgs(Blind), name_prefix="reward", use_gpu=False) as group:
        assert group.execute_all_sync("devices") == [""]
        assert pool.facts().users == ("Blind",)
    cpus = RayResourcePool([1], use_gpu=False, max_colocate_count=1)
    with pytest.raises(ValueError, match="has no accelerators"):
        RayWorkerGroup(cpus, RayClassWithInitArgs(Blind), use_gpu=True)
    assert not cpus.is_reserved


def test_the_facts_of_a_pool(ray: Any) -> None:
    pool = RayResourcePool([2, 1], max_colocate_count=3, name_prefix="facts")
    before = pool.facts()
    assert (before.name, before.ranks_per_node, before.world_size, before.is_reserved) == ("facts", (2, 1), 3, False)
    assert (before.bundle, before.device, before.bundles) == ({"CPU": 3.0, "GPU": 1.0}, "GPU", ())
    user = User()
    [*places] = pool.acquire(user, name="critic")
    try:
        pool.note_devices({0: ["5"], 2: ["7"]})
        facts = pool.facts()
        assert [bundle.rank for bundle in facts.bundles] == [0, 1, 2]
        assert [bundle.node_id for bundle in facts.bundles] == [place.node_id for place in places]
        assert [bundle.bundle_index for bundle in facts.bundles] == [0, 1, 0]
        assert [bundle.local_rank for bundle in facts.bundles] == [0, 1, 2]
        assert [bundle.devices for bundle in facts.bundles] == [("5",), (), ("7",)]
        assert [bundle.users for bundle in facts.bundles] == [("critic",)] * 3
        assert facts.bundles[0].placement_group.startswith("facts_0_")
        assert (facts.users, facts.strategy, facts.share) == (("critic",), "STRICT_PACK", pool.share)
        assert facts.nodes == (places[0].node_ip,)
        [_, part] = split_resource_pool(pool, [2, 1])
        assert [(bundle.rank, bundle.devices) for bundle in part.facts().bundles] == [(0, ("7",))]
    finally:
        pool.release(user)
    assert not pool.facts().is_reserved


def test_the_room_is_reserved_once_by_whoever_comes_first(ray: Any) -> None:
    pool = RayResourcePool([2], max_colocate_count=2, name_prefix="once")
    found: list[Any] = []
    threads = [threading.Thread(target=lambda: found.append(pool.get_placement_groups())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert all(groups == found[0] for groups in found)
    assert states(ray, "once") == ["CREATED"]
    assert pool.pgs == found[0]
    # What the program reserved itself stays when the last group is gone.
    user = User()
    pool.acquire(user)
    pool.release(user)
    assert states(ray, "once") == ["CREATED"]
    [half, _] = split_resource_pool(pool, 1)
    assert (half.pgs, half.start_bundle_index) == (found[0], 0)
    half.remove()
    assert states(ray, "once") == ["CREATED"], "a part gives nothing back"
    pool.remove()
    pool.remove()
    assert states(ray, "once") == ["REMOVED"]
    assert pool.pgs is None


def test_what_a_group_reserved_goes_with_the_last_group_also_with_a_dropped_one(ray: Any) -> None:
    pool = RayResourcePool([1], max_colocate_count=2, name_prefix="used")
    first, second = User(), User()
    assert pool.acquire(first) == pool.acquire(second)
    pool.release(first)
    assert states(ray, "used") == ["CREATED"]
    del second
    assert states(ray, "used") == ["REMOVED"]


def test_a_dropped_pool_gives_its_room_back_at_once(ray: Any) -> None:
    gc.disable()
    try:
        pool = RayResourcePool([1], max_colocate_count=1, name_prefix="dropped")
        parts = split_resource_pool(pool, 1)
        pool.get_placement_groups()
        del pool
        assert states(ray, "dropped") == ["CREATED"], "its part stands on it"
        del parts
        assert states(ray, "dropped") == ["REMOVED"]
    finally:
        gc.enable()


@pytest.fixture
def holder(ray: Any) -> Iterator[RayResourcePool]:
    """6 of the 8 GPUs are taken."""
    pool = RayResourcePool([6], max_colocate_count=1, name_prefix="holder")
    pool.get_placement_groups()
    yield pool
    pool.remove()


def test_what_is_busy_is_waited_for_and_said(
    ray: Any, holder: RayResourcePool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(placement_wait, "_FIRST_WORD_S", 0.5)
    late = RayResourcePool([1, 3], max_colocate_count=2, name_prefix="late", timeout_s=6.0)
    with caplog.at_level(logging.WARNING, logger="transferqueue"):
        with pytest.raises(InsufficientResourcesError, match="was not free within 6 s") as caught:
            late.get_placement_groups()
    for text in (str(caught.value), caplog.messages[0]):
        assert "bundle 1 of entry 1 of pool 'late' waits for CPU 2, GPU 1" in text
        assert "GPU 8 (free 1): 1 of the entry's 3 bundles fit" in text
        assert "held by holder_0_" in text
        assert "(CPU 6, GPU 6)" in text
    # The entry that had found room is not kept.
    assert states(ray, "late") == ["REMOVED", "REMOVED"]
    assert not late.is_reserved


def test_what_comes_free_in_time_is_taken(ray: Any, holder: RayResourcePool) -> None:
    late = RayResourcePool([1, 3], max_colocate_count=2, name_prefix="in_time", timeout_s=30.0)
    timer = threading.Timer(0.5, holder.remove)
    timer.start()
    try:
        assert len(late.places()) == 4
    finally:
        timer.join()
        late.remove()


def test_what_can_never_fit_fails_at_once(ray: Any) -> None:
    pool = RayResourcePool([9], max_colocate_count=1, name_prefix="huge", timeout_s=600.0)
    with pytest.raises(InsufficientResourcesError, match=r"more than the cluster has: wanted CPU 9, GPU 9") as caught:
        RayWorkerGroup(pool, RayClassWithInitArgs(Seer))
    assert "in the cluster CPU 160, GPU 8" in str(caught.value)
    assert states(ray, "huge") == []


def test_an_interrupted_reservation_leaves_nothing(ray: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(placement, "wait_until_ready", interrupt)
    pool = RayResourcePool([1, 1], max_colocate_count=1, name_prefix="interrupted")
    with pytest.raises(KeyboardInterrupt):
        pool.acquire(User())
    assert states(ray, "interrupted") == ["REMOVED", "REMOVED"]


def test_all_pools_of_a_manager_are_reserved_or_none(ray: Any) -> None:
    taken = RayResourcePool([1], max_colocate_count=1, name_prefix="taken")
    taken.get_placement_groups()
    manager = ResourcePoolManager(
        {"left": [4], "right": [4]}, {"a": "left", "b": "right"}, max_colocate_count=2, timeout_s=1.0
    )
    try:
        manager.create_resource_pool()
        with pytest.raises(InsufficientResourcesError, match="pool 'right' waits for CPU 2, GPU 1"):
            manager.reserve()
        assert states(ray, "left") == states(ray, "right") == ["REMOVED"]
    finally:
        taken.remove()
    # Ray takes a moment to give back what was removed, and the manager waits for one second only.
    wait_for(lambda: ray.available_resources().get("GPU") == 8, what="the return of what was removed")
    manager.reserve()
    assert [pool.is_reserved for pool in manager.resource_pool_dict.values()] == [True, True]
    manager.remove()
    assert states(ray, "left_0") == ["REMOVED"] * 2


def test_pools_on_placement_groups_that_exist(ray: Any) -> None:
    bundle = {"CPU": 2, "GPU": 1}
    mine = ray.util.placement_group([bundle] * 2, strategy="STRICT_PACK", name="mine")
    other = ray.util.placement_group([bundle], name="other", lifetime="detached")
    pool = RayResourcePool.from_placement_groups([other, "mine"])
    assert (pool.store, pool.max_colocate_count, pool.use_gpu, pool.name_prefix) == ([1, 2], 2, True, "other")
    assert pool.rank_request() == {"num_cpus": 1.0, "num_gpus": 0.5}
    assert pool.get_placement_groups() == [other, mine]
    user = User()
    pool.acquire(user)
    pool.release(user)
    pool.remove()
    assert states(ray, "mine") == states(ray, "other") == ["CREATED"], "they are not the pool's to remove"

    some = RayResourcePool.from_placement_groups(["mine"], [1], use_gpu=False, max_colocate_count=4, name_prefix="some")
    assert (some.store, some.name_prefix, some.rank_request()) == ([1], "some", {"num_cpus": 0.5})
    whole = RayResourcePool.from_placement_groups([mine])
    assert merge_resource_pool(whole, RayResourcePool.from_placement_groups([other])).pgs is None
    assert sort_placement_group_by_node_ip([other, mine]) == [other, mine], "of one address: as they were"
    sources = {"actor": whole, "critic": RayResourcePool.from_placement_groups([other]), "else": some}
    assert extract_pg_from_exist(sources, ["actor", "critic"], ResourcePool([1, 2])) == [other, mine]
    with pytest.raises(InsufficientResourcesError, match=r"\[3\] bundles per node does not fit .* which have \[2\]"):
        extract_pg_from_exist(sources, ["actor"], ResourcePool([3]))
    with pytest.raises(ValueError, match=r"process_on_nodes=\[3\] does not fit placement groups of \[2\] bundles"):
        RayResourcePool.from_placement_groups([mine], [3])
    with pytest.raises(ValueError, match="each of them once"):
        RayResourcePool.from_placement_groups([mine, "mine"])

    adopted = RayResourcePool.from_placement_groups([mine, other], adopt=True)
    adopted.places()
    adopted.remove()
    assert states(ray, "mine") == states(ray, "other") == ["REMOVED"]
    with pytest.raises(ValueError, match=r"placement groups \['mine'\] were removed"):
        RayResourcePool.from_placement_groups([mine])


def test_a_bundle_that_another_program_uses_is_named_to_who_waits_for_it(ray: Any) -> None:
    group = ray.util.placement_group([{"CPU": 2, "GPU": 1}], name="theirs")
    assert group.wait(10)
    strategy = ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy(group, 0)
    theirs = ray.remote(num_cpus=0, num_gpus=0.75)(threading.Event).options(scheduling_strategy=strategy).remote()
    ray.get(theirs.is_set.remote())
    pool = RayResourcePool.from_placement_groups([group], name_prefix="theirs")
    try:
        deadline_s = time.monotonic() + 20.0
        while "GPU 0.25 free" not in pool.describe_wait([0], pool.rank_request()) and time.monotonic() < deadline_s:
            time.sleep(0.1)  # Ray counts a moment later
        text = pool.describe_wait([0], pool.rank_request())
        assert "each waits for CPU 1, GPU 0.5; bundle 0 of pool 'theirs', on " in text
        assert "has CPU 2, GPU 0.25 free: others hold the rest" in text
        assert pool.describe_wait([0], {"num_gpus": 0.2}).endswith("which is enough: its process is starting")
    finally:
        ray.util.remove_placement_group(group)


def test_bundles_of_one_pool_are_equal(ray: Any) -> None:
    uneven = ray.util.placement_group([{"CPU": 1}, {"CPU": 2}], name="uneven")
    try:
        with pytest.raises(ValueError, match="these differ: CPU 1 and CPU 2"):
            RayResourcePool.from_placement_groups([uneven])
    finally:
        ray.util.remove_placement_group(uneven)


def test_a_pool_that_is_sent_is_the_same_room(ray: Any) -> None:
    pool = RayResourcePool([2, 1], max_colocate_count=2, name_prefix="sent")
    _, part = split_resource_pool(pool, [1, 2])
    there, part_there = pickle.loads(pickle.dumps((pool, part)))
    assert there.places() == pool.places()
    assert part_there.places() == part.places()
    assert (there.store, there.name_prefix, there.rank_request()) == ([2, 1], "sent", pool.rank_request())
    there.remove()
    assert states(ray, "sent") == ["CREATED"] * 2
    # Users are counted there too, over both.
    users = [User(), User(), User()]
    there.acquire(users[0])
    part_there.acquire(users[1])
    with pytest.raises(PoolSharedOutError):
        part_there.acquire(users[2])
    pool.remove()


def test_room_that_was_removed_behind_the_pools_back_is_reserved_anew(ray: Any) -> None:
    pool = RayResourcePool([1], max_colocate_count=1, name_prefix="behind")
    [group] = pool.get_placement_groups()
    ray.util.remove_placement_group(group)
    user = User()
    [place] = pool.acquire(user)
    assert place.placement_group != group
    assert states(ray, "behind") == ["CREATED", "REMOVED"]
    pool.remove()


def test_a_detached_pool_is_given_back_by_remove_only(ray: Any) -> None:
    pool = RayResourcePool([1], max_colocate_count=1, name_prefix="detached", detached=True)
    [group] = pool.get_placement_groups()
    del pool
    gc.collect()
    time.sleep(0.2)
    assert states(ray, "detached") == ["CREATED"]
    found = RayResourcePool.from_placement_groups([group], adopt=True)
    found.places()
    found.remove()
    assert states(ray, "detached") == ["REMOVED"]
