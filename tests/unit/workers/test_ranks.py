"""What a group tells its ranks, and what a program may not tell them."""

from __future__ import annotations

import pytest

from transferqueue.workers import RankInfo
from transferqueue.workers.rank_nodes import RankNode, RankNodes
from transferqueue.workers.ranks import ENVIRONMENT_KEYS, check_worker_env

A, B = RankNode("10.0.0.1", "aa"), RankNode("fd00::2", "bb")


def test_the_whole_contract_travels_in_the_environment() -> None:
    info = RankInfo(3, 6, 3, 4, "[fd00::1]", "1234", "ray", "actor", RankNodes([A, A, A, A, B, B]))
    environment = info.to_environment()
    assert RankInfo.from_environment(environment) == info
    assert environment["RAY_LOCAL_RANK"] == environment["LOCAL_RANK"] == "3"
    assert environment["RAY_LOCAL_WORLD_SIZE"] == environment["LOCAL_WORLD_SIZE"] == "4"
    assert environment["REDIS_STORE_SERVER_HOST"] == "fd00::1"
    assert (environment["WG_BACKEND"], environment["WG_PREFIX"]) == ("ray", "actor")
    assert set(ENVIRONMENT_KEYS) - set(environment) == {"DISABLE_WORKER_INIT"}


def test_a_program_cannot_set_what_the_group_sets() -> None:
    for key in (*ENVIRONMENT_KEYS, "WG_RANK_NODES"):
        with pytest.raises(ValueError, match=rf"worker_env sets {key}='7': .*Leave {key} out"):
            check_worker_env({"MINE": "1", key: "7"})
    with pytest.raises(TypeError, match="'MINE': 1"):
        check_worker_env({"MINE": 1})  # type: ignore[dict-item]
    assert check_worker_env({"MINE": "1"}) == {"MINE": "1"}


def test_the_table_of_ranks_and_nodes() -> None:
    table = RankNodes([A, A, B, A])
    assert RankNodes.from_text(table.to_text()) == table
    assert [table[rank].node_ip for rank in table] == ["10.0.0.1", "10.0.0.1", "fd00::2", "10.0.0.1"]
    assert (table.ranks_on("aa"), table.ranks_on("bb"), table.ranks_on("cc")) == ([0, 1, 3], [2], [])
    with pytest.raises(KeyError, match="no rank 4: the group has 4 ranks"):
        table[4]
    assert not RankNodes.from_text("")
    for text in ("x", "[1]", '[["a","b",[[1,2]]]]'):
        with pytest.raises(ValueError, match="not a table"):
            RankNodes.from_text(text)
    large = RankNodes([RankNode(f"10.0.{node}.1", f"{node:056x}") for node in range(128) for _ in range(8)])
    assert len(large.to_text()) < 16_000, "one environment variable"
