from __future__ import annotations

import pytest

from transferqueue.controller import RayResourcePool, ResourcePool


def test_the_shape_of_a_pool() -> None:
    pool = ResourcePool([4, 2])
    assert (pool.world_size, pool.store, pool()) == (6, [4, 2], [4, 2])
    assert pool.local_world_size_list() == [4, 4, 4, 4, 2, 2]
    assert pool.local_rank_list() == [0, 1, 2, 3, 0, 1]
    pool.add_node(1)
    assert pool.world_size == 7


@pytest.mark.parametrize("kind", [ResourcePool, RayResourcePool])
def test_shapes_that_are_none(kind: type[ResourcePool]) -> None:
    for wrong in ([0], [True], [1.5], [-1], ["4"]):
        with pytest.raises(ValueError, match="positive ints"):
            kind(wrong)  # type: ignore[arg-type]
    for no_list in (2, "4"):
        with pytest.raises(TypeError, match=r"such as \[2\]; got"):
            kind(no_list)  # type: ignore[arg-type]
    for count in (0, 1.5, True):
        with pytest.raises(ValueError, match="max_colocate_count"):
            kind([1], max_colocate_count=count)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="positive ints"):
        kind([1]).add_node(0)


def test_nodes_are_added_before_the_first_use() -> None:
    pool = RayResourcePool(use_gpu=False)
    pool.add_node(4)
    pool.add_node(2)
    assert (pool.store, pool.world_size) == ([4, 2], 6)
    assert pool.local_rank_list() == [0, 1, 2, 3, 0, 1]
    assert not pool.is_reserved
    assert pool.pgs is None
