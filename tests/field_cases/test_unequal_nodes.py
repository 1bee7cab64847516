"""Field case 107 on a cluster of two nodes of different size."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from transferqueue.controller import RayResourcePool
from transferqueue.controller.pools.rank_place import RankPlace, local_ranks

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def two_nodes() -> Iterator[Any]:
    """Nodes of 2 and of 4 CPUs, the smaller one first."""
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    cluster.add_node(num_cpus=4)
    ray.init(address=cluster.address, logging_level=logging.ERROR, log_to_driver=False)
    yield ray
    ray.shutdown()
    cluster.shutdown()


def shape(places: list[RankPlace]) -> list[tuple[str, int, int]]:
    return [(place.node_id, *numbers) for place, numbers in zip(places, local_ranks(places), strict=True)]


def test_field_case_107_a_pool_with_unequal_nodes(two_nodes: Any) -> None:
    size_of = {node["NodeID"]: node["Resources"]["CPU"] for node in two_nodes.nodes()}
    shapes = []
    for _ in range(2):
        pool = RayResourcePool([4, 2], use_gpu=False, max_colocate_count=1)
        assert pool.world_size == 6
        places = pool.places()
        found = shape(places)
        pool.remove()
        shapes.append(found)
        nodes = [node for node, _, _ in found]
        assert len(set(nodes[:4])) == len(set(nodes[4:])) == 1 or len(set(nodes[:2])) == len(set(nodes[2:])) == 1
        for node, local_rank, local_world_size in found:
            assert local_world_size == size_of[node]
            assert local_rank < local_world_size
        assert sorted(local_rank for _, local_rank, _ in found) == [0, 0, 1, 1, 2, 3]
    assert shapes[0] == shapes[1], "the same nodes give the same ranks"
