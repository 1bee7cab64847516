"""Who has a partition, whoever says so, and in which order."""

from __future__ import annotations

from transferqueue.nodes.directory.role import Role
from transferqueue.nodes.directory.roles import Roles


def test_changes_are_told_once() -> None:
    roles = Roles()
    roles.place("p", 0)
    roles.place("q", 1)
    seen = roles.version
    assert roles.since(0) == {"p": Role(0), "q": Role(1)}
    assert roles.since(seen) == {}
    assert roles.place("p", 1) == 0
    assert roles.version == seen
    roles.move("p", 2)
    roles.forget("q")
    assert roles.since(seen) == {"p": Role(2), "q": Role(None)}
    assert roles.homes() == {"p": 2}
    assert not roles.forget("q")


def test_what_a_node_says_of_itself_counts_more_than_what_others_remember() -> None:
    roles = Roles()
    roles.recall({"p": Role(0), "q": Role(0, 1, 2)})
    assert roles.claim("p", 1), "the home of a partition that was given away since"
    assert not roles.claim("p", 2)
    assert not roles.claim("q", 2), "it was home of an earlier epoch"
    roles.recall({"p": Role(0), "q": Role(1, None, 3)})
    assert (roles.of("p"), roles.of("q")) == (Role(1), Role(1, None, 3))


def test_a_standby_is_heard_until_the_home_speaks() -> None:
    roles = Roles()
    assert roles.declare("p", Role(0, 1, 4), is_home=False), "the home may be lost"
    assert roles.declare("p", Role(0, 2, 4), is_home=True)
    assert not roles.declare("p", Role(0, 1, 4), is_home=False), "it was one"
    roles.promote(lambda home: home == 0, lambda standby: standby == 2)
    assert roles.of("p") == Role(2, None, 5)
    assert not roles.declare("p", Role(0, 1, 4), is_home=True)
    assert roles.declare("p", Role(2, 0, 5), is_home=False)
    assert roles.followed_homes() == {2}
