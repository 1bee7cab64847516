"""Which rank this process is, as its worker group told it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from transferqueue.workers.rank_nodes import RankNodes

WORLD_SIZE, RANK = "WORLD_SIZE", "RANK"
LOCAL_WORLD_SIZE, LOCAL_RANK = "LOCAL_WORLD_SIZE", "LOCAL_RANK"
MASTER_ADDR, MASTER_PORT = "MASTER_ADDR", "MASTER_PORT"
WG_BACKEND, WG_PREFIX = "WG_BACKEND", "WG_PREFIX"
RAY_LOCAL_WORLD_SIZE, RAY_LOCAL_RANK = "RAY_LOCAL_WORLD_SIZE", "RAY_LOCAL_RANK"
REDIS_STORE_SERVER_HOST = "REDIS_STORE_SERVER_HOST"
DISABLE_WORKER_INIT = "DISABLE_WORKER_INIT"
RANK_NODES = "WG_RANK_NODES"

ENVIRONMENT_KEYS = (
    WORLD_SIZE,
    RANK,
    LOCAL_WORLD_SIZE,
    LOCAL_RANK,
    MASTER_ADDR,
    MASTER_PORT,
    WG_BACKEND,
    WG_PREFIX,
    RAY_LOCAL_WORLD_SIZE,
    RAY_LOCAL_RANK,
    REDIS_STORE_SERVER_HOST,
    DISABLE_WORKER_INIT,
)
"""The contract between a group and its ranks. A program may read these variables and may not set them for a group."""


@dataclass(frozen=True)
class DistRankInfo:
    """Where a rank stands in tensor, data, pipeline and context parallelism; each from 0."""

    tp_rank: int
    dp_rank: int
    pp_rank: int
    cp_rank: int = 0


@dataclass(frozen=True)
class DistGlobalInfo:
    """How many ranks each kind of parallelism has; their product is the world size."""

    tp_size: int
    dp_size: int
    pp_size: int
    cp_size: int = 1


@dataclass(frozen=True)
class RankInfo:
    """A rank's place in its group. The variables are those of `torch.distributed`'s ``env://``, and the group's own.

    Outside a group: rank 0 of 1.

    Attributes:
        local_rank: the rank's number among the ranks of the group on its node. Where Ray was told to leave the
            visible devices alone (see `transferqueue.workers.devices`), the number of its device on the node.
        local_world_size: how many ranks of the group are on its node.
        master_addr, master_port: where the ranks meet.
        backend: what runs the ranks, ``"ray"``; None outside a group.
        prefix: the group's name prefix.
        nodes: which rank is on which node; empty outside a group.
    """

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    local_world_size: int = 1
    master_addr: str | None = None
    master_port: str | None = None
    backend: str | None = None
    prefix: str | None = None
    nodes: RankNodes = field(default_factory=RankNodes)

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
            backend=source.get(WG_BACKEND),
            prefix=source.get(WG_PREFIX),
            nodes=RankNodes.from_text(source.get(RANK_NODES, "")),
        )

    def to_environment(self) -> dict[str, str]:
        """The variables that `from_environment` reads back, and the further ones of the contract."""
        environment = {
            RANK: str(self.rank),
            WORLD_SIZE: str(self.world_size),
            LOCAL_RANK: str(self.local_rank),
            LOCAL_WORLD_SIZE: str(self.local_world_size),
            RAY_LOCAL_RANK: str(self.local_rank),
            RAY_LOCAL_WORLD_SIZE: str(self.local_world_size),
        }
        if self.master_addr is not None:
            environment[MASTER_ADDR] = self.master_addr
            environment[REDIS_STORE_SERVER_HOST] = self.master_addr.strip("[]")
        further = {MASTER_PORT: self.master_port, WG_BACKEND: self.backend, WG_PREFIX: self.prefix}
        environment.update({name: value for name, value in further.items() if value is not None})
        if self.nodes:
            environment[RANK_NODES] = self.nodes.to_text()
        return environment


def check_worker_env(worker_env: Mapping[str, str]) -> dict[str, str]:
    """A copy of what a program wants in the environment of its ranks.

    Raises `ValueError` naming the variables that are the group's to set, `TypeError` for a value that is no text.
    """
    taken = [key for key in worker_env if key in ENVIRONMENT_KEYS or key == RANK_NODES]
    if taken:
        raise ValueError(
            f"worker_env sets {', '.join(f'{key}={worker_env[key]!r}' for key in taken)}: the worker group sets "
            f"{'it' if len(taken) == 1 else 'them'} for each rank. Leave {', '.join(taken)} out of worker_env"
        )
    for key, value in worker_env.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise TypeError(f"worker_env maps text to text, got {key!r}: {value!r}")
    return dict(worker_env)


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
