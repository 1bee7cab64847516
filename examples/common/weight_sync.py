"""Weights from the actor to the rollout, through the data plane in either way of passing.

The actor's rank 0 writes the gathered parameters as one row of the partition `weights`, the rollout ranks load them
from there. The controller holds the metadata of that row; a trainer that hands batches by value would not send weights
through itself either, so this is the same for both and is no part of the comparison.
"""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDict

from transferqueue import BatchMeta, TransferQueueClient

PARTITION = "weights"


def sync_weights(client: TransferQueueClient, actor: Any, rollout: Any, version: int) -> int:
    """Brings the rollout to the actor's weights; returns the bytes that the row held in shared memory."""
    row = client.put(TensorDict({"version": torch.tensor([version])}, batch_size=[1]), partition_id=PARTITION)
    answers: list[BatchMeta | None] = actor.export_weights(row)
    written = next(answer for answer in answers if answer is not None and answer.size)
    rollout.load_weights(written.select_fields(["parameters"]))
    nbytes = client.stats(PARTITION).live_bytes
    client.clear_partition(PARTITION)
    return nbytes
