"""Who is where, who is lost, which node is home: the rules, on a clock of the test's own."""

from __future__ import annotations

import pytest

from transferqueue.nodes.directory.state import MAX_NODES, DirectoryState, Joined


def state(**options: float) -> DirectoryState:
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
