"""`ClusterClient`: the client of a process whose session spans several nodes."""

from __future__ import annotations

import os
import time
from typing import Any, NoReturn

from transferqueue.aio import asynchronous
from transferqueue.client.core import Housekeeping
from transferqueue.client.prefetching import PrefetchCalls
from transferqueue.config import Config
from transferqueue.nodes.fetching import Fetcher, Sources
from transferqueue.nodes.link import NodeLink
from transferqueue.nodes.payload import PayloadStore
from transferqueue.storage.attachment import Attachment
from transferqueue.waiting import run_steps


class ClusterClient(PrefetchCalls):
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
        self._fetcher = Fetcher(self._payload, sources, self._room_for_copies, lock_path)

    def close(self) -> None:
        """Ends the client's threads and connections; later calls raise ClosedError. The session stays. Idempotent."""
        super().close()
        self.link.close()

    def _room_for_copies(self, nbytes: int, until_s: float | None) -> Any:
        left_s = None if until_s is None else max(0.0, until_s - time.monotonic())
        return run_steps(self._store, self._reserve(nbytes, left_s))

    def _refuse_checkpoint(self, /, *_args: Any, **_kwargs: Any) -> NoReturn:
        """Not in a session of several nodes, each of which has a part of the rows."""
        raise NotImplementedError(
            f"session {self.session!r} spans several nodes, and checkpoints of such a session are not there yet: what "
            "one node has is a part of the rows. Read the rows and save them, or use a session of one node"
        )

    save_checkpoint: Any = _refuse_checkpoint
    load_checkpoint: Any = _refuse_checkpoint
    save_controller_checkpoint: Any = _refuse_checkpoint
    load_controller_checkpoint: Any = _refuse_checkpoint
    save_storage_checkpoint: Any = _refuse_checkpoint
    load_storage_checkpoint: Any = _refuse_checkpoint
    async_save_checkpoint: Any = asynchronous(_refuse_checkpoint)
    async_load_checkpoint: Any = async_save_checkpoint
    async_save_controller_checkpoint: Any = async_save_checkpoint
    async_load_controller_checkpoint: Any = async_save_checkpoint
    async_save_storage_checkpoint: Any = async_save_checkpoint
    async_load_storage_checkpoint: Any = async_save_checkpoint
