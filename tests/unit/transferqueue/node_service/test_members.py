"""What the directory's server knows about nodes beside where they are."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from transferqueue.errors import NodeUnreachableError
from transferqueue.node_service.members import Members
from transferqueue.nodes.directory.service import DirectoryService
from transferqueue.nodes.rpc_server import Call


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def call(members: Members, method: str, left_s: float | None = 0.5, **args: Any) -> Any:
    return members.handlers()[method](Call(method, args, bytes(16), left_s, "a test"))


def joined(members: Members, ordinal: int) -> int:
    """The incarnation of a node that joins."""
    where = {"session": f"c.n{ordinal}", "host": "127.0.0.1", "port": 1, "partitions": []}
    answer = call(members, "directory.join", node_id=f"m{ordinal}", ordinal=ordinal, **where)
    return int(answer[1])


def beat(members: Members, ordinal: int, incarnation: int, highest: int = -1, **facts: Any) -> Any:
    return call(
        members,
        "members.beat",
        ordinal=ordinal,
        incarnation=incarnation,
        highest=highest,
        facts={"clients": 0, **facts},
    )


def test_a_number_is_given_out_once() -> None:
    members = Members(DirectoryService())
    assert [members.reserve(), call(members, "members.reserve", node_id="a"), members.reserve()] == [0, 1, 2]
    # Also none that somebody has heard of.
    assert beat(members, 1, joined(members, 1), highest=7)["highest"] == 7
    assert call(members, "members.reserve", node_id="a") == 8


def test_a_directory_that_was_started_again_waits_to_be_told_of_numbers() -> None:
    clock = Clock()
    members = Members(DirectoryService(), settle_s=5.0, clock=clock)
    with pytest.raises(NodeUnreachableError, match="waits for the nodes that it had"):
        call(members, "members.reserve", left_s=0.0, node_id="new")
    answers: list[int] = []
    waiting = threading.Thread(
        target=lambda: answers.append(call(members, "members.reserve", left_s=60.0, node_id="new"))
    )
    waiting.start()
    assert beat(members, 3, joined(members, 3), highest=4)["known"]
    clock.now_s += 5.0
    waiting.join(10.0)
    assert answers == [5]


def test_nodes_say_what_they_have_until_they_go() -> None:
    members = Members(DirectoryService())
    first, second = joined(members, 0), joined(members, 1)
    beat(members, 0, first, used_bytes=5)
    beat(members, 1, second, used_bytes=6)
    assert {ordinal: facts["used_bytes"] for ordinal, facts in members.facts().items()} == {0: 5, 1: 6}
    call(members, "members.leave", ordinal=1)
    assert call(members, "members.facts") == {0: {"clients": 0, "used_bytes": 5}}
    # It is not known any more, and what it says counts for nothing until it joins again.
    assert not beat(members, 1, second, used_bytes=7)["known"]
    assert list(members.facts()) == [0]
    assert beat(members, 1, joined(members, 1), used_bytes=8)["known"]
    assert members.facts()[1]["used_bytes"] == 8


def test_what_a_silent_node_said_counts_no_longer() -> None:
    clock = Clock()
    members = Members(DirectoryService(lost_after_s=3.0, clock=clock))
    first = joined(members, 0)
    beat(members, 0, first)
    beat(members, 1, joined(members, 1))
    clock.now_s += 2.0
    beat(members, 0, first)
    clock.now_s += 2.0
    assert list(members.facts()) == [0]


def test_everybody_hears_of_the_end() -> None:
    members = Members(DirectoryService())
    incarnation = joined(members, 0)
    assert not beat(members, 0, incarnation)["ended"]
    call(members, "members.end")
    assert members.ended.is_set()
    assert beat(members, 0, incarnation)["ended"]
    assert beat(members, 5, 1)["ended"]  # also one that it does not know
