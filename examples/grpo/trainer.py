"""The loop: warm-up, GRPO steps, evaluations. A generator of events, so that driver and Ray actor can both run it."""

from __future__ import annotations

import logging
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager

import transferqueue as tq
from examples.common.data_loader import DataLoader
from examples.common.events import Evaluated, Started, WarmedUp
from examples.common.metrics import Metrics
from examples.common.model_setup import initial_state_of
from examples.common.warm_up import warm_up_parts
from examples.common.weight_sync import sync_weights
from examples.grpo.config import GrpoConfig
from examples.grpo.events import Cost, Event, Finished, Stepped
from examples.grpo.groups import Groups, start_groups, take_traffic
from examples.grpo.metering import Meter
from examples.grpo.passing import Passing, make_passing
from examples.grpo.stages import EVAL_STAGES, GENERATE, TRAIN_STAGES

_OTHER = {"metadata": "batch", "batch": "metadata"}


def run_training(config: GrpoConfig) -> Generator[Event, None, None]:
    """Starts session and groups, trains, and takes both down again, also after an error."""
    # torch says once per process that a function has a new name, when tensordict splits nested tensors.
    logging.getLogger("torch.fx._symbolic_trace").setLevel(logging.ERROR)
    with tq.init({"storage.size": config.trainer.storage_size}):
        meter = Meter()
        groups = start_groups(config, meter)
        try:
            yield from Trainer(config, groups, tq.get_client(), meter).run()
        finally:
            groups.shutdown()


class Trainer:
    """The controller: it holds metadata (or batches, see `passing`) and calls one stage after the other."""

    def __init__(self, config: GrpoConfig, groups: Groups, client: tq.TransferQueueClient, meter: Meter) -> None:
        self.config = config
        self.groups = groups
        self.client = client
        self.meter = meter
        self.loader = DataLoader(config)
        self.weights_version = 0

    def run(self) -> Iterator[Event]:
        """The whole run; `Finished` is the last event."""
        trainer = self.config.trainer
        passing = make_passing(trainer.passing, self.client)
        yield Started(
            parameters=sum(weight.numel() for weight in initial_state_of(self.config).values()),
            ranks={name: getattr(self.groups, name).world_size for name in ("rollout", "actor", "reward")},
            session=self.client.session,
        )
        yield (before := self._evaluate(passing, "before warm-up", 0))
        yield from self._warm_up(passing)
        yield (warm := self._evaluate(passing, "after warm-up", 0))
        self.groups.actor.start_reinforcement()
        costs: list[Cost] = []
        last = warm
        for step in range(1, trainer.total_training_steps + 1):
            stepped = self._train_step(passing, step)
            costs.append(stepped.cost)
            yield stepped
            if step == trainer.total_training_steps:
                yield (last := self._evaluate(passing, "after GRPO", step))
            elif trainer.test_freq > 0 and step % trainer.test_freq == 0:
                yield self._evaluate(passing, f"step {step}", step)
        summed = [sum_costs(costs)] if costs else []
        yield Finished(
            costs=[*summed, *self._compare()],
            accuracies={event.moment: event.accuracy for event in (before, warm, last)},
        )

    def _warm_up(self, passing: Passing) -> Iterator[WarmedUp]:
        actor = self.groups.actor
        actor.start_warm_up()
        for part in warm_up_parts(self.config, self.loader):
            batch = passing.load(part.rows, part.partition)
            _, metrics = passing.call(
                actor.warm_up,
                batch,
                ("prompts", "responses"),
                first_step=part.first_step,
                total_steps=part.total_steps,
            )
            passing.drop(part.partition)
            yield WarmedUp(part.first_step + part.steps, part.total_steps, metrics)
        self._sync_weights()

    def _train_step(self, passing: Passing, step: int) -> Stepped:
        partition = f"train_{step}"
        take_traffic(self.groups)  # what evaluations read is not this step's
        used_before = self.client.stats().used_bytes
        sent, received, own = self.meter.sent_bytes, self.meter.received_bytes, self.meter.own_cpu_s
        prompts = self.loader.train_batch(step)
        metrics: Metrics = {}
        stage_s: dict[str, float] = {}
        started_s = time.thread_time()
        batch = passing.load(prompts, partition)
        for stage in TRAIN_STAGES:
            with _clocked(stage_s, stage.name):
                options = self._sampling(step) if stage is GENERATE else {}
                method = getattr(getattr(self.groups, stage.group), stage.method)
                batch, reported = passing.call(method, batch, stage.inputs, **options)
                metrics.update(reported)
        controller_cpu_s = time.thread_time() - started_s - (self.meter.own_cpu_s - own)
        cost_so_far = (self.meter.sent_bytes - sent, self.meter.received_bytes - received)
        written = self.client.stats().used_bytes - used_before
        started_s = time.thread_time()
        del batch
        passing.drop(partition)
        controller_cpu_s += time.thread_time() - started_s
        with _clocked(stage_s, "weights"):
            weights_bytes = self._sync_weights()
        traffic = take_traffic(self.groups)
        cost = Cost(
            passing=passing.name,
            steps=1,
            sent_bytes=cost_so_far[0],
            received_bytes=cost_so_far[1],
            controller_cpu_s=controller_cpu_s,
            written_bytes=written,
            viewed_bytes=traffic["viewed"],
            copied_bytes=traffic["copied"],
            weights_written_bytes=weights_bytes,
            weights_viewed_bytes=traffic["weights_viewed"],
        )
        return Stepped(step, self.config.trainer.total_training_steps, metrics, stage_s, cost)

    def _evaluate(self, passing: Passing, moment: str, step: int) -> Evaluated:
        batch = passing.load(self.loader.held_out_batch(), "val")
        metrics: Metrics = {}
        for stage in EVAL_STAGES:
            options = {}
            if stage is GENERATE:
                temperature = self.config.actor_rollout_ref.rollout.val_kwargs.temperature
                options = {"temperature": temperature, "seed": self.config.trainer.seed}
            method = getattr(getattr(self.groups, stage.group), stage.method)
            batch, reported = passing.call(method, batch, stage.inputs, **options)
            metrics.update(reported)
        passing.drop("val")
        return Evaluated(moment, step, metrics["reward/accuracy"], metrics)

    def _compare(self) -> list[Cost]:
        """A few more steps with the other way of passing, for its cost only; the results are in already."""
        trainer = self.config.trainer
        if trainer.compare_steps < 1:
            return []
        passing = make_passing(_OTHER[trainer.passing], self.client)
        first = trainer.total_training_steps + 1
        return [sum_costs([self._train_step(passing, first + i).cost for i in range(trainer.compare_steps)])]

    def _sampling(self, step: int) -> dict[str, float | int]:
        rollout, trainer = self.config.actor_rollout_ref.rollout, self.config.trainer
        return {"temperature": rollout.temperature, "seed": trainer.seed * 1_000_003 + step}

    def _sync_weights(self) -> int:
        self.weights_version += 1
        return sync_weights(self.client, self.groups.actor, self.groups.rollout, self.weights_version)


def sum_costs(costs: list[Cost]) -> Cost:
    """The sum of the costs of several steps with one way of passing."""
    return Cost(
        passing=costs[0].passing,
        steps=sum(cost.steps for cost in costs),
        sent_bytes=sum(cost.sent_bytes for cost in costs),
        received_bytes=sum(cost.received_bytes for cost in costs),
        controller_cpu_s=sum(cost.controller_cpu_s for cost in costs),
        written_bytes=sum(cost.written_bytes for cost in costs),
        viewed_bytes=sum(cost.viewed_bytes for cost in costs),
        copied_bytes=sum(cost.copied_bytes for cost in costs),
        weights_written_bytes=sum(cost.weights_written_bytes for cost in costs),
        weights_viewed_bytes=sum(cost.weights_viewed_bytes for cost in costs),
    )


@contextmanager
def _clocked(seconds: dict[str, float], name: str) -> Iterator[None]:
    started_s = time.perf_counter()
    yield
    seconds[name] = time.perf_counter() - started_s
