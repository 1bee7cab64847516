"""The loop: it is handed something with the methods of `DedupWorker` and does not know whether that is one object,
several in this process, or processes on a cluster.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import torch
from tensordict import NonTensorData, NonTensorStack, TensorDict

from transferqueue import TransferQueueClient


@dataclass(frozen=True)
class Duplicates:
    """`similarity` of every pair of texts that shares a band; `found` are those of at least the threshold."""

    similarity: dict[tuple[int, int], float]
    found: set[tuple[int, int]]


def find_duplicates(worker: Any, client: TransferQueueClient, texts: list[str], threshold: float) -> Duplicates:
    """Texts in, pairs out. Rows go by metadata; the columns that this process reads are `bands` and `similarity`."""
    column = NonTensorStack(*(NonTensorData(text) for text in texts))
    documents = client.put(TensorDict({"text": column}, batch_size=[len(texts)]), partition_id="documents")
    documents = documents.union(worker.shingle(documents))
    shingles = documents.select_fields(["shingles"])
    documents = documents.union(worker.sketch(shingles))
    pairs = pairs_that_share(client.get_data(documents.select_fields(["bands"]))["bands"])
    if not pairs:
        return Duplicates({}, set())
    left, right = (list(side) for side in zip(*pairs, strict=True))
    rows = client.put(TensorDict({"pair": torch.tensor(pairs)}, batch_size=[len(pairs)]), partition_id="pairs")
    # Three metadata arguments, split alike: a text that stands in several pairs is in several rows of left and right.
    compared = worker.compare(rows, shingles.select_samples(left), shingles.select_samples(right))
    values = client.get_data(compared.select_fields(["similarity"]))["similarity"].tolist()
    similarity = dict(zip(pairs, values, strict=True))
    return Duplicates(similarity, {pair for pair, value in similarity.items() if value >= threshold})


def pairs_that_share(bands: torch.Tensor) -> list[tuple[int, int]]:
    """The pairs of rows that have an entry in common in any column of int64 ``[rows, bands]``, each once, in order."""
    pairs: set[tuple[int, int]] = set()
    for column in bands.T.tolist():
        rows_of: dict[int, list[int]] = defaultdict(list)
        for row, value in enumerate(column):
            rows_of[value].append(row)
        for rows in rows_of.values():
            pairs.update((one, other) for i, one in enumerate(rows) for other in rows[i + 1 :])
    return sorted(pairs)
