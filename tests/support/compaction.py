"""Compaction when a test says so."""

from __future__ import annotations

import transferqueue as tq
from transferqueue.service.compactor import Compactor


def compact(client: tq.TransferQueueClient) -> int:
    """As a put that finds no room does: empties every block of which less than three quarters live. Bytes copied."""
    before = client._store.counts()["compacted_bytes"]
    for _ in Compactor(client._store).rounds(1):
        pass
    return client._store.counts()["compacted_bytes"] - before
