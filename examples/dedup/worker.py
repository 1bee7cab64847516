"""What a rank does with its share of the texts, and of the pairs that are looked at."""

from __future__ import annotations

import numpy as np
import torch
from tensordict import TensorDict

from examples.common.batching import jagged, strings_of
from examples.dedup.sketches import bands, resemblance, shingles, sketch
from transferqueue.workers import Dispatch, Worker, register


class DedupWorker(Worker):
    """Three steps, each written for a TensorDict. Called with metadata, on an object or on a group of them, they read
    their rows from shared memory and leave their columns on the same rows.
    """

    @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO)
    def shingle(self, documents: TensorDict) -> TensorDict:
        """`text` -> `shingles`: jagged int64, the sorted hashes of its word triples."""
        rows = [torch.from_numpy(shingles(text)) for text in strings_of(documents, "text")]
        return TensorDict({"shingles": jagged(rows)}, batch_size=documents.batch_size)

    @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO)
    def sketch(self, documents: TensorDict) -> TensorDict:
        """`shingles` -> `bands`: int64 ``[rows, 16]``; texts that are alike have an entry in common."""
        rows = [bands(sketch(row.numpy())) for row in documents["shingles"].unbind()]
        return TensorDict({"bands": torch.from_numpy(np.stack(rows))}, batch_size=documents.batch_size)

    @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO)
    def compare(self, pairs: TensorDict, left: TensorDict, right: TensorDict) -> TensorDict:
        """`similarity` float32 for each pair, from the `shingles` of its two texts; stored on the rows of `pairs`."""
        sides = zip(left["shingles"].unbind(), right["shingles"].unbind(), strict=True)
        found = [resemblance(one.numpy(), other.numpy()) for one, other in sides]
        return TensorDict({"similarity": torch.tensor(found)}, batch_size=pairs.batch_size)
