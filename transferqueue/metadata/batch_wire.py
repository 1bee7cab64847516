"""Pickled form and state tuple of `BatchMeta`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from transferqueue.metadata import wire
from transferqueue.metadata.index_ranges import encode_int64
from transferqueue.metadata.padding import checked_mask
from transferqueue.metadata.row_dicts import is_plain, pack_row_dicts, unpack_row_dicts

if TYPE_CHECKING:
    from transferqueue.metadata.batch_meta import BatchMeta

STATE_NAMES = (
    "global_indexes",
    "partition_ids",
    "field_schema",
    "production_status",
    "extra_info",
    "custom_meta",
    "_custom_backend_meta",
    "session",
    "padding_mask",
)


def encode(meta: BatchMeta) -> tuple[bytes, dict[str, Any]]:
    """(bytes, what they cannot hold as it is). The second is empty for metadata of plain values only."""
    beside: dict[str, Any] = {}
    info = meta._extra_info
    if info and not is_plain(info):
        beside["extra_info"], info = info, {}
    custom, odd_custom = (None, None) if meta._custom_meta is None else pack_row_dicts(meta._custom_meta)
    backend, odd_backend = (None, None) if meta._backend_meta is None else pack_row_dicts(meta._backend_meta)
    n_pads, pads = (0, b"") if meta._pads is None else wire.pack_mask(meta._pads)
    body = wire.BatchOnWire(
        session=meta.session,
        size=len(meta._indexes),
        indexes=encode_int64(meta._indexes),
        partitions=list(meta._partition_names),
        fields=wire.pack_fields(meta._schemas, meta._row_shapes),
        status=wire.pack_status(meta._status_fill, meta._status),
        partition_codes=b"" if meta._partition_codes is None else encode_int64(meta._partition_codes.astype(np.int64)),
        n_pads=n_pads,
        pads=pads,
        extra_info=info,
        custom_meta=custom,
        backend_meta=backend,
    )
    if odd_custom is not None:
        beside["custom_meta"] = odd_custom
    if odd_backend is not None:
        beside["backend_meta"] = odd_backend
    try:
        return wire.pack(body), beside
    except (UnicodeEncodeError, OverflowError):
        # An int beyond 64 bits or a lone surrogate somewhere in the users' values: all of these go beside the bytes.
        beside.setdefault("extra_info", meta._extra_info)
        beside.setdefault("custom_meta", meta._custom_meta)
        beside.setdefault("backend_meta", meta._backend_meta)
        body.extra_info, body.custom_meta, body.backend_meta = {}, None, None
        return wire.pack(body), beside


def decode(cls: type[BatchMeta], data: bytes, beside: dict[str, Any] | None = None) -> BatchMeta:
    """A fresh batch. Raises `CorruptSegmentError` for bytes that are none, `LayoutMismatchError` for other versions."""
    body = wire.unpack(data, wire.BatchOnWire)
    meta = object.__new__(cls)
    meta._indexes, meta._partition_names, meta._partition_codes = wire.unpack_rows(body)
    meta._index_list = meta._partition_list = None
    meta._schemas, meta._row_shapes = wire.unpack_fields(body.fields, body.size)
    meta._status_fill, meta._status = wire.unpack_status(body.status, body.size)
    meta._pads = wire.unpack_mask(body.n_pads, body.pads, body.size) if body.n_pads else None
    meta._extra_info = body.extra_info
    meta._custom_meta = None if body.custom_meta is None else unpack_row_dicts(body.custom_meta, body.size)
    meta._backend_meta = None if body.backend_meta is None else unpack_row_dicts(body.backend_meta, body.size)
    if beside:
        _set_beside(meta, beside)
    meta.session = body.session
    return meta


def _set_beside(meta: BatchMeta, beside: dict[str, Any]) -> None:
    """Values that travelled as objects; copied, because an unpickler may share them."""
    if "extra_info" in beside:
        meta._extra_info = dict(beside["extra_info"])
    if beside.get("custom_meta") is not None:
        meta._custom_meta = [dict(row) for row in beside["custom_meta"]]
    if beside.get("backend_meta") is not None:
        meta._backend_meta = [dict(row) for row in beside["backend_meta"]]


def from_wire(data: bytes, beside: dict[str, Any] | None = None, cls: type[BatchMeta] | None = None) -> BatchMeta:
    """What a pickle of a `BatchMeta` calls."""
    from transferqueue.metadata.batch_meta import BatchMeta

    return decode(cls or BatchMeta, data, beside)


def reduce(meta: BatchMeta) -> tuple[Any, ...]:
    from transferqueue.metadata.batch_meta import BatchMeta

    data, beside = encode(meta)
    if type(meta) is BatchMeta:
        return from_wire, ((data, beside) if beside else (data,))
    return from_wire, (data, beside or None, type(meta))


def state(meta: BatchMeta) -> tuple[Any, ...]:
    """The values of `STATE_NAMES`."""
    return tuple(getattr(meta, name) for name in STATE_NAMES)


def set_state(meta: BatchMeta, values: Sequence[Any]) -> None:
    """Fills an object made by ``__new__``; a shorter tuple leaves the rest at its default."""
    given = dict(zip(STATE_NAMES, values, strict=False))
    pads = given.pop("padding_mask", None)
    meta.__init__(**given)  # type: ignore[misc]
    if pads is not None:
        meta._pads = checked_mask(pads, meta.size)
