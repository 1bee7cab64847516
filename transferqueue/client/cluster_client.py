"""`ClusterClient`: the client of a process whose session spans several nodes."""

from __future__ import annotations

import os
import time
from typing import Any

from transferqueue.client.cluster_checkpoints import ClusterCheckpointCalls
from transferqueue.client.core import Housekeeping
from transferqueue.config import Config
from transferqueue.nodes.fetching import Fetcher, Sources
from transferqueue.nodes.link import NodeLink
from transferqueue.nodes.payload import PayloadStore
from transferqueue.nodes.shared_looks import SharedLooks
from transferqueue.storage.attachment import Attachment
from transferqueue.waiting import run_steps


class ClusterClient(ClusterCheckpointCalls):
    """A `TransferQueueClient` whose partitions may have their home, and whose rows may have their payload, on any node.
    `routes` says of each call where it runs."""

    _looks_up_row_shapes = True

    def __init__(
        self, attachment: Attachment, config: Config, service: Housekeeping, link: NodeLink, sources: Sources
    ) -> None:
        super().__init__(attachment, config, service, link.cluster, link.ordinal)
        self.link = link
        self._payload = PayloadStore(attachment.store, link.ordinal)
        lock_path = os.path.join(attachment.paths.directory, "pulls.lock")
        self._looks = SharedLooks(attachment.store, os.path.join(attachment.paths.directory, "looks"))
        self._fetcher = Fetcher(self._payload, sources, self._room_for_copies, lock_path)

    def close(self) -> None:
        """Ends the client's threads and connections; later calls raise ClosedError. The session stays. Idempotent."""
        super().close()
        self.link.close()

    def _room_for_copies(self, nbytes: int, until_s: float | None) -> Any:
        left_s = None if until_s is None else max(0.0, until_s - time.monotonic())
        return run_steps(self._store, self._reserve(nbytes, left_s))
