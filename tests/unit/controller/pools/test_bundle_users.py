from __future__ import annotations

from transferqueue.controller.pools.bundle_users import BundleUsers


class User:
    pass


def test_users_by_bundle() -> None:
    emptied: list[bool] = []
    users = BundleUsers(lambda: emptied.append(True))
    first, second = User(), User()
    users.add(first, "first", range(4))
    users.add(second, "second", [2, 3])
    users.add(second, "second", [0])
    assert [users.of(bundle) for bundle in range(5)] == [
        ["first", "second"],
        ["first"],
        ["first", "second"],
        ["first", "second"],
        [],
    ]
    assert users.of(2, but=first) == ["second"]
    users.remove(first)
    users.remove(first)
    assert users.of(1) == []
    assert not emptied
    users.remove(second)
    assert emptied == [True]
    assert len(users) == 0


def test_a_user_that_is_dropped_is_forgotten_at_once() -> None:
    emptied: list[bool] = []
    users = BundleUsers(lambda: emptied.append(True))
    users.add(User(), "gone", [0])
    assert users.of(0) == []
    assert emptied == [True]
