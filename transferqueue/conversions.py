"""From rows by key to rows by global index, and back.

Order, partition, tags, extra_info, session and pads stay what they are. Only the index is asked; no payload moves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from transferqueue.errors import (
    FieldNotReadyError,
    PartitionNotFoundError,
    StaleMetadataError,
    name_some,
)
from transferqueue.metadata import BatchMeta, KVBatchMeta
from transferqueue.metadata.padding import mask_or_none
from transferqueue.session import attach, get_client

if TYPE_CHECKING:
    from transferqueue.client import TransferQueueClient


def kv_batch_meta2batch_meta(meta: KVBatchMeta) -> BatchMeta:
    """The rows of `meta` by global index: its fields (all that the rows have when it names none), tags as custom_meta.

    Raises `KeyNotFoundError` naming keys that are not there, `FieldNotReadyError` naming fields that are not, and
    `PartitionNotFoundError` for keys without a partition.
    """
    return rows_of_keys(_client(meta), meta)


async def async_kv_batch_meta2batch_meta(meta: KVBatchMeta) -> BatchMeta:
    """`kv_batch_meta2batch_meta` for asyncio."""
    return await async_rows_of_keys(_client(meta), meta)


def batch_meta2kv_batch_meta(meta: BatchMeta) -> KVBatchMeta:
    """The rows of `meta` by key: its fields, custom_meta as tags.

    Raises `ValueError` for rows of more than one partition or without a key, `StaleMetadataError` for rows that were
    cleared.
    """
    partition = _one_partition(meta)
    if partition is None:
        return _empty_kv(meta)
    return _by_key(meta, partition, _client(meta).kv_retrieve_keys(_distinct(meta), partition))


async def async_batch_meta2kv_batch_meta(meta: BatchMeta) -> KVBatchMeta:
    """`batch_meta2kv_batch_meta` for asyncio."""
    partition = _one_partition(meta)
    if partition is None:
        return _empty_kv(meta)
    return _by_key(meta, partition, await _client(meta).async_kv_retrieve_keys(_distinct(meta), partition))


def rows_of_keys(client: TransferQueueClient, meta: KVBatchMeta) -> BatchMeta:
    """`kv_batch_meta2batch_meta` through a given client."""
    if not meta.size:
        return _no_rows(meta, client.fields_meta(meta.partition_id, meta.fields) if meta.partition_id else None)
    keys = _look_up(meta)
    return _by_index(meta, keys, client.kv_retrieve_meta(keys, _partition(meta)))


async def async_rows_of_keys(client: TransferQueueClient, meta: KVBatchMeta) -> BatchMeta:
    """`rows_of_keys` for asyncio."""
    if not meta.size:
        known = await client.async_fields_meta(meta.partition_id, meta.fields) if meta.partition_id else None
        return _no_rows(meta, known)
    keys = _look_up(meta)
    return _by_index(meta, keys, await client.async_kv_retrieve_meta(keys, _partition(meta)))


def _client(meta: BatchMeta | KVBatchMeta) -> TransferQueueClient:
    if meta.session is not None:
        attach(meta.session)
    return get_client()


def _look_up(meta: KVBatchMeta) -> list[str]:
    return list(dict.fromkeys(meta.keys))  # a pad repeats a key


def _partition(meta: KVBatchMeta) -> str:
    if meta.partition_id is None:
        raise PartitionNotFoundError(f"the KVBatchMeta of {meta.size} keys names no partition: set its partition_id")
    return meta.partition_id


def _no_rows(meta: KVBatchMeta, known: BatchMeta | None) -> BatchMeta:
    rows = BatchMeta(session=meta.session) if known is None else known
    rows.extra_info = meta.extra_info
    return rows.copy()


def _by_index(meta: KVBatchMeta, keys: Sequence[str], found: BatchMeta) -> BatchMeta:
    if meta.fields is not None:
        missing = [name for name in meta.fields if not found.has_field(name)]
        if missing:
            raise FieldNotReadyError(
                f"partition {meta.partition_id!r}: not all {meta.size} keys have fields {name_some(missing)}; what "
                f"all have: {name_some(found.field_names) or 'nothing'}. They were not produced yet, or are misspelt",
                fields=tuple(missing),
                keys=tuple(keys),
                partition_id=meta.partition_id,
            )
        found = found.select_fields(meta.fields)
    if len(keys) != meta.size:
        position_of = {key: position for position, key in enumerate(keys)}
        found = found.select_samples([position_of[key] for key in meta.keys])
        found._pads = mask_or_none(meta.padding_mask)
    found.custom_meta = meta.tags
    found.extra_info = meta.extra_info
    found.session = meta.session or found.session
    return found.copy()  # shares nothing mutable with `meta`


def _one_partition(meta: BatchMeta) -> str | None:
    names = meta.partition_names
    if len(names) > 1:
        raise ValueError(
            f"a KVBatchMeta has one partition, these rows are in {name_some(names)}: convert each piece of "
            "chunk_by_partition()"
        )
    return names[0] if names and meta.size else None


def _distinct(meta: BatchMeta) -> list[int]:
    return list(dict.fromkeys(meta.global_indexes))  # a pad repeats a row


def _empty_kv(meta: BatchMeta) -> KVBatchMeta:
    partition = meta.partition_names[0] if meta.partition_names else None
    fields = meta.field_names or None
    return KVBatchMeta(partition_id=partition, fields=fields, extra_info=meta.extra_info, session=meta.session)


def _by_key(meta: BatchMeta, partition: str, found: Sequence[Any]) -> KVBatchMeta:
    key_of = dict(zip(_distinct(meta), found, strict=True))
    without = [index for index, key in key_of.items() if key is None]
    if without:
        raise StaleMetadataError(
            f"{len(without)} rows of partition {partition!r} have no key: they were put without keys, or cleared "
            f"since; global indexes {name_some(without)}",
            rows=tuple(without),
            partition_id=partition,
        )
    positions = np.flatnonzero(~meta.padding_mask)
    indexes, tags = meta.global_indexes, meta.custom_meta
    kv = KVBatchMeta(
        keys=[key_of[indexes[position]] for position in positions],
        tags=[tags[position] for position in positions],
        partition_id=partition,
        fields=meta.field_names,
        extra_info=meta.extra_info,
        session=meta.session,
    )
    if meta.num_padding:
        kv.keys = [key_of[index] for index in indexes]
        kv.tags = list(tags)
        kv._pads = mask_or_none(meta.padding_mask)
        kv = kv.copy()
    return kv
