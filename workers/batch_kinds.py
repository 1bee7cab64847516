"""The kinds of batches that come with the package: see `transferqueue.workers.row_batch`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from tensordict import TensorDictBase

from transferqueue.metadata import BatchMeta, KVBatchMeta
from transferqueue.workers.batch_rows import batch_rows, join_batches, pad_batch, split_batch, split_sizes, take_batch
from transferqueue.workers.data_proto import DataProto, DataProtoFuture
from transferqueue.workers.data_proto.merging import METRICS, are_metrics, merged_metrics
from transferqueue.workers.padding_config import DataProtoConfig
from transferqueue.workers.row_batch import RowBatchKind, register_row_batch


def _join_metadata(metas: Sequence[Any]) -> Any:
    # Pieces of ranks without rows know neither partition nor schema; concat is asked about the others only.
    filled = [meta for meta in metas if meta.size] or list(metas[:1])
    metrics = [meta.extra_info[METRICS] for meta in filled if METRICS in meta.extra_info]
    if not are_metrics(metrics):
        return type(filled[0]).concat(filled)
    # Of every rank, as in a DataProto, whether or not the ranks' values happen to be equal. Beside the join, which the
    # compatible face's metadata refuses for values that differ.
    joined = type(filled[0]).concat([_without_metrics(meta) for meta in filled])
    joined.extra_info = {**joined.extra_info, METRICS: merged_metrics(metrics)}
    return joined


def _without_metrics(meta: Any) -> Any:
    bare = meta.copy()
    bare.extra_info = {name: value for name, value in meta.extra_info.items() if name != METRICS}
    return bare


def _pad_metadata(meta: Any, divisor: int) -> tuple[Any, int]:
    padded = meta.pad_to_divisor(divisor)
    return padded, padded.size - meta.size


def _drop_metadata(meta: Any, padded_rows: int, added: int) -> Any:
    # The bridge returns rows without pads; metadata that a method handed through still has them, flagged.
    return meta.unpad() if meta.num_padding else meta


for _type in (BatchMeta, KVBatchMeta):
    register_row_batch(
        RowBatchKind(
            type=_type,
            size=len,
            split=lambda meta, parts: meta.chunk(parts),
            join=_join_metadata,
            pad=_pad_metadata,
            drop=_drop_metadata,
            take=lambda meta, start, stop: meta[start:stop],
        )
    )


def _drop_rows(batch: TensorDictBase, padded_rows: int, added: int) -> TensorDictBase:
    if added and added == padded_rows:
        return take_batch(batch, 0, 0)
    if not added or batch_rows(batch) != padded_rows:  # not row for row what was sent
        return batch
    return take_batch(batch, 0, padded_rows - added)


register_row_batch(
    RowBatchKind(
        type=TensorDictBase,
        size=batch_rows,
        split=split_batch,
        join=join_batches,
        pad=pad_batch,
        drop=_drop_rows,
        take=take_batch,
    )
)


def _take_proto(data: DataProto, start: int, stop: int) -> DataProto:
    return data.select_idxs(np.arange(start, stop))


def _split_proto(data: DataProto, parts: int) -> list[DataProto]:
    edges = np.cumsum([0, *split_sizes(len(data), parts)]).tolist()
    return [_take_proto(data, start, stop) for start, stop in pairwise(edges)]


def _pad_proto(data: DataProto, divisor: int) -> tuple[DataProto, int]:
    rows = len(data)
    added = -rows % divisor if rows else 0
    if not added:
        return data, 0
    return data.select_idxs(np.concatenate((np.arange(rows), np.full(added, rows - 1)))), added


def _drop_proto(data: DataProto, padded_rows: int, added: int) -> DataProto:
    if added and added == padded_rows:
        return DataProto()  # its metrics are of pads, too
    if not added or len(data) != padded_rows:
        return data
    return _take_proto(data, 0, padded_rows - added)


def _proto_wants_padding(data: DataProto) -> bool:
    # By itself: where the whole process pads, a group or a method may still say no.
    return bool(data.meta_info.get(DataProtoConfig.auto_padding_key, False))


register_row_batch(
    RowBatchKind(
        type=DataProto,
        size=len,
        split=_split_proto,
        join=DataProto.concat,
        pad=_pad_proto,
        drop=_drop_proto,
        take=_take_proto,
        wants_padding=_proto_wants_padding,
    )
)


def _take_future(future: DataProtoFuture, start: int, stop: int) -> Any:
    raise TypeError("rows of a future are taken by chunk, when it is known how many there are")


register_row_batch(
    RowBatchKind(
        type=DataProtoFuture,
        size=lambda future: None,
        split=DataProtoFuture.chunk,
        join=DataProtoFuture.concat,
        # How many rows there are is not known: pieces differ by at most one row, and an output's pads are taken out
        # where it is fetched.
        pad=lambda future, divisor: (future, 0),
        drop=lambda future, padded_rows, added: future,
        take=_take_future,
    )
)
