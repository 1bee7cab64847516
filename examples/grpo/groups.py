"""The worker groups of the example, on Ray."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from examples.grpo.actor_worker import ActorWorker
from examples.grpo.config import GrpoConfig
from examples.grpo.metering import Meter, MeteredWorkerGroup
from examples.grpo.reward_worker import RewardWorker
from examples.grpo.rollout_worker import RolloutWorker
from transferqueue.controller import RayClassWithInitArgs, RayResourcePool


@dataclass(frozen=True)
class Groups:
    """The groups by the names that stages use."""

    rollout: Any
    actor: Any
    reward: Any

    def all(self) -> list[Any]:
        """Every group."""
        return [self.rollout, self.actor, self.reward]

    def shutdown(self) -> None:
        """Ends all ranks."""
        for group in self.all():
            group.shutdown()


# Which groups share a node when there are several: the responses that rollout makes cross the network, and the actor's
# log probabilities do on their way to the reward ranks beside the driver.
_NODE_OF = {"rollout": "rollout_node", "actor": "actor_node"}


def nodes_of(config: GrpoConfig) -> list[dict[str, float]]:
    """The custom resources of each node beside the driver's; none with ``trainer.nodes=1``."""
    return [{name: 1000.0} for name in _NODE_OF.values()] if config.trainer.nodes > 1 else []


def start_groups(config: GrpoConfig, meter: Meter) -> Groups:
    """Starts every rank; all started groups are taken down again when one does not start."""
    import ray

    actor = config.actor_rollout_ref.actor
    sizes = {
        "rollout": (RolloutWorker, config.actor_rollout_ref.rollout.data_parallel_size),
        "actor": (ActorWorker, actor.data_parallel_size * actor.tensor_parallel_size),
        "reward": (RewardWorker, config.reward.num_workers),
    }
    started: dict[str, Any] = {}
    try:
        for name, (worker_class, ranks) in sizes.items():
            node = _NODE_OF.get(name) if config.trainer.nodes > 1 else None
            pool = RayResourcePool(
                [ranks],
                use_gpu=False,
                max_colocate_count=1,
                name_prefix=f"grpo_{name}",
                further_resources={} if node is None else {node: 1},
            )
            started[name] = MeteredWorkerGroup(
                resource_pool=pool,
                ray_cls_with_init=RayClassWithInitArgs(ray.remote(worker_class), config),
                meter=meter,
            )
    except BaseException:
        for group in started.values():
            group.shutdown()
        raise
    return Groups(**started)


def take_traffic(groups: Groups) -> dict[str, int]:
    """Bytes that all ranks together viewed in shared memory or copied out of it since the last call."""
    totals: dict[str, int] = {}
    for group in groups.all():
        for rank_totals in group.take_traffic():
            for name, value in rank_totals.items():
                totals[name] = totals.get(name, 0) + value
    return totals
