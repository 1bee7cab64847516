"""What a node says of rows that should be kept twice, in its session's directory: for the metrics page and
``tq stats``, which read the session without asking its agent."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

import msgspec

from transferqueue.errors import TransferQueueError
from transferqueue.storage.checked_json import check, write_checked
from transferqueue.storage.names import SessionPaths
from transferqueue.storage.private_files import read_private, write_private

MEANINGS = {
    "under_replicated_rows": "rows of partitions with their home on this node whose payload lies on one node only "
    "(cluster.replicas=2), at the last look; missing until the node has looked again after a change of who has what",
    "under_replicated_partitions": "partitions with their home on this node that no other node follows "
    "(cluster.replicas=2), at the last look",
}


@dataclass(frozen=True)
class ReplicaFigures:
    """See `MEANINGS`. None: not known for now."""

    under_replicated_rows: int | None
    under_replicated_partitions: int

    def known(self) -> dict[str, int]:
        """Those that are."""
        return {name: value for name, value in asdict(self).items() if value is not None}


NOTHING_KEPT_TWICE = ReplicaFigures(0, 0)
"""Of a session of one machine, and with ``cluster.replicas=1``."""


def write_figures(paths: SessionPaths, figures: ReplicaFigures) -> None:
    """Replaces the file in one step. By the node's agent."""
    write_private(paths.replica_figures, write_checked(asdict(figures)))


def read_figures(paths: SessionPaths) -> ReplicaFigures | None:
    """None: nothing is kept twice here, or what is said cannot be read."""
    try:
        values = json.loads(read_private(paths.replica_figures))
        check(values)
        return msgspec.convert(values, ReplicaFigures, strict=True)
    except (OSError, TransferQueueError, msgspec.MsgspecError, ValueError, TypeError, LookupError, AttributeError):
        return None  # a session works without figures
