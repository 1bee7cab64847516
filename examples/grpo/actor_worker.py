"""An actor rank: the trained policy and its reference on a mesh of DP x TP ranks, and what its calls moved."""

from __future__ import annotations

from typing import Any

from examples.common.policy_worker import PolicyWorker
from examples.grpo.config import GrpoConfig
from examples.grpo.traffic import TrafficLog
from transferqueue.workers import Dispatch, register


class ActorWorker(PolicyWorker):
    """Stages `old_log_prob`, `ref` and `update_actor`, the warm-up, and the sending end of the weights."""

    def __init__(self, config: GrpoConfig) -> None:
        super().__init__(config)
        self.traffic = TrafficLog()

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def take_traffic(self) -> dict[str, Any]:
        """What this rank's bridged calls read through shared memory since the last call."""
        return self.traffic.take()
