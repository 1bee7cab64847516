"""What ranks are told, where they meet, and how they join process groups: on a Ray cluster with logical GPUs."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contract.rank_workers import Member
from transferqueue.controller import RayClassWithInitArgs, RayResourcePool, RayWorkerGroup, WorkerError
from transferqueue.workers import NoFreePortError

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def pool(ray_cluster: Any) -> RayResourcePool:
    return RayResourcePool([2], use_gpu=True, max_colocate_count=2)


@pytest.fixture(scope="module")
def trainers(pool: RayResourcePool) -> Iterator[RayWorkerGroup]:
    """Each rank sees its own device; the port comes from a range."""
    first = free_port()
    options = {"master_port_range": (first, 65536), "worker_env": {"RANK_TEST_EXTRA": "here"}}
    with RayWorkerGroup(pool, RayClassWithInitArgs(Member), **options) as group:
        yield group


@pytest.fixture(scope="module")
def rollouts(trainers: RayWorkerGroup, pool: RayResourcePool) -> Iterator[RayWorkerGroup]:
    """All devices visible; the meeting point is given and has an IPv6 address."""
    noset = {"RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES": "1"}
    options = {"master_addr": "[::1]", "master_port": free_port(), "worker_env": noset}
    with RayWorkerGroup(pool, RayClassWithInitArgs(Member), **options) as group:
        yield group


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def test_the_contract_reaches_every_rank(trainers: RayWorkerGroup, ray_cluster: Any) -> None:
    told = trainers.told()
    assert [rank["RANK"] for rank in told] == ["0", "1"]
    for key in ("LOCAL_RANK", "RAY_LOCAL_RANK"):
        assert [rank[key] for rank in told] == ["0", "1"], key
    for key in ("WORLD_SIZE", "LOCAL_WORLD_SIZE", "RAY_LOCAL_WORLD_SIZE"):
        assert {rank[key] for rank in told} == {"2"}, key
    assert {rank["WG_BACKEND"] for rank in told} == {"ray"}
    assert {rank["DISABLE_WORKER_INIT"] for rank in told} == {None}
    address = trainers.master_address
    assert {rank["REDIS_STORE_SERVER_HOST"] for rank in told} == {address}
    assert [rank["nodes"] for rank in told] == [{0: address, 1: address}] * 2
    node = ray_cluster.get_runtime_context().get_node_id()
    assert [[rank["node_id"], *rank["node_ids"]] for rank in told] == [[node] * 3] * 2
    assert not any(rank["in_process_group"] for rank in told), "a worker joins nothing by itself"


def test_a_rank_sees_its_own_device(trainers: RayWorkerGroup) -> None:
    told = trainers.told()
    devices = [rank["devices"] for rank in told]
    assert len(set(devices)) == 2
    assert all(device.isdecimal() for device in devices)
    assert [rank["device_index"] for rank in told] == [0, 0]


def test_a_rank_that_sees_all_devices_is_told_its_own(trainers: RayWorkerGroup, rollouts: RayWorkerGroup) -> None:
    told = rollouts.told()
    numbers = [rank["devices"] for rank in trainers.told()]  # of the same bundles
    assert [rank["devices"] for rank in told] == ["not set", "not set"]
    assert [rank["LOCAL_RANK"] for rank in told] == [str(rank["device_index"]) for rank in told] == numbers
    assert [rank["RAY_LOCAL_RANK"] for rank in told] == ["0", "1"]
    assert {rank["LOCAL_WORLD_SIZE"] for rank in told} == {"2"}


def test_the_port_is_held_from_the_moment_it_is_chosen(trainers: RayWorkerGroup, rollouts: RayWorkerGroup) -> None:
    master = trainers.master_address, trainers.master_port
    assert {rank["master"] for rank in trainers.told()} == {master}
    assert "in use" in rollouts.somebody_else_listens(int(trainers.master_port)), "nobody has joined yet"
    assert {rank["master"] for rank in rollouts.told()} == {("::1", rollouts.master_port)}


def test_the_group_decides_what_is_its_own(pool: RayResourcePool) -> None:
    member = RayClassWithInitArgs(Member)
    with pytest.raises(ValueError, match="worker_env sets MASTER_PORT='1'"):
        RayWorkerGroup(pool, member, worker_env={"MASTER_PORT": "1"})
    with pytest.raises(ValueError, match="give both, or neither"):
        RayWorkerGroup(pool, member, master_addr="10.0.0.1")
    with pytest.raises(ValueError, match="master_port_range"):
        RayWorkerGroup(pool, member, master_addr="10.0.0.1", master_port=1, master_port_range=(1, 2))
    with pytest.raises(ValueError, match="master_port must be 1 to 65535, got 'x'"):
        RayWorkerGroup(pool, member, master_addr="10.0.0.1", master_port="x")


def test_process_groups_and_weights_between_them(trainers: RayWorkerGroup, rollouts: RayWorkerGroup) -> None:
    assert trainers.join() == [(3.0, (0, True), [0, 2]), (3.0, (1, False), [1, 2])]
    assert rollouts.join_by_torch() == [(3.0, [0, 2]), (3.0, [1, 2])]
    assert trainers.dispatch_info("train") == [0, 1]
    assert trainers.dispatch_info("infer") == [0, 0], "a group holds meshes of different DP sizes"
    for _ in range(2):
        master = trainers.meeting_point()
        sent, received = trainers.sync_weights(master, 0, 4), rollouts.sync_weights(master, 2, 4)
        assert sent.get() + received.get() == [[1.0, 2.0, 3.0]] * 4


def test_every_rank_gets_the_rows_of_all(trainers: RayWorkerGroup) -> None:
    trainers.join_again(None)  # does nothing when it is joined
    names = ["rank 0", "rank 1", "rank 1"]
    assert trainers.gather() == [([[0], [0, 1], [0, 1, 2]], names, {"own": rank}) for rank in range(2)]


def test_a_number_goes_through_both_groups(trainers: RayWorkerGroup, rollouts: RayWorkerGroup) -> None:
    master = rollouts.meeting_point()  # rank 0 may be of either group
    first, second = rollouts.pass_on(master, 0, 4), trainers.pass_on(master, 2, 4)
    assert first.get() + second.get() == [1.0, 2.0, 3.0, 4.0]


def test_ranks_leave_their_process_group_and_join_another(trainers: RayWorkerGroup, tmp_path: Path) -> None:
    for init_method in (None, None, f"file://{tmp_path}/meeting"):
        trainers.leave()
        assert trainers.join_again(init_method) == [3.0, 3.0]
    assert (tmp_path / "meeting").exists()


def test_a_range_without_a_free_port_is_an_error_of_the_start(ray_cluster: Any) -> None:
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(WorkerError, match=f"rank 0 .*every port from {port} to {port} of .* is taken") as caught:
            RayWorkerGroup(
                RayResourcePool([1], use_gpu=False, max_colocate_count=1),
                RayClassWithInitArgs(Member),
                master_port_range=(port, port + 1),
            )
    assert isinstance(caught.value, NoFreePortError)
