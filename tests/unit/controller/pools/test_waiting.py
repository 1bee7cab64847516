"""Who waits for what, in words."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from transferqueue.controller.pools.cluster_nodes import ClusterNode
from transferqueue.controller.pools.rank_place import RankPlace
from transferqueue.controller.pools.waiting import describe_bundle_wait


@pytest.mark.parametrize(
    ("free", "says"),
    [
        (1.0, "has CPU 1 free, which is enough: its process is starting"),
        # On a machine that is too busy to start a process, the rank itself has the room already.
        (0.0, "has CPU 0 free: others hold the rest, or the rank itself, whose process is starting"),
    ],
)
def test_a_rank_that_is_starting_is_not_only_said_to_wait_for_room(free: float, says: str) -> None:
    group = SimpleNamespace(id=SimpleNamespace(hex=lambda: "abc"))
    node = ClusterNode("n1", "10.0.0.1", {}, {"CPU_group_0_abc": free} if free else {})
    text = describe_bundle_wait("pool", {3: RankPlace(group, 0, "n1", "10.0.0.1")}, {"num_cpus": 1}, [node])
    assert text == f"each waits for CPU 1; bundle 3 of pool 'pool', on 10.0.0.1 (n1), {says}"
