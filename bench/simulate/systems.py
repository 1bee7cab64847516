"""The three ways of a batch from its producer to its readers, as costs of the same few calls."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from bench.simulate.machines import Machines, Process

HEAD = 0


@dataclass(frozen=True, eq=False)
class Batch:
    """Rows that lie together: of one put.

    Attributes:
        node: where they were produced.
        nbytes: of one row.
    """

    node: int
    rows: int
    nbytes: float


class System:
    """How rows are handed over."""

    name = ""

    def __init__(self, machines: Machines) -> None:
        self.machines = machines
        self.env = machines.env
        self.costs = machines.costs

    def dispatch(self, rank: str, batches: list[Batch], node: int) -> Process:
        """The controller's call of one rank, with what it has to read."""
        raise NotImplementedError

    def put(self, batch: Batch) -> Process:
        """A producer hands rows over."""
        raise NotImplementedError

    def get(self, node: int, reader: str, batches: list[Batch], first: bool) -> Process:
        """A rank reads rows. `first`: of the ranks of its node that read the same."""
        raise NotImplementedError

    def clear(self, batches: Iterable[Batch]) -> None:
        """The rows are done with."""

    def _all(self, processes: list[Process]) -> Process:
        yield self.env.all_of([self.env.process(process) for process in processes])

    def _size(self, batches: list[Batch]) -> float:
        return sum(batch.rows * batch.nbytes for batch in batches)


class Homes(System):
    """Ours: payload stays with its producer, a home keeps the index, each node pulls what its ranks read once.

    Attributes:
        homes: over how many nodes the rows of one partition are spread; 1 is what the library does.
        asking_once: whether ranks of a node that read the same rows ask the home once together; so does the library.
        combined: whether a node's agent joins all calls that its ranks make at about the same time into one.
        fan_out: whether the controller calls one rank of a node, which calls the others.
    """

    name = "homes"

    def __init__(
        self,
        machines: Machines,
        *,
        homes: int = 1,
        asking_once: bool = True,
        combined: bool = False,
        fan_out: bool = False,
    ) -> None:
        super().__init__(machines)
        self.asking_once = asking_once
        self.homes = min(homes, machines.cluster.nodes)
        self.combined = combined
        self.fan_out = fan_out
        self.copies: dict[tuple[int, Batch], float] = {}
        self._turn = 0

    def dispatch(self, rank: str, batches: list[Batch], node: int) -> Process:
        ranks = self.machines.cluster.ranks if self.fan_out else 1
        yield from self.machines.serve("controller", self.costs.dispatch_s / ranks)
        if self.fan_out:
            yield from self.machines.serve(f"fan-out of node {node}", self.costs.dispatch_s)

    def put(self, batch: Batch) -> Process:
        costs = self.costs
        nbytes = batch.rows * batch.nbytes
        yield self.env.timeout(costs.local_put_s + nbytes / costs.copy_bytes_s)
        self.machines.usage.hold(batch.node, nbytes)
        seconds = costs.publish_s / self._joined() + costs.publish_row_s * batch.rows
        home = self._home()
        yield from self.machines.call(batch.node, home, f"home {home}", seconds)

    def get(self, node: int, reader: str, batches: list[Batch], first: bool) -> Process:
        costs = self.costs
        rows = sum(batch.rows for batch in batches)
        if first or not self.asking_once:
            home = self._home()
            seconds = costs.locate_s / self._joined() + costs.locate_row_s * rows
            yield from self.machines.call(node, home, f"home {home}", seconds)
        if first:
            pulls = []
            for batch in batches:
                if batch.node != node and (node, batch) not in self.copies:
                    self.copies[node, batch] = nbytes = batch.rows * batch.nbytes
                    self.machines.usage.hold(node, nbytes)
                    server = f"agent {batch.node}"
                    pulls.append(self.machines.transfer(batch.node, node, nbytes, server, costs.pull_bytes_s))
            if pulls:
                yield from self._all(pulls)
        yield self.env.timeout(costs.local_get_s)

    def clear(self, batches: Iterable[Batch]) -> None:
        for batch in batches:
            self.machines.usage.hold(batch.node, -batch.rows * batch.nbytes)
        for (node, _), nbytes in self.copies.items():
            self.machines.usage.hold(node, -nbytes)
        self.copies.clear()

    def _home(self) -> int:
        self._turn += 1
        return self._turn % self.homes

    def _joined(self) -> int:
        return self.machines.cluster.ranks if self.combined else 1


class OnTheHead(System):
    """All rows go to the head node first."""

    def _to_head(self, batch: Batch) -> Process:
        nbytes = batch.rows * batch.nbytes
        yield self.env.timeout(nbytes / self.costs.pickle_bytes_s)
        sender = f"sender {batch.node}"
        yield from self.machines.transfer(batch.node, HEAD, nbytes, sender, self.costs.pull_bytes_s)
        self.machines.usage.hold(HEAD, nbytes)

    def clear(self, batches: Iterable[Batch]) -> None:
        for batch in batches:
            self.machines.usage.hold(HEAD, -batch.rows * batch.nbytes)


class CentralStore(OnTheHead):
    """Storage units on the head node, which every put and every get goes through; metadata is dispatched."""

    name = "central store"

    def dispatch(self, rank: str, batches: list[Batch], node: int) -> Process:
        yield from self.machines.serve("controller", self.costs.dispatch_s)

    def put(self, batch: Batch) -> Process:
        yield from self._to_head(batch)
        seconds = self.costs.publish_s + self.costs.publish_row_s * batch.rows
        yield from self.machines.call(batch.node, HEAD, f"home {HEAD}", seconds)

    def get(self, node: int, reader: str, batches: list[Batch], first: bool) -> Process:
        costs = self.costs
        nbytes = self._size(batches)
        rows = sum(batch.rows for batch in batches)
        yield from self.machines.call(node, HEAD, f"home {HEAD}", costs.locate_s + costs.locate_row_s * rows)
        yield from self.machines.transfer(HEAD, node, nbytes, f"agent {HEAD}", costs.pull_bytes_s)
        self.machines.usage.hold(node, nbytes)  # every reader has its own
        yield self.env.timeout(nbytes / costs.unpickle_bytes_s)
        self.machines.usage.hold(node, -nbytes)


class ThroughController(OnTheHead):
    """The controller collects every output and sends every input, as single controllers do without a data plane."""

    name = "through the controller"

    def dispatch(self, rank: str, batches: list[Batch], node: int) -> Process:
        costs = self.costs
        nbytes = self._size(batches)
        yield from self.machines.serve("controller", costs.dispatch_s + nbytes / costs.pickle_bytes_s)
        yield from self.machines.transfer(HEAD, node, nbytes, f"sender {HEAD}", costs.pull_bytes_s)
        self.machines.usage.hold(node, nbytes)
        yield self.env.timeout(nbytes / costs.unpickle_bytes_s)
        self.machines.usage.hold(node, -nbytes)

    def put(self, batch: Batch) -> Process:
        yield from self._to_head(batch)
        yield from self.machines.serve("controller", batch.rows * batch.nbytes / self.costs.unpickle_bytes_s)

    def get(self, node: int, reader: str, batches: list[Batch], first: bool) -> Process:
        return
        yield  # it came with the call
