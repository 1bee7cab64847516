"""One step of GRPO on a cluster whose nodes roll out or train."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

import simpy

from bench.simulate.costs import Cluster, Costs, Load
from bench.simulate.machines import Machines, Process, Usage
from bench.simulate.systems import HEAD, Batch, System


@dataclass(frozen=True)
class Outcome:
    """What a step came to.

    Attributes:
        step_s: of the whole step, computation included.
        compute_s: what it would take if data cost nothing.
        usage: busy seconds, bytes and memory.
    """

    step_s: float
    compute_s: float
    usage: Usage

    @property
    def overhead_s(self) -> float:
        """What handing data over adds to the step."""
        return self.step_s - self.compute_s

    def load_of(self, resource: str) -> float:
        """Share of the step's data time that the resource was busy."""
        return self.usage.busy_s.get(resource, 0.0) / max(self.overhead_s, 1e-9)

    def busiest(self) -> tuple[str, float]:
        """The resource that was busy longest, and its seconds; of those of one kind the worst."""
        worst: dict[str, tuple[float, str]] = defaultdict(lambda: (0.0, ""))
        for name, seconds in self.usage.busy_s.items():
            kind = name.rstrip("0123456789 ")
            worst[kind] = max(worst[kind], (seconds, name))
        seconds, name = max(worst.values())
        return name, seconds


def simulate(
    make_system: Callable[[Machines], System], cluster: Cluster, costs: Costs, load: Load | None = None
) -> Outcome:
    """Runs one step; deterministic."""
    load = load or Load()
    env = simpy.Environment()
    machines = Machines(env, cluster, costs)
    step = _Step(machines, make_system(machines), load)
    env.run(env.process(step.run()))
    compute_s = load.rollout_s + load.passes * load.pass_s + load.update_s
    return Outcome(env.now, compute_s, machines.usage)


class _Step:
    def __init__(self, machines: Machines, system: System, load: Load) -> None:
        self.machines = machines
        self.env = machines.env
        self.system = system
        self.load = load
        nodes = machines.cluster.nodes
        half = max(1, nodes // 2)
        self.rollout_nodes = range(half)
        self.train_nodes = range(half, nodes) if nodes > 1 else range(1)
        self.replicas = len(self.train_nodes) * machines.cluster.ranks // load.tensor_parallel

    def run(self) -> Process:
        """Prompts, rollout, passes, update; each phase begins when all ranks ended the one before."""
        load, ranks = self.load, self.machines.cluster.ranks
        n_rollouts = len(self.rollout_nodes) * ranks
        prompts = [Batch(HEAD, load.rows, load.prompt_bytes) for _ in range(n_rollouts)]
        yield from self.system.put(Batch(HEAD, load.rows * n_rollouts, load.prompt_bytes))
        made: list[list[Batch]] = [[] for _ in range(n_rollouts)]
        yield from self._at_once(
            [
                self._rollout(node, rank, prompts[number], made[number])
                for number, (node, rank) in enumerate((n, r) for n in self.rollout_nodes for r in range(ranks))
            ]
        )
        rows = [batch for batches in made for batch in batches]
        # Balanced by length, hence of any producer: a replica's rows come from all over.
        shares = [rows[replica :: self.replicas] for replica in range(self.replicas)]
        results: list[Batch] = []
        for _ in range(load.passes):
            yield from self._at_once([self._replica(*place, load.pass_s, results) for place in self._places(shares)])
        yield from self._at_once([self._replica(*place, load.update_s, None) for place in self._places(shares)])
        self.system.clear([*rows, *results, Batch(HEAD, load.rows * n_rollouts, load.prompt_bytes)])

    def _places(self, shares: list[list[Batch]]) -> list[tuple[int, int, list[Batch]]]:
        per_node = self.machines.cluster.ranks // self.load.tensor_parallel
        return [(self.train_nodes[number // per_node], number, share) for number, share in enumerate(shares)]

    def _at_once(self, processes: list[Process]) -> Process:
        yield self.env.all_of([self.env.process(process) for process in processes])

    def _rollout(self, node: int, rank: int, prompts: Batch, made: list[Batch]) -> Process:
        load, system = self.load, self.system
        name = f"rollout {node}.{rank}"
        yield from system.dispatch(name, [prompts], node)
        yield from system.get(node, name, [prompts], True)
        for _ in range(load.puts):
            yield self.env.timeout(load.rollout_s / load.puts)
            batch = Batch(node, load.rows // load.puts, load.response_bytes + load.prompt_bytes)
            yield from system.put(batch)
            made.append(batch)

    def _replica(
        self, node: int, replica: int, share: list[Batch], compute_s: float, results: list[Batch] | None
    ) -> Process:
        """The ranks of one replica; they compute together when the last one has its rows, and one of them writes."""
        load, system = self.load, self.system
        readers = [self._read(node, replica, rank, share) for rank in range(load.tensor_parallel)]
        yield from self._at_once(readers)
        yield self.env.timeout(compute_s)
        if results is not None:
            batch = Batch(node, sum(part.rows for part in share), load.scalar_bytes)
            yield from system.put(batch)
            results.append(batch)

    def _read(self, node: int, replica: int, rank: int, share: list[Batch]) -> Process:
        name = f"replica {replica}.{rank}"
        yield from self.system.dispatch(name, share, node)
        yield from self.system.get(node, name, share, rank == 0)
