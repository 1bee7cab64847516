"""The client of one node's share of a session of several nodes: what the node's agent works with."""

from __future__ import annotations

from functools import partial

from transferqueue.claims import Claim
from transferqueue.client.client import TransferQueueClient
from transferqueue.client.core import Housekeeping
from transferqueue.config import Config
from transferqueue.nodes.eviction import evict_copies
from transferqueue.nodes.messages import carried
from transferqueue.nodes.names import is_hidden
from transferqueue.partition_limits import PartitionLimits
from transferqueue.storage.attachment import Attachment

# What calls of a client return besides what messages carry anyway.
carried(Claim)
carried(PartitionLimits)


class NodeClient(TransferQueueClient):
    """A client of the own node's store alone. Its metadata names the whole session, and the partition in which the node
    keeps payload for others is not shown.

    Args:
        name: of the session of all nodes.
        ordinal: of the node.
    """

    _looks_up_row_shapes = False  # it does not know the rows of other nodes

    def __init__(self, attachment: Attachment, config: Config, service: Housekeeping, name: str, ordinal: int) -> None:
        self._name = name
        self._evict = partial(evict_copies, attachment.store, ordinal)
        super().__init__(attachment, config, service)

    @property
    def session(self) -> str:
        """Name of the session of all nodes."""
        return self._name

    def _partitions(self) -> list[str]:
        return [name for name in super()._partitions() if not is_hidden(name)]
