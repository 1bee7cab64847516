from __future__ import annotations

from transferqueue.controller.pools.rank_place import RankPlace, local_ranks


def test_local_ranks_count_by_node() -> None:
    places = [RankPlace(None, i, node, "ip") for i, node in enumerate(["a", "a", "b", "a", "b"])]
    assert local_ranks(places) == [(0, 3), (1, 3), (0, 2), (2, 3), (1, 2)]
