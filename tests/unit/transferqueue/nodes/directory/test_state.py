"""Who is where, who is lost, which node is home: the rules, on a clock of the test's own."""

from __future__ import annotations

from typing import Any

import pytest

from transferqueue.nodes.directory.role import Role
from transferqueue.nodes.directory.state import MAX_NODES, DirectoryState, Joined


def state(**options: Any) -> DirectoryState:
    return DirectoryState(10.0, 0.0, **options)


def joined(directory: DirectoryState, name: str, now_s: float = 0.0, **more: object) -> Joined:
    return directory.join(name, f"C.{name}", "10.0.0.1", 4000, now_s, **more)  # type: ignore[arg-type]


def test_nodes_are_numbered_as_they_come_and_keep_their_numbers() -> None:
    directory = state()
    assert [joined(directory, name).ordinal for name in ("a", "b", "c")] == [0, 1, 2]
    again = directory.join("b", "C.n1", "10.0.0.9", 5000, 1.0)
    assert (again.ordinal, again.incarnation) == (1, 2)
    assert [(place.node_id, place.endpoint) for place in directory.nodes(1.0)][1] == ("b", ("10.0.0.9", 5000))


def test_an_ordinal_is_one_nodes_for_ever() -> None:
    directory = state()
    joined(directory, "a", ordinal=3)
    with pytest.raises(ValueError, match="is node 3"):
        joined(directory, "a", ordinal=4)
    directory.mark_lost(3)
    with pytest.raises(ValueError, match="has that ordinal"):
        joined(directory, "b", ordinal=3)
    with pytest.raises(ValueError, match="at most"):
        joined(directory, "c", ordinal=MAX_NODES)
    assert joined(directory, "b").ordinal == 4


def test_a_node_whose_rows_are_gone_comes_back_under_another_ordinal() -> None:
    directory = state()
    joined(directory, "a")
    directory.mark_lost(0)
    assert joined(directory, "a", ordinal=7).ordinal == 7
    assert [(place.ordinal, place.alive) for place in directory.nodes(1.0)] == [(0, False), (7, True)]
    assert joined(directory, "a").ordinal == 7


def test_silence_loses_a_node_and_a_heartbeat_brings_it_back() -> None:
    directory = state()
    joined(directory, "a")
    joined(directory, "b")
    version = directory.version
    assert directory.heartbeat(0, 1, 9.0)
    assert not directory.is_lost(1, 10.0)
    assert directory.is_lost(1, 10.1)
    assert [place.alive for place in directory.nodes(10.1)] == [True, False]
    assert directory.version != version
    assert directory.heartbeat(1, 1, 11.0)
    assert not directory.is_lost(1, 11.0)


def test_a_node_that_is_said_to_be_dead_has_to_join_again() -> None:
    directory = state()
    joined(directory, "a")
    assert directory.mark_lost(0)
    assert not directory.mark_lost(0)
    assert not directory.mark_lost(7)
    assert directory.is_lost(0, 0.1)
    assert not directory.heartbeat(0, 1, 0.2)
    assert joined(directory, "a", 0.3).incarnation == 2
    assert directory.heartbeat(0, 2, 0.4)
    assert not directory.heartbeat(0, 1, 0.4), "an agent that was replaced"
    assert not directory.heartbeat(9, 1, 0.4)


def test_a_partition_has_one_home() -> None:
    directory = state()
    joined(directory, "a")
    joined(directory, "b")
    assert directory.home_of("p") is None
    assert directory.home_of("p", create_at=1) == 1
    assert directory.home_of("p", create_at=0) == 1
    assert directory.place("p", 0) == 1
    assert directory.place("q", 0) == 0
    assert directory.partitions() == {"p": 1, "q": 0}
    directory.move("p", 0)
    assert directory.home_of("p") == 0
    assert not directory.forget("p", 1)
    assert directory.forget("p")
    assert not directory.forget("p")
    for place in (directory.place, directory.move):
        with pytest.raises(ValueError, match="no node 5"):
            place("r", 5)


def test_a_directory_that_was_started_anew_is_told_everything() -> None:
    directory = state(settle_s=3.0)
    assert directory.settled(0.0)
    assert not directory.heartbeat(1, 1, 0.5)
    back = joined(directory, "b", 0.5, ordinal=1, incarnation=4, partitions=["p", "q"])
    assert back == Joined(1, 5)
    assert not directory.settled(1.0), "node 0 may be home of what is asked for"
    assert joined(directory, "a", 1.0, ordinal=0, incarnation=1, partitions=["r", "q"]).not_home == ("q",)
    assert directory.settled(3.0)
    assert directory.partitions() == {"p": 1, "q": 1, "r": 0}


def test_a_first_start_has_nobody_to_wait_for() -> None:
    directory = state()
    joined(directory, "a")
    joined(directory, "b", 0.1)
    assert directory.settled(0.1)


def test_two_directories_never_have_the_same_version() -> None:
    assert state().version != state().version


def followed(directory: DirectoryState, *, standby: int | None = 1, epoch: int = 0) -> Role:
    directory.place("p", 0)
    return directory.declare("p", Role(0, standby, epoch))


def test_a_standby_takes_the_place_of_a_lost_home() -> None:
    directory = state()
    for name in "abc":
        joined(directory, name)
    assert followed(directory) == Role(0, 1, 0)
    assert directory.roles_of(1) == {"p": Role(0, 1, 0)}
    version = directory.roles_version
    assert directory.mark_lost(0)
    assert directory.role_of("p") == Role(1, None, 1)
    assert directory.home_of("p") == 1
    assert directory.roles_version != version
    # The old one, which was only stopped, is not heard any more; the new one is.
    joined(directory, "a", ordinal=0, incarnation=1, partitions=["p"])
    assert directory.declare("p", Role(0, 2, 0)) == Role(1, None, 1)
    assert directory.declare("p", Role(1, 0, 1)) == Role(1, 0, 1)
    assert directory.mark_lost(1)
    assert directory.role_of("p") == Role(0, None, 2)


def test_nobody_takes_the_place_who_did_not_follow() -> None:
    directory = state()
    for name in "ab":
        joined(directory, name)
    followed(directory, standby=None)
    directory.mark_lost(0)
    assert directory.role_of("p") == Role(0, None, 0)


def test_a_standby_that_was_lost_first_takes_over_when_it_is_back() -> None:
    directory = state()
    for name in "ab":
        joined(directory, name, 0.0)
    followed(directory)
    assert not directory.touch(1, 11.0), "both were not heard of for too long"
    assert directory.role_of("p").home == 0
    assert directory.heartbeat(1, 1, 12.0)
    assert directory.role_of("p") == Role(1, None, 1)
    assert directory.touch(1, 13.0)


def test_a_sign_of_life_brings_nobody_back() -> None:
    directory = state()
    joined(directory, "a", 0.0)
    assert directory.touch(0, 9.0)
    assert directory.touch(0, 18.0), "the first one counted"
    assert not directory.touch(0, 30.0)
    assert not directory.touch(0, 31.0)
    assert not directory.touch(7, 31.0)


def test_after_a_restart_the_latest_home_is_it_and_a_standby_waits_for_one_that_is_away() -> None:
    directory = state()
    joined(directory, "b", 0.0, ordinal=1, incarnation=1, partitions=["p"])
    joined(directory, "c", 0.0, ordinal=2, incarnation=1, partitions=["p"])
    assert directory.declare("p", Role(2, None, 3)) == Role(2, None, 3), "whoever came first"
    assert directory.declare("p", Role(1, None, 2)) == Role(2, None, 3)
    # Of "q" only the standby is left; its home has as long to come back as any node.
    assert directory.declare("q", Role(0, 1, 4)) == Role(0, 1, 4)
    directory.heartbeat(1, 2, 9.0)
    directory.nodes(9.0)
    assert directory.role_of("q").home == 0
    directory.heartbeat(1, 2, 10.5)
    directory.nodes(10.5)
    assert directory.role_of("q") == Role(1, None, 5)
    assert directory.forget("q")
    assert directory.role_of("q").standby is None


def test_a_node_that_was_lost_with_the_directory_is_not_forgotten() -> None:
    before = state()
    for name in "abc":
        joined(before, name)
    before.mark_lost(2)
    before.place("p", 0)
    before.declare("p", Role(0, 1, 0))
    before.place("q", 0)
    after = state(settle_s=3.0, again=True)
    assert not after.settled(0.0), "there are agents to be waited for"
    joined(after, "b", 1.0, ordinal=1, incarnation=1)
    after.recall(before.nodes(0.0), before.roles_since(0), 1.0)
    assert [place.alive for place in after.nodes(1.0)] == [True, True, False]
    assert not after.settled(1.0)
    assert not after.heartbeat(0, 1, 1.0), "it has to say itself that it is here"
    assert not after.touch(0, 1.0)
    assert after.home_of("q") == 0
    after.heartbeat(1, 2, 11.0)
    assert after.is_lost(0, 11.1)
    assert after.settled(11.1)
    assert after.role_of("p") == Role(1, None, 1)
    assert after.home_of("q", create_at=1) == 0, "its rows are lost, which is not as if there had been none"


def started_again(before: DirectoryState, name: str, ordinal: int) -> DirectoryState:
    """A directory that this node told at 0.5 of the nodes that `before` knew."""
    after = state(settle_s=3.0, again=True)
    joined(after, name, 0.5, ordinal=ordinal, incarnation=1)
    after.recall(before.nodes(0.0), {}, 0.5)
    return after


def test_all_that_are_told_of_have_come_back() -> None:
    before = state()
    for name in "ab":
        joined(before, name)
    after = started_again(before, "a", 0)
    assert not after.settled(0.5)
    joined(after, "b", 0.6, ordinal=1, incarnation=1)
    assert after.settled(0.6), "nobody else is waited for"


def test_who_lost_its_rows_while_there_was_no_directory_gets_another_number() -> None:
    before = state()
    for name in "abc":
        joined(before, name)
    after = started_again(before, "b", 1)
    with pytest.raises(ValueError, match="is node 0"):
        joined(after, "a", 1.0, ordinal=3)
    joined(after, "c", 1.0, ordinal=2, incarnation=1)
    assert not after.settled(1.0)
    assert after.settled(1.0, but="a")
    assert joined(after, "a", 1.0, ordinal=3).ordinal == 3
    assert [place.alive for place in after.nodes(1.0)] == [False, True, True, True]
    assert after.settled(1.0)
