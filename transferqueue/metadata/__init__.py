"""Metadata: which rows and fields, without the payload. No I/O happens here."""

from transferqueue.metadata.batch_meta import BatchMeta
from transferqueue.metadata.field_schema import FieldSchema
from transferqueue.metadata.kv_batch_meta import KVBatchMeta
from transferqueue.metadata.row_shapes import set_row_shape_lookup

__all__ = ["BatchMeta", "FieldSchema", "KVBatchMeta", "set_row_shape_lookup"]
