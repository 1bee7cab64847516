"""Parts and unions of pools, before anything is reserved."""

from __future__ import annotations

import pytest

from transferqueue.controller import (
    PoolShapeError,
    RayResourcePool,
    SubRayResourcePool,
    merge_resource_pool,
    split_resource_pool,
)


def pool(counts: list[int], **options: object) -> RayResourcePool:
    return RayResourcePool(counts, use_gpu=False, name_prefix="train", **options)  # type: ignore[arg-type]


def bundles(part: SubRayResourcePool) -> tuple[int, int]:
    return part.start_bundle_index, part.world_size


def test_parts_of_equal_and_of_given_sizes() -> None:
    whole = pool([4, 2])
    assert [bundles(part) for part in split_resource_pool(whole, 2)] == [(0, 2), (2, 2), (4, 2)]
    parts = split_resource_pool(whole, [3, 2, 1])
    assert [bundles(part) for part in parts] == [(0, 3), (3, 2), (5, 1)]
    assert [part.store for part in parts] == [[3], [1, 1], [1]]
    assert [part.subgroup_world_size for part in parts] == [3, 2, 1]
    assert [part.name_prefix for part in parts] == ["train_split_0", "train_split_1", "train_split_2"]
    assert {part.max_colocate_count for part in parts} == {whole.max_colocate_count}


def test_a_part_is_split_again() -> None:
    _, middle, _ = split_resource_pool(pool([2, 2, 2]), [1, 4, 1])
    parts = split_resource_pool(middle, 1)
    assert [bundles(part) for part in parts] == [(1, 1), (2, 1), (3, 1), (4, 1)]
    assert [part.store for part in split_resource_pool(middle, [3, 1])] == [[1, 2], [1]]


@pytest.mark.parametrize("size", [4, 0, -1, [3, 2], [7], [3, 3, 0], [], [7, -1]])
def test_sizes_that_do_not_add_up(size: int | list[int]) -> None:
    with pytest.raises(PoolShapeError) as caught:
        split_resource_pool(pool([4, 2]), size)
    assert isinstance(caught.value, AssertionError)
    assert isinstance(caught.value, ValueError)


def test_merged_pools_keep_their_order() -> None:
    merged = merge_resource_pool(pool([1, 2]), pool([4]))
    assert (merged.store, merged.world_size, merged.name_prefix) == ([1, 2, 4], 7, "train_train")
    assert [part.store for part in split_resource_pool(merged, [2, 5])] == [[1, 1], [1, 4]]


def test_parts_of_a_pool_are_merged_but_not_twice() -> None:
    first, second, third = split_resource_pool(pool([4, 2]), 2)
    assert merge_resource_pool(third, first).store == [2, 2]
    with pytest.raises(PoolShapeError, match="share a bundle"):
        merge_resource_pool(first, second, first)


def test_pools_that_differ_are_not_merged() -> None:
    with pytest.raises(PoolShapeError, match=r"agree in max_colocate_count; these have \[10, 3\]"):
        merge_resource_pool(pool([1]), pool([1], max_colocate_count=3))
    with pytest.raises(AssertionError, match="agree in use_gpu"):
        merge_resource_pool(pool([1]), RayResourcePool([1]))
    with pytest.raises(AssertionError, match="agree in detached"):
        merge_resource_pool(pool([1]), pool([1], detached=True))


def test_only_a_whole_pool_grows() -> None:
    whole = pool([2])
    [part] = split_resource_pool(whole, 2)
    with pytest.raises(ValueError, match="cannot grow"):
        part.add_node(1)
