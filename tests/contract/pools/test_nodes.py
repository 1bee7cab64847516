"""Pools on two nodes of different size."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.contract.pools.device_workers import Seer
from tests.support.warm_workers import warm_workers
from transferqueue.controller import (
    InsufficientResourcesError,
    RayClassWithInitArgs,
    RayResourcePool,
    RayWorkerGroup,
    ResourcePoolManager,
    split_resource_pool,
)
from transferqueue.workers import RankNodes

pytestmark = pytest.mark.timeout(120)


class User:
    """Stands for a group where no process is needed."""


@dataclass
class Nodes:
    """GPUs by node id: a node of 2 and one of 4, `large`."""

    sizes: dict[str, int]
    cluster: Any
    large: Any


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    os.environ.setdefault("RAY_worker_niceness", "0")
    os.environ.setdefault("RAY_prestart_worker_first_driver", "0")
    head = {"num_cpus": 12, "num_gpus": 2, "include_dashboard": False}
    with warm_workers():
        cluster = Cluster(initialize_head=True, head_node_args=head)
        large = cluster.add_node(num_cpus=12, num_gpus=4)
        ray.init(address=cluster.address, logging_level=logging.ERROR, log_to_driver=False)
        yield Nodes({node["NodeID"]: int(node["Resources"]["GPU"]) for node in ray.nodes()}, cluster, large)
        ray.shutdown()
        cluster.shutdown()


@pytest.fixture
def sizes(nodes: Nodes) -> dict[str, int]:
    return nodes.sizes


def test_field_case_107_unequal_nodes_have_right_local_ranks_and_sizes(sizes: dict[str, int]) -> None:
    before = RayResourcePool([4, 2], max_colocate_count=2)
    nodes_before = [place.node_id for place in before.places()]
    before.remove()
    pool = RayResourcePool([4, 2], max_colocate_count=2, name_prefix="uneven")
    places = pool.places()
    assert pool.world_size == len(places) == 6
    assert [place.node_id for place in places] == nodes_before, "the same nodes give the same ranks"
    assert [sizes[place.node_id] for place in places] == [4, 4, 4, 4, 2, 2]
    assert pool.local_rank_list() == [0, 1, 2, 3, 0, 1]
    assert pool.local_world_size_list() == [4, 4, 4, 4, 2, 2]
    # A part that lies across both nodes: its ranks are counted within the part.
    _, across, _ = split_resource_pool(pool, [3, 2, 1])
    assert [sizes[place.node_id] for place in across.places()] == [4, 2]
    assert (across.store, across.local_rank_list(), across.local_world_size_list()) == ([1, 1], [0, 0], [1, 1])
    pool.remove()


def test_a_group_on_a_part_that_lies_across_nodes(sizes: dict[str, int]) -> None:
    pool = RayResourcePool([4, 2], max_colocate_count=1)
    _, across, _ = split_resource_pool(pool, [3, 2, 1])
    with RayWorkerGroup(across, RayClassWithInitArgs(Seer)) as group:
        ranks = group.execute_all_sync("place")
        assert pool.is_reserved
        nodes = [place.node_id for place in across.places()]
    assert [sizes[node] for node in nodes] == [4, 2]
    assert not pool.is_reserved
    assert [(rank["RANK"], rank["WORLD_SIZE"]) for rank in ranks] == [("0", "2"), ("1", "2")]
    assert [(rank["LOCAL_RANK"], rank["LOCAL_WORLD_SIZE"]) for rank in ranks] == [("0", "1"), ("0", "1")]
    assert all(rank["CUDA_VISIBLE_DEVICES"] in {"0", "1", "2", "3"} for rank in ranks)
    tables = [RankNodes.from_text(rank["WG_RANK_NODES"]) for rank in ranks]
    assert [[node.node_id for node in table.values()] for table in tables] == [nodes] * 2


def test_feasibility_is_decided_node_by_node(sizes: dict[str, int]) -> None:
    pool = RayResourcePool([5], max_colocate_count=1, name_prefix="wide", timeout_s=600.0)
    with pytest.raises(
        InsufficientResourcesError, match="wants 5 bundles on one node; the nodes have room for"
    ) as caught:
        pool.places()
    assert "in the cluster CPU 24, GPU 6" in str(caught.value)
    spread = pool.places("PACK")
    assert sorted(sizes[place.node_id] for place in spread) == [2, 4, 4, 4, 4]
    assert pool.local_world_size_list().count(4) == 4
    pool.remove()
    with pytest.raises(ValueError, match="together is more than the cluster has"):
        ResourcePoolManager({"a": [3], "b": [3]}, {"actor": "a", "critic": "b"}).create_resource_pool()
    ResourcePoolManager({"a": [4], "b": [2]}, {"actor": "a", "critic": "b"}).create_resource_pool()


def test_the_node_that_is_nearest_to_having_room_is_named(sizes: dict[str, int]) -> None:
    holder = RayResourcePool([3], max_colocate_count=1, name_prefix="holder")
    holder.places()
    pool = RayResourcePool([3], max_colocate_count=1, name_prefix="late", timeout_s=1.0)
    with pytest.raises(
        InsufficientResourcesError, match="bundle 2 of entry 0 of pool 'late' waits for CPU 1, GPU 1"
    ) as caught:
        pool.places()
    assert "the freest is" in str(caught.value)
    assert "GPU 2: 2 of the entry's 3 bundles fit; held by holder_0_" in str(caught.value)
    with pytest.raises(InsufficientResourcesError, match=r"bundle 3 of entry 0 .* on any node: .*; .*GPU 4 \(free 1\)"):
        RayResourcePool([4], max_colocate_count=1, name_prefix="late", timeout_s=1.0).places("PACK")
    holder.remove()


def test_room_that_moved_to_another_node_is_found_there(nodes: Nodes) -> None:
    """Last: it loses a node."""
    import ray

    pool = RayResourcePool([2], max_colocate_count=1, name_prefix="moving", timeout_s=60.0)
    holder = RayResourcePool([2], max_colocate_count=1, name_prefix="holder")
    while nodes.sizes[pool.places()[0].node_id] != 4:  # where Ray put it is Ray's choice
        holder.places()
        pool.remove()
    holder.remove()
    user, another = User(), User()
    pool.acquire(user)
    nodes.cluster.remove_node(nodes.large)
    deadline_s = time.monotonic() + 30.0
    while any(node["Alive"] for node in ray.nodes() if nodes.sizes[node["NodeID"]] == 4):
        assert time.monotonic() < deadline_s
        time.sleep(0.1)
    pool.release(user)
    found = pool.acquire(another)
    assert [nodes.sizes[place.node_id] for place in found] == [2, 2]
    assert [place.bundle_index for place in found] == [0, 1]
    pool.remove()
