"""What only groups on Ray have: actors with names and options, which may outlive their program, and die."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from tensordict import TensorDict

import transferqueue as tq
from tests.contract.worker_group.workers import Calm, Reporter
from tests.support.sessions import SIZE
from transferqueue.controller import (
    DetachedWorkersNotFoundError,
    RayClassWithInitArgs,
    RayResourcePool,
    RayWorkerGroup,
    WorkerDiedError,
    WorkerGroupDeadError,
)

pytestmark = pytest.mark.timeout(180)


def start(ranks: int, cls: type = Reporter, **options: Any) -> RayWorkerGroup:
    pool = RayResourcePool([ranks], use_gpu=False, max_colocate_count=2)
    return RayWorkerGroup(pool, RayClassWithInitArgs(cls), **options)


@pytest.fixture(scope="module")
def group(ray_cluster: Any) -> Iterator[RayWorkerGroup]:
    with start(2, name_prefix="seen_") as group:
        yield group


def test_actors_have_the_names_of_the_group(group: RayWorkerGroup) -> None:
    assert group.worker_names == ["seen_Reporter_0:0", "seen_Reporter_0:1"]
    assert [facts["name"] for facts in group.ray_facts()] == group.worker_names
    assert group[1].worker_names == ["seen_Reporter_0:1"]
    assert group.title() == ["ray::Reporter.title"] * 2


def test_a_group_starts_beside_one_of_the_same_name(group: RayWorkerGroup, ray_cluster: Any) -> None:
    """And one class with its arguments serves several groups, none of which leaves anything in it."""
    held = RayClassWithInitArgs(ray_cluster.remote(Reporter))
    held.update_options({"max_concurrency": 1, "runtime_env": {"env_vars": {"GROUP_TEST_EXTRA": "from options"}}})
    held.set_additional_resource({"memory": 2**20})
    pool = RayResourcePool([1], max_colocate_count=2, further_resources={"memory": 2**20})
    with RayWorkerGroup(pool, held, name_prefix="seen_", device_name="cuda") as second:
        assert second.worker_names[0].startswith("seen_")
        assert second.worker_names[0] not in group.worker_names
        assert second.ray_facts()[0]["extra"] == "from options"
        assert second.ray_facts()[0]["resources"] == {"CPU": 1.0, "GPU": 0.5, "memory": 2**20}
        with RayWorkerGroup(pool, held, worker_env={"GROUP_TEST_EXTRA": "from the group"}, use_gpu=False) as third:
            assert third.ray_facts()[0]["resources"] == {"CPU": 1.0, "memory": 2**20}
            assert third.ray_facts()[0]["extra"] == "from the group"
            assert third.worker_names[0] != second.worker_names[0]
        assert second.ray_facts()[0]["extra"] == "from options"
    assert held.options_over({}) == {
        "memory": 2**20,
        "max_concurrency": 1,
        "runtime_env": {"env_vars": {"GROUP_TEST_EXTRA": "from options"}},
    }


def test_workers_by_handle_and_by_name(group: RayWorkerGroup, ray_cluster: Any) -> None:
    by_handle = RayWorkerGroup.from_detached(worker_handles=group.workers[::-1])
    pids = [facts["pid"] for facts in group.ray_facts()]
    assert [facts["pid"] for facts in by_handle.ray_facts()] == pids[::-1], "methods are those of the workers' class"
    assert by_handle.worker_names == group.worker_names[::-1]
    assert by_handle.master_address == group.master_address
    by_handle.close()
    assert group.title() == ["ray::Reporter.title"] * 2, "closing a group that started nothing ends nothing"
    by_name = RayWorkerGroup(worker_names=group.worker_names, ray_cls_with_init=RayClassWithInitArgs(Reporter))
    assert [facts["pid"] for facts in by_name.ray_facts()] == pids
    by_prefix = RayWorkerGroup.from_detached("seen_", ray_cls_with_init=RayClassWithInitArgs(Reporter))
    assert by_prefix.worker_names == group.worker_names
    with pytest.raises(DetachedWorkersNotFoundError, match="no living actor is called 'nobody'") as caught:
        RayWorkerGroup.from_detached(worker_names=["nobody"])
    assert caught.value.missing == ("nobody",)
    with pytest.raises(ValueError, match="which workers"):
        RayWorkerGroup()


def test_plain_actors_as_ranks_and_one_that_shares_with_another(group: RayWorkerGroup, ray_cluster: Any) -> None:
    host = RayClassWithInitArgs(Reporter)(num_gpus=2)
    guest = RayClassWithInitArgs(Reporter)(sharing_with=host)
    try:
        group = RayWorkerGroup.from_detached(
            worker_handles=[host, guest], ray_cls_with_init=RayClassWithInitArgs(Reporter)
        )
        facts = group.ray_facts()
        assert facts[0]["node_id"] == facts[1]["node_id"]
        assert facts[0]["devices"] == facts[1]["devices"] == "0,1", "the other's devices, of which it takes nothing"
        assert facts[0]["resources"]["GPU"] == 2.0
        assert "GPU" not in facts[1]["resources"]
        assert facts[0]["pid"] != facts[1]["pid"]
        assert group.worker_names == ["", ""]
    finally:
        ray_cluster.kill(host)
        ray_cluster.kill(guest)


def test_options_that_cannot_be(ray_cluster: Any) -> None:
    with pytest.raises(ValueError, match=r"detached group needs room that outlives .*detached=True"):
        start(1, detached=True)
    with pytest.raises(TypeError, match="worker_names and worker_handles are for a group without a pool"):
        start(1, worker_names=["a"])


def test_a_death_is_told_with_its_last_words_and_while_waiting_for_others(
    group: RayWorkerGroup, ray_cluster: Any
) -> None:
    with start(2) as mortal:
        pid = mortal.ray_facts()[1]["pid"]
        mortal.start_worker_aliveness_check(0.1)
        mortal[1].execute_all_async("die", mortal.world_size - 1)
        began = time.monotonic()
        with pytest.raises(WorkerDiedError, match=r"(?s)rank 1 .* died; .*about to end") as caught:
            group.sleep(60.0).get()  # of another group; its own rank 1 is not the one
        assert (caught.value.pid, caught.value.method) == (pid, None)
        assert caught.value.log_lines[-1] == "about to end"
        assert "killed by a signal" in caught.value.reason
        assert time.monotonic() - began < 50.0, "not when the other call is over"
        assert not group.is_dead
        with pytest.raises(WorkerGroupDeadError, match="rank 1"):
            mortal.title()
    assert not [thread for thread in threading.enumerate() if thread.name == "worker-aliveness"]


FIRST = """
import sys
import ray
import torch
from tensordict import TensorDict
import transferqueue as tq
from tests.contract.worker_group.workers import Reporter
from transferqueue.controller import RayClassWithInitArgs, RayResourcePool, RayWorkerGroup

ray.init(address=sys.argv[1], log_to_driver=False)
tq.init(**{"storage.size": sys.argv[2]})
pool = RayResourcePool([2], use_gpu=False, max_colocate_count=1, detached=True)
group = RayWorkerGroup(pool, RayClassWithInitArgs(Reporter), name_prefix="left_", detached=True)
meta = tq.put(TensorDict({"x": torch.arange(6)}, [6]), partition_id="rows")
group.plus_one(meta)
print("started", *group.worker_names, *[facts["pid"] for facts in group.ray_facts()], flush=True)
"""


def test_detached_ranks_outlive_their_program_and_the_next_one_goes_on_with_the_rows(ray_cluster: Any) -> None:
    address = ray_cluster.get_runtime_context().gcs_address
    first = subprocess.run(
        [sys.executable, "-c", FIRST, address, str(SIZE)], capture_output=True, text=True, timeout=100, check=False
    )
    assert "started" in first.stdout, first.stderr
    words = first.stdout.partition("started ")[2].split("\n")[0].split()
    names, pids = words[:2], [int(pid) for pid in words[2:]]
    assert names == ["left_Reporter_0:0", "left_Reporter_0:1"]
    assert "anonymous namespace" not in first.stdout
    group = RayWorkerGroup.from_detached(worker_names=names)
    try:
        assert [facts["pid"] for facts in group.ray_facts()] == pids
        with tq.init() as session:
            client = tq.get_client()
            meta = client.get_meta(["x", "y"], 6, "rows", mode="force_fetch")
            assert client.get_data(meta)["y"].tolist() == [1, 2, 3, 4, 5, 6], "what the first program's ranks wrote"
            group.plus_one(meta.select_fields(["x"]))
            more = tq.put(TensorDict({"x": torch.tensor([10])}, [1]), partition_id="rows")
            result = group.plus_one(more)
            assert client.get_data(result)["y"].tolist() == [11]
            assert result.get_extra_info("title") == "ray::Reporter.plus_one"
            assert session.name
        # The next run of the first program starts beside what that left.
        pool = RayResourcePool([1], use_gpu=False, max_colocate_count=1, detached=True)
        with RayWorkerGroup(pool, RayClassWithInitArgs(Calm), name_prefix="left_", detached=True) as again:
            assert len(again.place()) == 1
        group.close()
        with pytest.raises(WorkerGroupDeadError):
            group.ray_facts()
        assert RayWorkerGroup.from_detached("left_").ray_facts()[0]["pid"] == pids[0], "closing ended nothing"
    finally:
        group.kill()
    with pytest.raises(DetachedWorkersNotFoundError):
        RayWorkerGroup.from_detached(worker_names=names)
