"""An actor starts the queue and closes it, as verl's task runner does. Runs last: the driver closes its own."""

from __future__ import annotations

from typing import Any

from verl_rollouts import finished_rows
from verl_task_runner import TaskRunner


def test_a_queue_that_an_actor_starts_and_closes(queue: Any, queue_config: Any, ray_cluster: Any) -> None:
    uids = ["first", "second"]
    queue.close()
    runner = ray_cluster.remote(TaskRunner).options(num_cpus=1).remote()
    sampled = ray_cluster.get(runner.run.remote(queue_config, uids))
    expected = finished_rows(uids, 2, failing=[])
    assert sampled == {key: row["input_ids"].tolist() for key, row in expected.items()}

    queue.init(queue_config)
    assert not queue.kv_list(), "the runner took its queue down: this one is new"
