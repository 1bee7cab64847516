"""The examples beside the main job, as their modules run them and small; one Ray cluster for all of them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from examples.common.cluster import start_ray
from examples.common.controller_actor import events_of
from examples.common.events import Evaluated, Started
from examples.dedup.__main__ import run as run_dedup
from examples.dedup.corpus import make_corpus
from examples.dedup.sketches import resemblance, shingles
from examples.ppo.config import PpoConfig, load_config
from examples.ppo.events import Event, Stepped
from examples.ppo.trainer import run_training
from examples.tensor_parallel import demo
from tests.support.warm_workers import warm_workers

pytestmark = pytest.mark.timeout(300)

_SHM = Path("/dev/shm")
_GONE_WITHIN_S = 60
_TINY_PPO = (
    "model.hidden_size=32",
    "model.num_layers=1",
    "data.train_batch_size=8",
    "data.val_size=8",
    "actor_rollout_ref.actor.ppo_mini_batch_size=4",
    "critic.ppo_mini_batch_size=4",
    "critic.warm_up_steps=1",
    "trainer.total_training_steps=3",
    "trainer.warm_up.examples=128",
    "trainer.storage_size=64MiB",
)


@pytest.fixture(scope="module", autouse=True)
def ray_cluster() -> Iterator[Any]:
    import ray

    with warm_workers():
        start_ray(num_cpus=16)
        yield ray
        ray.shutdown()


def test_the_same_loop_finds_the_same_on_an_object_in_this_process_and_on_ray() -> None:
    corpus = make_corpus(120, copies=20)
    found = [run_dedup(way, 2, corpus.texts, 0.6)[0] for way in ("object", "local", "ray")]
    assert found[0] == found[1] == found[2]
    sets = [shingles(text) for text in corpus.texts]
    alike = {
        (one, other)
        for one in range(len(sets))
        for other in range(one + 1, len(sets))
        if resemblance(sets[one], sets[other]) >= 0.6
    }
    assert len(alike & corpus.planted) >= 18, "an edited copy still resembles its original"
    assert found[0].found <= alike, "what is found was compared in full"
    assert len(found[0].found) >= 0.9 * len(alike), "sketches miss few"


def test_the_first_rank_of_each_replica_answers_for_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert demo.run()
    table = [line.split("│")[1:-1] for line in capsys.readouterr().out.splitlines() if line.startswith("│")]
    cells = [[cell.strip() for cell in line] for line in table]
    assert [(row[1], row[2], row[5]) for row in cells] == [
        ("0", "0", "True"),
        ("0", "1", "False"),
        ("1", "0", "True"),
        ("1", "1", "False"),
    ]
    assert [row[4] for row in cells] == ["0, 1, 2, 3, 4"] * 2 + ["5, 6, 7, 8, 9"] * 2
    assert [row[6] for row in cells] == ["0, 1, 2, 3, 4", "none", "5, 6, 7, 8, 9", "none"]


# PPO


def tiny_ppo(*overrides: str) -> PpoConfig:
    return load_config([*_TINY_PPO, *overrides])


@pytest.fixture(scope="module")
def colocated() -> list[Event]:
    """Reward in the bundles of the trained roles, the reference a second model, the controller in this process."""
    return list(events_of(run_training, tiny_ppo(), "driver"))


@dataclass
class KilledRun:
    """A run whose controller was killed after its third step, and the processes that were attached to it then."""

    events: list[Event] = field(default_factory=list)
    attached: set[int] = field(default_factory=set)
    error: Exception | None = None

    @property
    def started(self) -> Started:
        return next(event for event in self.events if isinstance(event, Started))


@pytest.fixture(scope="module")
def fused() -> KilledRun:
    """The fused class, reward in a pool of its own, the reference switched in, the controller in an actor."""
    config = tiny_ppo(
        "trainer.fused=true",
        "trainer.reference=switched",
        "reward.pool=reward_pool",
        "reward.num_workers=2",
        "trainer.total_training_steps=1000",
    )
    run = KilledRun()
    with closing(events_of(run_training, config, "actor")) as events:
        try:
            for event in events:
                run.events.append(event)
                if isinstance(event, Stepped) and event.step == 3:
                    run.attached = processes_of(run.started.session)
                    os.kill(run.started.controller_pid, signal.SIGKILL)
        except Exception as error:
            run.error = error
    return run


def steps_of(events: list[Event]) -> list[Stepped]:
    return [event for event in events if isinstance(event, Stepped)][:3]


def test_every_stage_of_ppo_runs_and_reports(colocated: list[Event]) -> None:
    first, *later = steps_of(colocated)
    assert len(later) == 2
    assert "update_actor" not in first.stage_s, "at first only the critic learns"
    stages = {"gen", "reward", "old_log_prob", "ref", "values", "adv", "update_critic", "update_actor"}
    assert all(set(step.stage_s) == stages for step in later)
    for step in later:
        assert {"reward/mean", "kl/per_response", "kl/coef", "critic/squared_error", "actor/loss"} <= set(step.metrics)
    assert first.metrics["kl/per_response"] == pytest.approx(0.0, abs=1e-4), "nothing has moved yet"
    assert later[-1].metrics["kl/per_response"] != 0.0
    assert [event.moment for event in colocated if isinstance(event, Evaluated)] == ["after warm-up", "after PPO"]


def test_the_controller_holds_metadata_only(colocated: list[Event]) -> None:
    rows, width = 8, 7 + 8
    for step in steps_of(colocated):
        assert step.payload_nbytes >= 8 * rows * (7 + 2 * width), "prompts, attention_mask and position_ids alone"
        assert 1_000 < step.metadata_nbytes < 8_000, "of all calls of the step together"


def test_the_fused_class_computes_the_same(colocated: list[Event], fused: KilledRun) -> None:
    """To the last bit: other classes, other pools, another way to the reference and another controller."""
    mine, other = steps_of(colocated), steps_of(fused.events)
    assert [step.metrics for step in mine] == [step.metrics for step in other]


def test_a_killed_controller_leaves_nothing_behind(fused: KilledRun, ray_cluster: Any) -> None:
    assert isinstance(fused.error, ray_cluster.exceptions.RayActorError)
    assert fused.started.controller_pid != os.getpid()
    assert len(fused.attached) >= 5, "the controller, two processes that train and two that score"
    deadline = time.monotonic() + _GONE_WITHIN_S
    while left_of(fused, ray_cluster) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not left_of(fused, ray_cluster)


def left_of(run: KilledRun, ray: Any) -> list[str]:
    """Processes that were attached, files in shared memory, room that is reserved still."""
    found = [f"process {pid}" for pid in run.attached if Path(f"/proc/{pid}").exists()]
    found += [entry.name for entry in _SHM.iterdir() if run.started.session in entry.name]
    total, free = ray.cluster_resources()["CPU"], ray.available_resources().get("CPU", 0.0)
    return found if free == total else [*found, f"{total - free:g} CPUs are taken"]


def processes_of(session: str) -> set[int]:
    """The processes, this one left out, that have the session's memory mapped."""
    found = set()
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                mapped = session in (folder / "maps").read_text()
            except (OSError, ProcessLookupError):
                continue  # it ended meanwhile, or is another user's
            if mapped:
                found.add(int(folder.name))
    return found - {os.getpid()}
