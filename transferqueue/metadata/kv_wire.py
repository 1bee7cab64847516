"""Pickled form of `KVBatchMeta`: the bytes of the keys, a byte or two per key, and what is said once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from transferqueue.errors import CorruptSegmentError
from transferqueue.metadata import wire
from transferqueue.metadata.index_ranges import MAX_ROWS
from transferqueue.metadata.kv_keys import checked_keys
from transferqueue.metadata.row_dicts import is_plain, pack_row_dicts, unpack_row_dicts

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from transferqueue.metadata.kv_batch_meta import KVBatchMeta


def encode(meta: KVBatchMeta, pads: NDArray[np.bool_] | None) -> tuple[bytes, dict[str, Any]]:
    """(bytes, what they cannot hold as it is). The second is empty for metadata of plain values only."""
    beside: dict[str, Any] = {}
    info = meta.extra_info or {}
    if not is_plain(info):
        beside["extra_info"], info = info, {}
    tags, odd_tags = pack_row_dicts(meta.tags)
    if odd_tags is not None:
        beside["tags"] = odd_tags
    n_pads, positions = wire.pack_mask(pads)
    body = wire.KeysOnWire(
        session=meta.session,
        partition_id=meta.partition_id,
        keys=checked_keys(meta.keys),
        fields=None if meta.fields is None else checked_keys(meta.fields),
        tags=tags,
        n_pads=n_pads,
        pads=positions,
        extra_info=info,
    )
    try:
        return wire.pack(body), beside
    except (UnicodeEncodeError, OverflowError):
        # An int beyond 64 bits or a lone surrogate somewhere in the users' values: all of these go beside the bytes.
        beside.setdefault("extra_info", meta.extra_info)
        beside.setdefault("tags", meta.tags)
        body.extra_info, body.tags = {}, None
        return wire.pack(body), beside


def decode(cls: type[KVBatchMeta], data: bytes, beside: dict[str, Any] | None = None) -> KVBatchMeta:
    """A fresh batch. Raises `CorruptSegmentError` for bytes that are none, `LayoutMismatchError` for other versions."""
    body = wire.unpack(data, wire.KeysOnWire)
    beside = beside or {}
    size = len(body.keys)
    if size > MAX_ROWS:
        raise CorruptSegmentError(f"metadata holds {size} keys; at most {MAX_ROWS} are accepted")
    odd_tags = beside.get("tags")
    tags = unpack_row_dicts(body.tags, size) if odd_tags is None else [dict(tag) for tag in odd_tags]
    meta = object.__new__(cls)
    meta.keys = body.keys
    meta.tags = [{} for _ in range(size)] if tags is None else tags
    meta.partition_id = body.partition_id
    meta.fields = body.fields
    meta.extra_info = dict(beside.get("extra_info", body.extra_info))
    meta.session = body.session
    meta._pads = wire.unpack_mask(body.n_pads, body.pads, size)
    return meta


def from_wire(data: bytes, beside: dict[str, Any] | None = None, cls: type[KVBatchMeta] | None = None) -> KVBatchMeta:
    """What a pickle of a `KVBatchMeta` calls."""
    from transferqueue.metadata.kv_batch_meta import KVBatchMeta

    return decode(cls or KVBatchMeta, data, beside)


def reduce(meta: KVBatchMeta, pads: NDArray[np.bool_] | None) -> tuple[Any, ...]:
    from transferqueue.metadata.kv_batch_meta import KVBatchMeta

    data, beside = encode(meta, pads)
    if type(meta) is KVBatchMeta:
        return from_wire, ((data, beside) if beside else (data,))
    return from_wire, (data, beside or None, type(meta))
