from __future__ import annotations

import pickle

import pytest

from transferqueue.controller import Role


def test_roles_have_the_names_that_configurations_use() -> None:
    assert [str(role) for role in (Role.ActorRollout, Role.RefPolicy, Role.RewardModel)] == [
        "actor_rollout",
        "ref",
        "rm",
    ]
    for role in Role:
        assert Role.from_string(str(role).upper()) is role
        assert pickle.loads(pickle.dumps(role)) is role
    with pytest.raises(ValueError, match="no role is called 'judge'; there are actor, rollout"):
        Role.from_string("judge")
