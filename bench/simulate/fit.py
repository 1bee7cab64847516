"""Measures the costs of the simulation: `python -m bench.simulate.fit` (about two minutes) writes costs.json.

Two Ray nodes on this machine. The home of every partition is the driver's node, callers are on the other one. What a
resource gives is what limits it: of a server the processor time that a call costs it, of a caller the seconds that it
waits.
"""

from __future__ import annotations

import pickle
import statistics
import time
from collections.abc import Callable
from typing import Any

import ray
import torch
from tensordict import TensorDict

import transferqueue as tq
from bench.baselines.ray_two_nodes import THERE, two_nodes
from bench.simulate.costs import Costs
from bench.simulate.processor_time import listener_of, processor_s
from bench.timing import MemcpyUnit
from bench.workload import payload_nbytes, workload_w
from transferqueue.metadata import BatchMeta

_CALLS = 400
_MANY_ROWS = 4096
_ROUNDS = 9
_PLACE = "place"


def _rows(count: int) -> TensorDict:
    return TensorDict({"x": torch.zeros(count, 4)}, batch_size=[count])


class _Caller:
    """A process of the other node. Each method returns the seconds of each call."""

    def _timed(self, call: Callable[[], Any], times: int) -> list[float]:
        seconds = []
        for _ in range(times):
            began = time.perf_counter()
            call()
            seconds.append(time.perf_counter() - began)
        return seconds

    def attach(self) -> None:
        tq.get_client()

    def ask(self, times: int) -> list[float]:
        """A call that does next to nothing at the home."""
        client = tq.get_client()
        return self._timed(lambda: client.check_production_status("x", _PLACE), times)

    def publish(self, rows: int, times: int) -> list[float]:
        client, batch = tq.get_client(), _rows(rows)
        return self._timed(lambda: client.put(batch, partition_id="put"), times)

    def read(self, meta: BatchMeta, times: int) -> list[float]:
        """After the first of them nothing but the look-up at the home is left, and a read of the own node."""
        client = tq.get_client()
        client.get_data(meta)
        return self._timed(lambda: client.get_data(meta), times)

    def pull(self, meta: BatchMeta) -> float:
        client = tq.get_client()
        return self._timed(lambda: client.get_data(meta), 1)[0]

    def receive(self, meta: BatchMeta) -> BatchMeta:
        """What a rank of a worker group is sent, and what it returns."""
        return meta


class _Fit:
    def __init__(self, session: tq.Session, caller: Any) -> None:
        self.client = session.client
        self.caller = caller
        own = self.client.place_partition("put")
        self.agent = listener_of(next(node.port for node in session.nodes() if node.ordinal == own))

    def at_home(self, method: str, *arguments: Any) -> tuple[float, float]:
        """(processor seconds of the home's agent, seconds that the caller waits), of one call."""
        before = processor_s(self.agent)
        seconds = ray.get(getattr(self.caller, method).remote(*arguments))
        return (processor_s(self.agent) - before) / len(seconds), statistics.median(seconds)

    def costs(self) -> dict[str, float]:
        client = self.client
        one, many = (client.put(_rows(count), partition_id=_PLACE) for count in (1, _MANY_ROWS))
        ray.get(self.caller.ask.remote(20))
        ask_s, ask_wait_s = self.at_home("ask", _CALLS)
        publish_one_s, _ = self.at_home("publish", 1, _CALLS)
        publish_many_s, _ = self.at_home("publish", _MANY_ROWS, _CALLS)
        client.clear_partition("put")
        locate_one_s, _ = self.at_home("read", one, _CALLS)
        locate_many_s, _ = self.at_home("read", many, _CALLS)
        return {
            "call_s": max(0.0, ask_wait_s - ask_s),
            "publish_s": publish_one_s,
            "publish_row_s": max(0.0, publish_many_s - publish_one_s) / (_MANY_ROWS - 1),
            "locate_s": locate_one_s,
            "locate_row_s": max(0.0, locate_many_s - locate_one_s) / (_MANY_ROWS - 1),
            "dispatch_s": self._dispatch(many),
            **self._bytes(),
        }

    def _dispatch(self, meta: BatchMeta) -> float:
        """Processor time of the controller, of a call with metadata and its answer, many of which are on their way."""
        began = time.process_time()
        ray.get([self.caller.receive.remote(meta) for _ in range(_CALLS)])
        return (time.process_time() - began) / _CALLS

    def _bytes(self) -> dict[str, float]:
        batch = workload_w(512)
        nbytes = payload_nbytes(batch)
        pulls, served, puts, gets = [], [], [], []
        for _ in range(_ROUNDS):
            began = time.perf_counter()
            meta = self.client.put(batch, partition_id="bytes")
            puts.append(time.perf_counter() - began)
            began = time.perf_counter()
            self.client.get_data(meta)
            gets.append(time.perf_counter() - began)
            before = processor_s(self.agent)
            pulls.append(ray.get(self.caller.pull.remote(meta)))
            served.append(processor_s(self.agent) - before)
            self.client.clear_partition("bytes")
        unit = MemcpyUnit(nbytes)
        copy_s = statistics.median(unit.seconds() for _ in range(_ROUNDS))
        packed = [self._seconds(lambda: pickle.dumps(batch, protocol=5)) for _ in range(_ROUNDS)]
        message = pickle.dumps(batch, protocol=5)
        unpacked = [self._seconds(lambda: pickle.loads(message)) for _ in range(_ROUNDS)]
        return {
            "copy_bytes_s": nbytes / copy_s,
            "local_put_s": max(0.0, statistics.median(puts) - copy_s),
            "local_get_s": statistics.median(gets),
            # The first ones touch memory that nobody has used before.
            "pull_bytes_s": nbytes / statistics.median(pulls[2:]),
            "serve_bytes_s": nbytes * len(served) / sum(served),
            "pickle_bytes_s": nbytes / statistics.median(packed),
            "unpickle_bytes_s": nbytes / statistics.median(unpacked),
        }

    def _seconds(self, call: Callable[[], Any]) -> float:
        began = time.perf_counter()
        call()
        return time.perf_counter() - began


HOW = {
    "publish_s": "processor time of the home's agent, of a put of 1 row of 16 bytes on the other node",
    "publish_row_s": f"the same for {_MANY_ROWS} rows, less that, a row",
    "locate_s": "processor time of the home's agent, of a get of 1 row that the other node has already",
    "locate_row_s": f"the same for {_MANY_ROWS} rows, less that, a row",
    "call_s": "what a caller waits for a call that does nothing, less the agent's processor time",
    "dispatch_s": "processor time of the driver, of an actor call with the metadata of 512 rows and its answer",
    "local_put_s": "put of W (67 MB) on the own node, less one memcpy",
    "local_get_s": "get of W on the own node",
    "copy_bytes_s": "memcpy of W into warm shared memory",
    "pull_bytes_s": "W by one process of the other node, over loopback",
    "serve_bytes_s": "W by processor time of the agent that serves it",
    "pickle_bytes_s": "pickle of W as a TensorDict",
    "unpickle_bytes_s": "the way back",
}


def main() -> None:
    with two_nodes(), tq.init(**{"storage.size": "2GiB", "cluster.enabled": True}) as session:
        caller: Any = ray.remote(num_cpus=0, resources={THERE: 1})(_Caller).remote()
        ray.get(caller.attach.remote())
        found = Costs(**_Fit(session, caller).costs())
    found.write(HOW)
    for name in HOW:
        print(f"{name}: {getattr(found, name):.4g}")


if __name__ == "__main__":
    main()
