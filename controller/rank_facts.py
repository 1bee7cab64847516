"""What is known of a rank, for messages and for finding its traces."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class RankFacts:
    """What an error says about the rank it happened on. `log_paths` are files on its node that its output goes to,
    `devices` the numbers of the accelerators that Ray gave it."""

    rank: int
    node: str
    node_id: str = ""
    pid: int | None = None
    log_paths: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        return f"rank {self.rank} (node {self.node}, pid {self.pid if self.pid is not None else 'unknown'})"


@dataclass(frozen=True)
class RankState:
    """Whether a rank lives; `cause` says why a dead one is dead."""

    state: Literal["alive", "starting", "dead"]
    cause: str = ""
