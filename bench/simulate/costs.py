"""What one operation costs, as `bench.simulate.fit` measured it, and the cluster that is assumed around it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path

COSTS_FILE = Path(__file__).with_name("costs.json")


@dataclass(frozen=True)
class Costs:
    """Seconds and bytes per second of one process on one core, unless something else is said.

    Attributes:
        publish_s, publish_row_s: the home's time for one publication, and for each row in it. The home does one at a
            time: its agent is one Python process.
        locate_s, locate_row_s: the same for a look-up of rows.
        call_s: a round trip between two nodes that does nothing, the wire's own latency apart.
        dispatch_s: the controller's time to send one rank its call (metadata), and take its answer.
        local_put_s, local_get_s: put and get of one batch in the own node's segment, the copy apart.
        copy_bytes_s: memcpy of one process into shared memory.
        pull_bytes_s: one process that receives a stream and copies it into the segment.
        serve_bytes_s: one process that serves streams, all of them together.
        pickle_bytes_s, unpickle_bytes_s: a batch made into a message, and a message into a batch.
    """

    publish_s: float
    publish_row_s: float
    locate_s: float
    locate_row_s: float
    call_s: float
    dispatch_s: float
    local_put_s: float
    local_get_s: float
    copy_bytes_s: float
    pull_bytes_s: float
    serve_bytes_s: float
    pickle_bytes_s: float
    unpickle_bytes_s: float

    @classmethod
    def read(cls, path: Path = COSTS_FILE) -> Costs:
        """The last fit. Raises FileNotFoundError, TypeError for one of other costs."""
        return cls(**json.loads(path.read_text(encoding="utf-8"))["costs"])

    def write(self, how: dict[str, str], path: Path = COSTS_FILE) -> None:
        """`how`: for each cost, what was measured."""
        text = json.dumps({"costs": asdict(self), "how": how}, indent=2)
        path.write_text(text + "\n", encoding="utf-8")


COST_NAMES = tuple(field.name for field in fields(Costs))


@dataclass(frozen=True)
class Cluster:
    """The machines. Half of the nodes roll out, the other half train (one node does both).

    Attributes:
        nodes, ranks: ranks are of one node.
        wire_bytes_s: of a node's network card, each way.
        wire_s: latency of the wire, one way.
    """

    nodes: int
    ranks: int = 8
    wire_bytes_s: float = 25e9  # 200 Gbit/s
    wire_s: float = 20e-6


@dataclass(frozen=True)
class Load:
    """One step of GRPO, the same share of it for every rank however many nodes there are.

    Attributes:
        rows: of one rollout rank and step.
        puts: in how many puts a rollout rank hands its rows over.
        prompt_bytes, response_bytes, scalar_bytes: of one row: what the controller puts, what a rollout adds, and what
            each later pass adds.
        tensor_parallel: ranks of one replica; they read the same rows, and one of them writes.
        rollout_s, pass_s, update_s: computation of a rollout rank's step, of one pass over a replica's rows, and of the
            update.
        passes: passes before the update (log probabilities of two models, values).
    """

    rows: int = 64
    puts: int = 4
    prompt_bytes: int = 4 << 10
    response_bytes: int = 96 << 10
    scalar_bytes: int = 16 << 10
    tensor_parallel: int = 4
    rollout_s: float = 20.0
    pass_s: float = 2.0
    update_s: float = 8.0
    passes: int = 3

    @property
    def read_bytes(self) -> int:
        """Of one row, by a pass."""
        return self.prompt_bytes + self.response_bytes
