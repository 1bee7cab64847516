"""The roles of a training program."""

from __future__ import annotations

from enum import Enum


class Role(Enum):
    """What a worker class does in training; names the pool that it runs on (`ResourcePoolManager`).

    A program with further roles uses an enum of its own, or strings: nothing here depends on these members. ``str()``
    gives the short name that configurations use.
    """

    Actor = 0
    Rollout = 1
    ActorRollout = 2
    Critic = 3
    RefPolicy = 4
    RewardModel = 5
    ActorRolloutRef = 6
    Env = 7
    TeacherModel = 8

    def __str__(self) -> str:
        return _SHORT_NAMES[self]

    @classmethod
    def from_string(cls, name: str) -> Role:
        """The role with a short name (``"actor_rollout"``). `ValueError` for another."""
        for role, short in _SHORT_NAMES.items():
            if short == name.lower():
                return role
        raise ValueError(f"no role is called {name!r}; there are {', '.join(_SHORT_NAMES.values())}")


_SHORT_NAMES = {
    Role.Actor: "actor",
    Role.Rollout: "rollout",
    Role.ActorRollout: "actor_rollout",
    Role.Critic: "critic",
    Role.RefPolicy: "ref",
    Role.RewardModel: "rm",
    Role.ActorRolloutRef: "actor_rollout_ref",
    Role.Env: "env",
    Role.TeacherModel: "teacher",
}
