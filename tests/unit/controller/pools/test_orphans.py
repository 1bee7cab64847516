from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from transferqueue.controller.pools import orphans


class FakeRay:
    """A control store with placement groups by name, made by this process, which is an actor or is not."""

    def __init__(self, groups: dict[str, str], actor: str | None = None) -> None:
        self.removed: list[str] = []
        self.util = SimpleNamespace(
            placement_group_table=lambda: {
                f"id{number}": {"name": name, "state": state} for number, (name, state) in enumerate(groups.items())
            },
            get_placement_group=lambda name: name,
            remove_placement_group=self.removed.append,
        )
        self._actor = actor

    def is_initialized(self) -> bool:
        return True

    def get_runtime_context(self) -> Any:
        return SimpleNamespace(get_actor_id=lambda: self._actor)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Any:
    def use(ray: FakeRay, **actors: str) -> FakeRay:
        monkeypatch.setattr(orphans, "require_ray", lambda _: ray)
        monkeypatch.setattr(orphans, "actor_table", lambda: {id_: {"State": state} for id_, state in actors.items()})
        return ray

    return use


def test_room_of_dead_actors_is_given_back_and_no_other(cluster: Any) -> None:
    groups = {
        "pool_0_1a_by_aa01": "CREATED",
        "pool_1_1b_by_aa01": "PENDING",
        "pool_0_1c_by_bb02": "CREATED",
        "pool_0_1d_by_cc03": "CREATED",
        "pool_0_1e_by_aa01": "REMOVED",
        "pool_0_1f": "CREATED",
        "made_by_hand": "CREATED",
    }
    ray = cluster(FakeRay(groups), aa01="DEAD", bb02="ALIVE")
    gone = ["pool_0_1a_by_aa01", "pool_1_1b_by_aa01", "pool_0_1d_by_cc03"]  # Ray forgets the oldest of many dead actors
    assert orphans.remove_orphaned_pools() == gone
    assert ray.removed == gone


def test_only_names_of_what_an_actor_makes_say_so(cluster: Any) -> None:
    cluster(FakeRay({}))
    assert orphans.with_maker("pool_0_1a") == "pool_0_1a"
    cluster(FakeRay({}, actor="aa01"))
    assert orphans.with_maker("pool_0_1a") == "pool_0_1a_by_aa01"
