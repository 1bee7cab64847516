"""Which rank this process is, as its worker group told it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

WORLD_SIZE, RANK = "WORLD_SIZE", "RANK"
LOCAL_WORLD_SIZE, LOCAL_RANK = "LOCAL_WORLD_SIZE", "LOCAL_RANK"
MASTER_ADDR, MASTER_PORT = "MASTER_ADDR", "MASTER_PORT"
ENVIRONMENT_KEYS = (WORLD_SIZE, RANK, LOCAL_WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT)


@dataclass(frozen=True)
class RankInfo:
    """A rank's place in its group. The variables are those of `torch.distributed`'s ``env://``.

    `local_rank` counts the ranks of the group on this node. Outside a group: rank 0 of 1.
    """

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    local_world_size: int = 1
    master_addr: str | None = None
    master_port: str | None = None

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> RankInfo:
        """Read from `environment` (default: this process's, now). `ValueError` naming a variable that is no number."""
        source = os.environ if environment is None else environment
        return cls(
            rank=_number(source, RANK, 0),
            world_size=_number(source, WORLD_SIZE, 1),
            local_rank=_number(source, LOCAL_RANK, 0),
            local_world_size=_number(source, LOCAL_WORLD_SIZE, 1),
            master_addr=source.get(MASTER_ADDR),
            master_port=source.get(MASTER_PORT),
        )

    def to_environment(self) -> dict[str, str]:
        """The variables that `from_environment` reads back."""
        environment = {
            RANK: str(self.rank),
            WORLD_SIZE: str(self.world_size),
            LOCAL_RANK: str(self.local_rank),
            LOCAL_WORLD_SIZE: str(self.local_world_size),
        }
        if self.master_addr is not None:
            environment[MASTER_ADDR] = self.master_addr
        if self.master_port is not None:
            environment[MASTER_PORT] = self.master_port
        return environment


def rank_of(owner: object) -> int:
    """The rank of the object whose method is called: its `rank`, else this process's (0 outside a group)."""
    rank = getattr(owner, "rank", None)
    return rank if isinstance(rank, int) else _number(os.environ, RANK, 0)


def _number(source: Mapping[str, str], name: str, default: int) -> int:
    text = source.get(name)
    if text is None:
        return default
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"environment variable {name} must be an integer, got {text!r}") from None
