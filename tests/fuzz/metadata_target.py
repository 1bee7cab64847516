"""Metadata as it travels: batches by rows and by keys."""

from __future__ import annotations

import pickle

import numpy as np

from tests.fuzz.edits import Input, edited, edits_of
from tests.fuzz.targets import Target
from transferqueue.errors import CorruptSegmentError, LayoutMismatchError
from transferqueue.metadata import BatchMeta, KVBatchMeta, batch_wire, kv_wire


def _messages() -> list[tuple[int, bytes]]:
    schema = {
        "x": {"dtype": "float32", "shape": (4,)},
        "j": {"dtype": "int64", "is_nested": True, "shape": (-1,)},
        "o": {"is_non_tensor": True},
    }
    plain = BatchMeta(np.arange(8), "train", schema, np.ones(8), {"step": 1}, session="s")
    scattered = BatchMeta(np.array([5, 1, 900, 7, 7000]), "train", schema, np.array([0, 1, 1, 0, 1]), session="s")
    scattered.custom_meta = [{"n": row, "same": "x", "list": [1, {"a": None}]} for row in range(5)]
    padded = BatchMeta(np.arange(5), "train", schema, np.ones(5)).pad_to_divisor(4)
    keyed = KVBatchMeta(keys=["a", "b", "ä"], tags=[{"n": 1}, {}, {"n": 2}], partition_id="p", fields=["x"])
    messages = [(0, batch_wire.encode(meta)[0]) for meta in (plain, scattered, padded)]
    return [*messages, (1, keyed.__reduce__()[1][0])]


MESSAGES = _messages()


def run(data: bytes) -> None:
    given = Input(data)
    kind, message = MESSAGES[given.number() % len(MESSAGES)]
    while not given.empty:
        message = edited(message, given)
    try:
        meta = kv_wire.decode(KVBatchMeta, message) if kind else batch_wire.decode(BatchMeta, message)
    except (CorruptSegmentError, LayoutMismatchError):
        return
    if meta.size > 1 << 12:  # what was read is right; all that follows grows with it
        return
    assert pickle.loads(pickle.dumps(meta)).size == meta.size
    if kind == 0:
        assert len(meta.global_indexes) == meta.size
        assert len(list(meta.chunk(2))) == 2
    assert repr(meta)


def target() -> Target:
    return Target(
        "metadata", run, [bytes([number]) + tail for number in range(4) for tail in edits_of(40, seed=number)]
    )
