"""Whether a pool fits, and where ranks stand; with the cluster replaced by a table of nodes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from transferqueue.controller import InsufficientResourcesError, RayResourcePool, ResourcePool
from transferqueue.controller.pools import placement
from transferqueue.controller.pools.placement import check_fits
from transferqueue.controller.pools.rank_place import RankPlace, local_ranks


def cluster(*nodes: dict[str, float]) -> SimpleNamespace:
    table = [
        {"Alive": True, "NodeID": f"node{i}", "NodeManagerAddress": f"10.0.0.{i}", "Resources": resources}
        for i, resources in enumerate(nodes)
    ]
    table.append({"Alive": False, "NodeID": "gone", "NodeManagerAddress": "10.0.0.99", "Resources": {"CPU": 1000.0}})
    total: dict[str, float] = {}
    for node in nodes:
        for name, amount in node.items():
            total[name] = total.get(name, 0.0) + amount
    return SimpleNamespace(nodes=lambda: table, cluster_resources=lambda: total, available_resources=lambda: total)


@pytest.mark.parametrize(
    ("pool", "nodes", "fits"),
    [
        ([8], [{"CPU": 8.0}], True),
        ([16], [{"CPU": 8.0}], False),
        ([8, 8], [{"CPU": 8.0}, {"CPU": 8.0}], True),
        ([16], [{"CPU": 8.0}, {"CPU": 8.0}], False),
        ([4, 2], [{"CPU": 8.0}], True),
        ([4], [], False),
    ],
)
def test_a_pool_that_cannot_fit_is_refused_with_what_is_there(
    monkeypatch: pytest.MonkeyPatch, pool: list[int], nodes: list[dict[str, float]], fits: bool
) -> None:
    fake: Any = cluster(*nodes)
    monkeypatch.setattr(placement, "require_ray", lambda what: fake)
    if fits:
        check_fits(pool, {"CPU": 1.0}, "STRICT_PACK")
        return
    with pytest.raises(InsufficientResourcesError, match="is more than the cluster has") as caught:
        check_fits(pool, {"CPU": 1.0}, "STRICT_PACK")
    error = caught.value
    assert error.wanted == {"CPU": float(sum(pool))}
    assert error.present == {"CPU": sum(node["CPU"] for node in nodes)}
    assert len(error.nodes) == len(nodes)
    assert "10.0.0.99" not in str(error)


def test_a_gpu_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement, "require_ray", lambda what: cluster({"CPU": 8.0}))
    with pytest.raises(
        InsufficientResourcesError, match=r"wanted CPU 20, GPU 2; in the cluster CPU 8, GPU 0"
    ) as caught:
        check_fits([2], RayResourcePool([2]).bundle.resources(), "STRICT_PACK")
    assert "use_gpu=False" in str(caught.value)
    with pytest.raises(InsufficientResourcesError) as caught:
        check_fits([9], RayResourcePool([9], use_gpu=False).bundle.resources(), "STRICT_PACK")
    assert "use_gpu" not in str(caught.value)


def test_a_spread_pool_may_use_several_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement, "require_ray", lambda what: cluster({"CPU": 2.0}, {"CPU": 2.0}))
    check_fits([4], {"CPU": 1.0}, "PACK")


def test_addresses_order_as_numbers() -> None:
    addresses = ["10.0.0.9", "10.0.0.10", "host-b", "::1", "10.0.0.2"]
    assert sorted(addresses, key=placement._address_order) == ["10.0.0.2", "10.0.0.9", "10.0.0.10", "::1", "host-b"]


def test_local_ranks_count_by_node() -> None:
    places = [RankPlace(None, i, node, "ip") for i, node in enumerate(["a", "a", "b", "a", "b"])]
    assert local_ranks(places) == [(0, 3), (1, 3), (0, 2), (2, 3), (1, 2)]


def test_the_shape_of_a_pool() -> None:
    pool = ResourcePool([4, 2])
    assert (pool.world_size, pool.store, pool()) == (6, [4, 2], [4, 2])
    assert pool.local_world_size_list() == [4, 4, 4, 4, 2, 2]
    assert pool.local_rank_list() == [0, 1, 2, 3, 0, 1]
    pool.add_node(1)
    assert pool.world_size == 7
    for wrong in ([0], [True], [1.5], [-1]):
        with pytest.raises(ValueError, match="positive ints"):
            ResourcePool(wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"such as \[2\]; got 2"):
        RayResourcePool(2)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="max_colocate_count"):
        ResourcePool([1], max_colocate_count=0)


def test_groups_that_share_a_pool_fit_into_its_bundles() -> None:
    for count in (1, 2, 3, 7, 10):
        pool = RayResourcePool([1], max_colocate_count=count)
        assert pool.bundle.resources() == {"CPU": float(count), "GPU": 1.0}
        request = pool.rank_request()
        assert request["num_cpus"] == 1.0
        assert 0.9 < request["num_gpus"] * count <= 1.0
        assert RayResourcePool([1], use_gpu=False, max_colocate_count=count).rank_request() == {"num_cpus": 1.0}
