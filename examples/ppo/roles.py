"""Which roles there are, what class each has, on which pool it runs, and which of them share a process."""

from __future__ import annotations

from examples.ppo.actor_worker import ActorRolloutRefWorker
from examples.ppo.config import PpoConfig
from examples.ppo.critic_worker import CriticWorker
from examples.ppo.reward_worker import RewardWorker
from transferqueue.controller import ClassWithInitArgs, RayClassWithInitArgs, ResourcePoolManager, Role

GLOBAL_POOL, REWARD_POOL = "global_pool", "reward_pool"


def pools_of(config: PpoConfig) -> ResourcePoolManager:
    """The specification, pool name -> ranks per node, and the pool of each role. CPUs only."""
    spec = {GLOBAL_POOL: [config.global_pool_size]}
    if config.reward.pool == REWARD_POOL:
        spec[REWARD_POOL] = [config.reward.num_workers]
    mapping = {Role.ActorRolloutRef: GLOBAL_POOL, Role.Critic: GLOBAL_POOL, Role.RewardModel: config.reward.pool}
    # Two groups fit in a bundle: the processes that train, and those that score when they are in the same pool.
    return ResourcePoolManager(spec, mapping, max_colocate_count=2, use_gpu=False)


def classes_of(config: PpoConfig) -> dict[Role, ClassWithInitArgs]:
    """The class of each role that this run has, with the arguments of its constructor."""
    classes = {Role.ActorRolloutRef: ActorRolloutRefWorker, Role.RewardModel: RewardWorker}
    if config.needs_critic:
        classes[Role.Critic] = CriticWorker
    return {role: RayClassWithInitArgs(worker_class, config) for role, worker_class in classes.items()}


def process_of(role: Role) -> str:
    """Roles with the same answer that are on the same pool share their processes.

    Scoring is slow, knows no model, and may run code that models wrote: it stays apart from those that train.
    """
    return "scoring" if role is Role.RewardModel else "training"
