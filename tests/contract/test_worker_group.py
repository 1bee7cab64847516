"""`RayWorkerGroup`: starting, calling, failing and ending ranks on a real cluster."""

from __future__ import annotations

import asyncio
import gc
import pickle
import subprocess
import sys
import time
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tensordict import NonTensorStack, TensorDict

from tests.contract.group_workers import Basic, Parallel, Sync
from transferqueue.controller import (
    Broadcast,
    InsufficientResourcesError,
    PerRank,
    RayClassWithInitArgs,
    RayResourcePool,
    RayWorkerGroup,
    WorkerDiedError,
    WorkerError,
    WorkerGroupDeadError,
    WorkerStartError,
)
from transferqueue.errors import TransferTimeoutError

pytestmark = pytest.mark.timeout(120)


def start(cls: type, ranks: list[int], *args: Any, **options: Any) -> RayWorkerGroup:
    pool = RayResourcePool(ranks, use_gpu=False)
    return RayWorkerGroup(pool, RayClassWithInitArgs(cls, *args), **options)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_for_cpus(ray: Any, wanted: float) -> bool:
    """Whether so many are free again soon; Ray counts a moment later than it frees."""
    deadline = time.monotonic() + 20.0
    while free_cpus(ray) < wanted and time.monotonic() < deadline:
        time.sleep(0.1)
    return free_cpus(ray) >= wanted


def free_cpus(ray: Any) -> float:
    return float(ray.available_resources().get("CPU", 0.0))


@pytest.fixture(scope="module")
def basic(ray_cluster: Any) -> Iterator[RayWorkerGroup]:
    with start(Basic, [4], 100, worker_env={"GROUP_TEST_EXTRA": "here"}) as group:
        yield group


def test_ranks_know_their_place(basic: RayWorkerGroup) -> None:
    places = basic.place()
    assert [place["rank"] for place in places] == [0, 1, 2, 3]
    assert [place["local_rank"] for place in places] == [0, 1, 2, 3]
    assert {place["world_size"] for place in places} == {place["local_world_size"] for place in places} == {4}
    assert {place["base"] for place in places} == {100}
    assert {place["extra"] for place in places} == {"here"}
    assert len({place["pid"] for place in places}) == 4
    assert {place["master"] for place in places} == {(basic.master_address, basic.master_port)}
    assert basic.world_size == 4


def test_ways_to_call(basic: RayWorkerGroup, ray_cluster: Any) -> None:
    assert basic.alone(5) == 105
    assert basic.spread([1, 2, 3, 4]) == [(0, 1), (1, 2), (2, 3), (3, 4)]
    assert basic.spread(Broadcast([1, 2, 3, 4]))[2] == (2, [1, 2, 3, 4])
    assert basic.coroutine(1) == [1, 2, 3, 4]
    assert basic.execute_all_sync("unregistered", [5, 6, 7, 8])[3] == (3, 8)
    assert basic.execute_all_sync("unregistered", value=PerRank("abcd"))[1] == (1, "b")
    assert basic.execute_all_sync("unregistered", "v")[1] == (1, "v")
    assert basic.execute_all_async("unregistered", 1).get() == [(0, 1), (1, 1), (2, 1), (3, 1)]
    assert ray_cluster.get(basic.execute_all("unregistered", 1)) == [(0, 1), (1, 1), (2, 1), (3, 1)]
    assert basic.execute_rank_zero_sync("unregistered", 9) == (0, 9)
    assert ray_cluster.get(basic.execute_rank_zero_async("unregistered", 9)) == (0, 9)
    assert ray_cluster.get(basic.execute_rank_zero("unregistered", 9)) == (0, 9)
    assert ray_cluster.get(basic.workers[2].unregistered.remote(1)) == (2, 1)


def test_futures(basic: RayWorkerGroup, ray_cluster: Any) -> None:
    started = time.monotonic()
    future = basic.slow(0.5)
    assert time.monotonic() - started < 0.4
    assert not future.done()
    with pytest.raises(TransferTimeoutError, match=r"slow: 4 of 4 ranks have not answered after 0.05 s") as caught:
        future.get(timeout_s=0.05)
    assert caught.value.missing == [0, 1, 2, 3]
    assert future.get() == future.get() == [0, 1, 2, 3]
    assert future.done()
    assert ray_cluster.get(basic.slow(0.0)) == [0, 1, 2, 3]

    async def wait() -> Any:
        return await basic.slow(0.0)

    assert asyncio.run(wait()) == [0, 1, 2, 3]
    assert basic.spread(basic.slow(0.0))[1] == (1, 1), "a future among the arguments is waited for"


def test_batches_by_value(basic: RayWorkerGroup) -> None:
    batch = TensorDict(
        {
            "x": torch.arange(10),
            "ragged": torch.nested.nested_tensor([torch.arange(i) for i in range(10)], layout=torch.jagged),
            "uid": NonTensorStack(*(f"u{i}" for i in range(10))),
        },
        [10],
    )
    result = basic.double(batch)
    assert result["y"].tolist() == list(range(0, 20, 2))
    assert [row.tolist() for row in result["ragged"].unbind()] == [list(range(i)) for i in range(10)]
    assert result["uid"] == [f"u{i}" for i in range(10)]


def test_weights_reach_every_rank(basic: RayWorkerGroup) -> None:
    assert basic.checksum({"w": torch.ones(200_000)}) == [200_000.0] * 4


def test_an_error_names_rank_node_and_method_and_carries_the_traceback(basic: RayWorkerGroup) -> None:
    with pytest.raises(KeyError) as caught:
        basic.fail(2)
    error = caught.value
    assert isinstance(error, WorkerError)
    assert (error.rank, error.method) == (2, "fail")
    assert error.pid == basic.place()[2]["pid"]
    assert basic.master_address in error.node
    assert "missing on 2" in error.remote_traceback
    assert "group_workers.py" in error.remote_traceback
    assert "fail failed on rank 2" in str(error)
    assert "KeyError: missing on 2" in str(error)
    assert "bridge.py" not in str(error), "the traceback is that of the method"
    assert not [line for line in str(error).splitlines() if line and not line.strip(" ~^")]
    assert "\x1b" not in str(error), "no colour codes in what goes to logs"
    assert pickle.loads(pickle.dumps(error)).rank == 2
    assert not basic.is_dead
    assert basic.alone(0) == 100, "the group goes on"


def test_groups_share_a_pool_and_the_last_one_gives_it_back(ray_cluster: Any) -> None:
    before = free_cpus(ray_cluster)
    pool = RayResourcePool([1], use_gpu=False, max_colocate_count=2)
    first = RayWorkerGroup(pool, RayClassWithInitArgs(Sync))
    second = RayWorkerGroup(pool, RayClassWithInitArgs(Sync))
    with pytest.raises(ValueError, match="2 worker groups share the pool already"):
        RayWorkerGroup(pool, RayClassWithInitArgs(Sync))
    pids = first.pid() + second.pid()
    groups = pool.get_placement_groups()
    first.shutdown()
    assert second.pid() == pids[1:]
    with pytest.raises(WorkerGroupDeadError, match="shut down"):
        first.pid()
    second.shutdown()
    second.shutdown()
    assert wait_for_cpus(ray_cluster, before)
    assert not [pid for pid in pids if alive(pid)]
    states = [ray_cluster.util.placement_group_table(group)["state"] for group in groups]
    assert states == ["REMOVED"]


def test_field_case_108_a_pool_larger_than_the_cluster_is_an_error_with_what_is_there(ray_cluster: Any) -> None:
    before = free_cpus(ray_cluster)
    with pytest.raises(InsufficientResourcesError, match="wanted CPU 320; in the cluster CPU 160") as caught:
        start(Sync, [32])
    assert caught.value.wanted == {"CPU": 320.0}
    assert caught.value.present == {"CPU": 160.0}
    assert wait_for_cpus(ray_cluster, before)


def test_a_pool_whose_room_is_taken_says_so(ray_cluster: Any) -> None:
    taken = RayResourcePool([11], use_gpu=False)
    taken.get_placement_groups()
    try:
        pool = RayResourcePool([8], use_gpu=False, timeout_s=1.0)
        with pytest.raises(InsufficientResourcesError, match=r"(?s)was not free within 1 s: .*wanted CPU 80"):
            RayWorkerGroup(pool, RayClassWithInitArgs(Sync))
    finally:
        taken.remove()


def test_room_that_a_program_dropped_in_a_cycle_is_found(ray_cluster: Any) -> None:
    class Trainer:
        def __init__(self) -> None:
            self.pool = RayResourcePool([11], use_gpu=False)
            self.pool.get_placement_groups()
            self.callback = self.step

        def step(self) -> None: ...

    gc.disable()
    try:
        Trainer()
        pool = RayResourcePool([8], use_gpu=False, timeout_s=20.0)
        pool.get_placement_groups()
        pool.remove()
    finally:
        gc.enable()


def test_an_actor_that_cannot_be_placed_is_an_error(ray_cluster: Any) -> None:
    with_args = RayClassWithInitArgs(Sync)
    with_args.update_options({"num_cpus": 11})  # a rank's room is ten CPUs
    before = free_cpus(ray_cluster)
    with pytest.raises(WorkerStartError, match=r"rank 0 of Sync cannot be placed: .*'CPU': 11"):
        RayWorkerGroup(RayResourcePool([1], use_gpu=False), with_args)
    assert wait_for_cpus(ray_cluster, before)


def test_a_class_that_ranks_cannot_import_is_an_error(ray_cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ghost = types.ModuleType("only_the_driver_has_this")
    exec("class Ghost:\n    pass", ghost.__dict__)
    monkeypatch.setitem(sys.modules, ghost.__name__, ghost)
    before = free_cpus(ray_cluster)
    with pytest.raises(WorkerStartError, match=r"(?s)rank 0 of Ghost did not start: .*only_the_driver_has_this"):
        start(ghost.Ghost, [1])
    assert wait_for_cpus(ray_cluster, before)


def test_a_group_that_is_dropped_gives_its_room_back(ray_cluster: Any) -> None:
    before = free_cpus(ray_cluster)
    gc.disable()  # at once, and not when the garbage collector comes by
    try:
        group = start(Sync, [1])
        pid = group.pid()[0]
        del group
        assert wait_for_cpus(ray_cluster, before)
    finally:
        gc.enable()
    deadline = time.monotonic() + 20.0
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not alive(pid)


DRIVER = """
import sys
import ray
from tests.contract.group_workers import Sync
from transferqueue.controller import RayClassWithInitArgs, RayResourcePool, RayWorkerGroup

ray.init(address=sys.argv[1], log_to_driver=False)
pool = RayResourcePool([1], use_gpu=False, name_prefix="train")
group = RayWorkerGroup(pool, RayClassWithInitArgs(Sync))
print("started", len(group.pid()), flush=True)
raise RuntimeError("the driver fails here")
"""


def test_field_case_106_a_driver_that_failed_can_be_run_again_in_the_same_cluster(
    ray_cluster: Any, basic: RayWorkerGroup
) -> None:
    address = ray_cluster.get_runtime_context().gcs_address
    in_use = basic.world_size
    assert wait_for_cpus(ray_cluster, 160 - 10 * in_use)
    taken = RayResourcePool([15 - in_use], use_gpu=False)  # a second run finds no room beside what the first left
    taken.get_placement_groups()
    try:
        for _ in range(2):
            run = subprocess.run(
                [sys.executable, "-c", DRIVER, address], capture_output=True, text=True, timeout=100, check=False
            )
            assert run.stdout == "started 1\n", run.stderr
            assert "the driver fails here" in run.stderr
    finally:
        taken.remove()


def test_field_case_105_collectives_among_ranks_and_a_death_inside_one(ray_cluster: Any) -> None:
    with start(Parallel, [4]) as group:
        assert group.setup() == [(0, True), (0, False), (1, True), (1, False)]
        for count in (5, 1):
            result = group.sum_over_tp(TensorDict({"x": torch.arange(count)}, [count]))
            assert result["y"].tolist() == [2.0 * i for i in range(count)]
            assert result["rows_seen"] == 2.0 * count
        with pytest.raises(WorkerDiedError) as caught:
            group.die_in_collective(1)
        error = caught.value
        assert error.rank == 1, "the death is reported, not the broken collective of its peers"
        assert group.master_address in error.node
        assert error.reason
        assert group.is_dead
