"""The loop: warm-up, PPO steps, evaluations. A generator of events, so that driver and Ray actor can both run it."""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterator
from typing import Any

import transferqueue as tq
from examples.common.data_loader import DataLoader
from examples.common.events import Evaluated, Started, WarmedUp
from examples.common.metrics import mean_metrics
from examples.common.model_setup import initial_state_of
from examples.common.warm_up import warm_up_parts
from examples.common.weight_sync import sync_weights
from examples.ppo.actor_worker import WEIGHTS
from examples.ppo.config import PpoConfig
from examples.ppo.events import Event, Layout, Stepped
from examples.ppo.groups import Groups
from examples.ppo.kl_control import KlControl
from examples.ppo.stage_calls import StageCalls
from examples.ppo.stages import ACTOR, CRITIC, GENERATE, REF_SWITCHED, SCORE, stages_of
from transferqueue.controller import Broadcast


def run_training(config: PpoConfig) -> Generator[Event, None, None]:
    """Starts session and groups, trains, and takes both down again, also after an error."""
    # torch says once per process that a function has a new name, when tensordict splits nested tensors.
    logging.getLogger("torch.fx._symbolic_trace").setLevel(logging.ERROR)
    with tq.init({"storage.size": config.trainer.storage_size}):
        groups = Groups(config)
        try:
            yield from Trainer(config, groups, tq.get_client()).run()
        finally:
            groups.close()


class Trainer:
    """The controller: it holds metadata and calls one stage after the other."""

    def __init__(self, config: PpoConfig, groups: Groups, client: tq.TransferQueueClient) -> None:
        self.config = config
        self.groups = groups
        self.client = client
        self.loader = DataLoader(config)
        self.kl_control = KlControl(config.algorithm.kl_ctrl)

    def run(self) -> Iterator[Event]:
        """The whole run; the last event is the evaluation after it."""
        trainer = self.config.trainer
        yield Started(
            parameters=sum(weight.numel() for weight in initial_state_of(self.config).values()),
            ranks={name: group.world_size for name, group in self.groups.items()},
            session=self.client.session,
        )
        yield Layout(self.groups.layout)
        yield from self._warm_up()
        yield self._evaluate("after warm-up", 0)
        for step in range(1, trainer.total_training_steps + 1):
            yield self._train_step(step)
            if step == trainer.total_training_steps:
                yield self._evaluate("after PPO", step)
            elif trainer.test_freq > 0 and step % trainer.test_freq == 0:
                yield self._evaluate(f"step {step}", step)

    def _warm_up(self) -> Iterator[WarmedUp]:
        actor = self.groups[ACTOR]
        actor.start_warm_up()
        for part in warm_up_parts(self.config, self.loader):
            rows = self.client.put(part.rows, partition_id=part.partition)
            answer = actor.warm_up(rows, first_step=Broadcast(part.first_step), total_steps=Broadcast(part.total_steps))
            self.client.clear_partition(part.partition)
            yield WarmedUp(part.first_step + part.steps, part.total_steps, mean_metrics(answer.extra_info))
        actor.start_reinforcement()
        if self.config.needs_critic:
            self._start_critic()

    def _start_critic(self) -> None:
        """The critic starts from the policy's weights: a row of the data plane, or the other role's own."""
        actor, critic = self.groups[ACTOR], self.groups[CRITIC]
        if self.config.trainer.fused:
            critic.start_from(ACTOR)
        else:
            sync_weights(self.client, actor, critic, version=1)

    def _train_step(self, step: int) -> Stepped:
        partition = f"train_{step}"
        used_before = self.client.stats().used_bytes
        calls = StageCalls(self.groups, self.client.put(self.loader.train_batch(step), partition_id=partition))
        for stage in stages_of(self.config, step):
            calls.run(stage, self._extra_info(stage, step))
        batch = calls.finish()
        payload_nbytes = self.client.stats().used_bytes - used_before
        metrics = {**calls.metrics, "kl/coef": self.kl_control.coef}
        self.kl_control.update(metrics["kl/per_response"], batch.size)
        self.client.clear_partition(partition)
        total_steps = self.config.trainer.total_training_steps
        return Stepped(step, total_steps, metrics, calls.stage_s, calls.metadata_nbytes, payload_nbytes)

    def _evaluate(self, moment: str, step: int) -> Evaluated:
        calls = StageCalls(self.groups, self.client.put(self.loader.held_out_batch(), partition_id="val"))
        sampling = self.config.actor_rollout_ref.rollout.val_kwargs
        calls.run(GENERATE, {"temperature": sampling.temperature, "seed": self.config.trainer.seed})
        calls.run(SCORE)
        calls.finish()
        self.client.clear_partition("val")
        return Evaluated(moment, step, calls.metrics["reward/accuracy"], calls.metrics)

    def _extra_info(self, stage: Any, step: int) -> dict[str, Any]:
        """What a stage is told beside its rows."""
        if stage is GENERATE:
            temperature = self.config.actor_rollout_ref.rollout.temperature
            return {"temperature": temperature, "seed": self.config.trainer.seed * 1_000_003 + step}
        if stage is REF_SWITCHED:
            return {WEIGHTS: "reference"}
        if stage.name == "adv":
            return {"kl_coef": self.kl_control.coef}
        return {}
