"""How the actors of a group are to start."""

from __future__ import annotations

from collections.abc import Mapping, Sized
from dataclasses import dataclass, field
from typing import Any

from transferqueue.controller.actor_names import new_prefix
from transferqueue.controller.rendezvous import Rendezvous
from transferqueue.workers.ranks import check_worker_env

# Calls of the profiled range that a rank makes per step, at most; nsys ends a capture after so many.
_RANGES_PER_STEP = 6


@dataclass(frozen=True)
class StartOptions:
    """What `RayWorkerGroup` was told besides pool and class.

    Attributes:
        worker_env: further environment variables of the ranks. `ValueError` naming a key that the group itself sets.
        timeout_s: how long the actors may take to start.
        prefix: start of the actors' names.
        rendezvous: where the ranks meet.
        detached: the actors outlive this program.
        use_gpu: whether the actors take a share of the accelerators; None: where the pool has any.
        nsight: options of nsys, under which the ranks run; None: they do not.
    """

    worker_env: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float = 300.0
    prefix: str = field(default_factory=new_prefix)
    rendezvous: Rendezvous = field(default_factory=Rendezvous)
    detached: bool = False
    use_gpu: bool | None = None
    nsight: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "worker_env", check_worker_env(self.worker_env))


def nsight_options(options: Mapping[str, Any] | None, profile_steps: Sized | None) -> dict[str, Any] | None:
    """The options of nsys for ranks that profile some steps; None without steps.

    A ``capture-range-end`` of None becomes one that lets every profiled step write a report of its own.
    """
    if not profile_steps or options is None:
        return None
    own = dict(options)
    if own.get("capture-range-end", "") is None:
        own["capture-range-end"] = f"repeat-shutdown:{_RANGES_PER_STEP * len(profile_steps)}"
    return own
