from __future__ import annotations

import pytest

from transferqueue.controller import RayResourcePool
from transferqueue.controller.pools.bundle import Bundle


def test_groups_that_share_a_pool_fit_into_its_bundles() -> None:
    for count in (1, 2, 3, 7, 10):
        pool = RayResourcePool([1], max_colocate_count=count)
        assert pool.bundle.resources() == {"CPU": float(count), "GPU": 1.0}
        request = pool.rank_request()
        assert request["num_cpus"] == 1.0
        assert 0.9 < request["num_gpus"] * count <= 1.0
        assert request["num_gpus"] == pool.share
        on_cpus = RayResourcePool([1], use_gpu=False, max_colocate_count=count)
        assert on_cpus.bundle.resources() == {"CPU": float(count)}
        assert on_cpus.rank_request() == {"num_cpus": 1.0}


def test_a_group_may_leave_the_accelerator_alone_but_not_take_one_that_is_not_there() -> None:
    assert RayResourcePool([1]).rank_request(use_gpu=False) == {"num_cpus": 1.0}
    with pytest.raises(ValueError, match="has no accelerators"):
        RayResourcePool([1], use_gpu=False).rank_request(use_gpu=True)


def test_accelerators_other_than_gpus_are_asked_for_by_their_own_name() -> None:
    pool = RayResourcePool([1], max_colocate_count=4, device_name="npu")
    assert pool.bundle.resources() == {"CPU": 4.0, "NPU": 1.0}
    assert pool.rank_request() == {"num_cpus": 1.0, "resources": {"NPU": 0.25}}
    with pytest.raises(ValueError, match="no accelerator is called 'abacus'"):
        _ = RayResourcePool([1], device_name="abacus").bundle


def test_further_resources_are_for_each_group() -> None:
    pool = RayResourcePool(
        [1], max_colocate_count=2, accelerator_type="accelerator_type:H100", further_resources={"disk": 3.0}
    )
    bundle = pool.bundle.resources()
    assert (bundle["CPU"], bundle["GPU"], bundle["disk"]) == (2.0, 1.0, 6.0)
    # As much as two actors with the option accelerator_type="H100" take.
    assert bundle["accelerator_type:H100"] == pytest.approx(0.002)


def test_the_bundle_of_an_existing_placement_group() -> None:
    there = {"CPU": 3.0, "GPU": 1.0, "disk": 2.0}
    assert Bundle.of_resources(there).resources() == there
    assert Bundle.of_resources(there).max_colocate_count == 3
    shared = Bundle.of_resources({"CPU": 1.0}, max_colocate_count=4)
    assert shared.request() == {"num_cpus": 0.25}
    assert Bundle.of_resources({"GPU": 1.0}).request() == {"num_cpus": 0.0, "num_gpus": 1.0}
