"""`DataProto`: a batch of tensors, Python columns and batch-wide values, for programs that pass batches by value.

Metadata (`BatchMeta`, `KVBatchMeta`) goes the same ways and moves no payload; a method written for a `DataProto` also
runs on metadata (see `transferqueue.workers.tqbridge`).
"""

from transferqueue.workers.data_proto.data_proto import DataProto
from transferqueue.workers.data_proto.data_proto_future import DataProtoFuture, OutputShard, rows_of
from transferqueue.workers.data_proto.errors import DataProtoError, DataProtoKeyError
from transferqueue.workers.data_proto.gathering import all_gather_data_proto
from transferqueue.workers.data_proto.item import DataProtoItem, collate_fn
from transferqueue.workers.data_proto.pads import pad_dataproto_to_divisor, unpad_dataproto
from transferqueue.workers.data_proto.reshaping import fold_batch_dim, unfold_batch_dim
from transferqueue.workers.data_proto.unions import union_numpy_dict, union_tensor_dict
from transferqueue.workers.padding_config import DataProtoConfig

__all__ = [
    "DataProto",
    "DataProtoConfig",
    "DataProtoError",
    "DataProtoFuture",
    "DataProtoItem",
    "DataProtoKeyError",
    "OutputShard",
    "all_gather_data_proto",
    "collate_fn",
    "fold_batch_dim",
    "pad_dataproto_to_divisor",
    "rows_of",
    "unfold_batch_dim",
    "union_numpy_dict",
    "union_tensor_dict",
    "unpad_dataproto",
]
