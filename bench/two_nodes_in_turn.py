"""We and Ray's object store between the same two nodes, round by round in turn: on a machine with other work the times
of runs that come one after another say more of that work than of either system; the ratio within a round does not.

`python -m bench.two_nodes_in_turn [ROUNDS]`: for 1 to 8 readers the quartiles of both, and the median of the ratios.
Ray with its zero-copy switch and a dict of tensors, its best case.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from typing import Any

import ray

import transferqueue as tq
from bench.baselines.ray_two_nodes import (
    READERS,
    THERE,
    sleep_until,
    start_at,
    two_nodes,
    warmed_up_rounds,
)
from bench.ours import PARTITION
from bench.workload import workload_w
from transferqueue.microbench.ray_peer import SWITCH, as_dict


class _Reader:
    def __init__(self) -> None:
        self._value: Any = None

    def start(self) -> None:
        """Joins its node's part of the session."""
        tq.get_client()

    def ours(self, meta: Any, begin_s: float) -> float:
        """Seconds from `begin_s` until the batch is there."""
        self._value = None
        sleep_until(begin_s)
        self._value = tq.get_client().get_data(meta)
        return time.time() - begin_s

    def rays(self, box: list[Any], begin_s: float) -> float:
        """The same of `ray.get`."""
        self._value = None
        sleep_until(begin_s)
        self._value = ray.get(box[0])
        return time.time() - begin_s


def main(rounds: int) -> None:
    batch = workload_w(512)
    tensors = as_dict(batch)
    with two_nodes(environment={SWITCH: "1"}), tq.init(**{"storage.size": "1GiB", "cluster.enabled": True}) as session:
        client = session.client
        remote: Any = ray.remote(num_cpus=0, resources={THERE: 1})(_Reader)
        readers = [remote.remote() for _ in range(max(READERS))]
        ray.get([reader.start.remote() for reader in readers])
        for count in READERS:
            ours, rays = [], []
            for counts in warmed_up_rounds(rounds, first=count == READERS[0]):
                meta = client.put(batch, partition_id=PARTITION)
                begin_s = start_at()
                mine = max(ray.get([reader.ours.remote(meta, begin_s) for reader in readers[:count]]))
                client.clear_samples(meta)
                reference = ray.put(tensors)
                begin_s = start_at()
                theirs = max(ray.get([reader.rays.remote([reference], begin_s) for reader in readers[:count]]))
                del reference
                if counts:
                    ours.append(1e3 * mine)
                    rays.append(1e3 * theirs)
            ratio = statistics.median(theirs / mine for mine, theirs in zip(ours, rays, strict=True))
            print(
                f"{count} readers: ours {_quartiles(ours)} ms, Ray {_quartiles(rays)} ms, ratio {ratio:.2f}", flush=True
            )


def _quartiles(values: list[float]) -> str:
    low, middle, high = statistics.quantiles(values, n=4)
    return f"{middle:.1f} ({low:.1f} to {high:.1f}; best {min(values):.1f})"


if __name__ == "__main__":
    if os.environ.get(SWITCH) != "1":  # Ray reads it when it is imported, in the driver, too
        program = [sys.executable, "-m", "bench.two_nodes_in_turn", *sys.argv[1:]]
        os.execve(sys.executable, program, {**os.environ, SWITCH: "1"})
    main(int(sys.argv[1]) if sys.argv[1:] else 20)
