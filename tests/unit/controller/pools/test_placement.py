"""Whether pools fit a cluster, with the cluster replaced by a table of nodes."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tests.unit.controller.pools.fake_cluster import use_cluster
from transferqueue.controller import InsufficientResourcesError, RayResourcePool
from transferqueue.controller.pools import cluster_nodes, placement
from transferqueue.controller.pools.placement import check_fits


def cpus(counts: list[int], groups: int = 1) -> RayResourcePool:
    return RayResourcePool(counts, use_gpu=False, max_colocate_count=groups, name_prefix="train")


@pytest.mark.parametrize(
    ("pool", "nodes", "fits"),
    [
        ([8], [{"CPU": 8.0}], True),
        ([16], [{"CPU": 8.0}], False),
        ([8, 8], [{"CPU": 8.0}, {"CPU": 8.0}], True),
        ([16], [{"CPU": 8.0}, {"CPU": 8.0}], False),
        ([4, 2], [{"CPU": 8.0}], True),
        ([5, 5, 5], [{"CPU": 8.0}, {"CPU": 8.0}], False),
        ([4], [], False),
    ],
)
def test_a_pool_that_cannot_fit_is_refused_with_what_is_there(
    monkeypatch: pytest.MonkeyPatch, pool: list[int], nodes: list[dict[str, float]], fits: bool
) -> None:
    use_cluster(monkeypatch, *nodes)
    if fits:
        check_fits([cpus(pool).plan()])
        return
    with pytest.raises(InsufficientResourcesError, match=r"pool 'train' of .* is more than the cluster has") as caught:
        check_fits([cpus(pool).plan()])
    error = caught.value
    assert error.wanted == {"CPU": float(sum(pool))}
    assert error.present == {"CPU": sum(node["CPU"] for node in nodes)}
    assert len(error.nodes) == len(nodes)
    assert "10.0.0.99" not in str(error)


def test_an_entry_for_which_no_node_has_room_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    use_cluster(monkeypatch, {"CPU": 8.0}, {"CPU": 6.0})
    with pytest.raises(InsufficientResourcesError) as caught:
        check_fits([cpus([2, 10]).plan()])
    text = str(caught.value)
    assert "Entry 1 of pool 'train' wants 10 bundles on one node; the nodes have room for 8, 6" in text
    assert "10.0.0.0: CPU 8" in text
    assert "10.0.0.1: CPU 6" in text
    check_fits([cpus([2, 10]).plan("PACK")])


def test_pools_that_fit_alone_but_not_together(monkeypatch: pytest.MonkeyPatch) -> None:
    use_cluster(monkeypatch, {"CPU": 8.0}, {"CPU": 8.0})
    one, other = cpus([6]), cpus([5, 5])
    check_fits([one.plan()])
    check_fits([other.plan()])
    with pytest.raises(
        InsufficientResourcesError, match=r"pool 'train' of \[6\] .*; pool 'train' of \[5, 5\] .*together"
    ):
        check_fits([one.plan(), other.plan()])


def test_a_gpu_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    use_cluster(monkeypatch, {"CPU": 80.0})
    with pytest.raises(
        InsufficientResourcesError, match=r"wanted CPU 20, GPU 2; in the cluster CPU 80, GPU 0"
    ) as caught:
        check_fits([RayResourcePool([2]).plan()])
    assert "use_gpu=False" in str(caught.value)


def test_cpus_that_only_the_number_of_groups_asks_for_are_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    use_cluster(monkeypatch, {"CPU": 8.0, "GPU": 8.0})
    with pytest.raises(InsufficientResourcesError, match="max_colocate_count=1") as caught:
        check_fits([RayResourcePool([4]).plan()])
    assert "use_gpu" not in str(caught.value)


def test_the_accelerator_is_what_the_cluster_has(monkeypatch: pytest.MonkeyPatch) -> None:
    use_cluster(monkeypatch, {"CPU": 8.0, "NPU": 8.0})
    pool = RayResourcePool([8], max_colocate_count=1)
    assert pool.bundle.resources() == {"CPU": 1.0, "NPU": 1.0}
    check_fits([pool.plan()])
    with pytest.raises(InsufficientResourcesError, match="The cluster has no GPU"):
        check_fits([RayResourcePool([8], max_colocate_count=1, device_name="cuda").plan()])


def test_ranks_follow_addresses_and_not_the_order_that_ray_places_in(monkeypatch: pytest.MonkeyPatch) -> None:
    addresses = {"n9": "10.0.0.9", "n10": "10.0.0.10", "n2": "10.0.0.2"}
    placed = {"0": ["n10", "n10"], "1": ["n2"], "2": ["n9", "n9", "n9"], "3": ["n10"]}
    removed: list[object] = []

    class Group:
        def __init__(self, bundles: list[dict[str, float]], strategy: str, name: str, lifetime: None) -> None:
            self.entry = name.split("_")[1]
            assert bundles == [{"CPU": 1.0}] * len(placed[self.entry])

        def wait(self, timeout_seconds: int) -> bool:
            return True

    util = SimpleNamespace(
        placement_group=Group,
        placement_group_table=lambda group: {"bundles_to_node_id": dict(enumerate(placed[group.entry]))},
        remove_placement_group=removed.append,
    )
    nodes = [
        {"Alive": True, "NodeID": node, "NodeManagerAddress": address, "Resources": {"CPU": 4.0}}
        for node, address in addresses.items()
    ]
    ray = SimpleNamespace(nodes=lambda: nodes, util=util, _private=None, is_initialized=lambda: True)
    for module in (placement, cluster_nodes):
        monkeypatch.setattr(module, "require_ray", lambda what: ray)
    pool = cpus([2, 1, 3, 1])
    assert [place.node_ip for place in pool.places()] == [
        "10.0.0.2",
        *["10.0.0.9"] * 3,
        *["10.0.0.10"] * 3,
    ]
    assert [place.placement_group.entry for place in pool.places()] == ["1", "2", "2", "2", "0", "0", "3"]
    assert pool.store == [1, 3, 2, 1]
    assert pool.local_rank_list() == [0, 0, 1, 2, 0, 1, 2]
    assert pool.local_world_size_list() == [1, 3, 3, 3, 3, 3, 3]
    pool.remove()
    assert len(removed) == 4
