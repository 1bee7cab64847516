"""Metadata as bytes: one version byte, then one msgpack array.

Sizes grow with rows + fields, never with their product, and nothing that is equal on every row is written per row.
Values that msgpack would not give back as they were (tuples, arrays, tensors, any class) are not written here: they
travel beside the bytes as objects, so that the outer pickler keeps its own ways with them (buffers out of band,
references counted by Ray). Everything read is bounded and checked; what does not fit raises `CorruptSegmentError`,
another version `LayoutMismatchError`.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import numpy as np

from transferqueue.errors import CorruptSegmentError, LayoutMismatchError, SchemaMismatchError
from transferqueue.metadata.field_schema import FieldSchema
from transferqueue.metadata.index_ranges import MAX_ROWS, decode_int64, decode_run, encode_int64, run_values
from transferqueue.metadata.row_dicts import RowDictsOnWire
from transferqueue.metadata.row_shapes import RowShapes

if TYPE_CHECKING:
    from numpy.typing import NDArray

WIRE_VERSION = 1

_NESTED, _NON_TENSOR = 1, 2
_BITMAP, _RAW = b"b", b"r"

Body = TypeVar("Body", bound=msgspec.Struct)


class FieldOnWire(msgspec.Struct, array_like=True, omit_defaults=True):
    name: str
    dtype: str | None
    shape: list[int] | None
    flags: int = 0
    row_shapes: list[bytes] | None = None
    """One int64 sequence per dimension; only shapes that are not in the index."""


class BatchOnWire(msgspec.Struct, array_like=True, omit_defaults=True):
    session: str | None
    size: int
    indexes: bytes
    partitions: list[str]
    fields: list[FieldOnWire]
    status: int | bytes = 1
    """One value for all rows, or a bitmap, or one int8 per row."""
    partition_codes: bytes = b""
    n_pads: int = 0
    pads: bytes = b""
    extra_info: dict[str, Any] = {}
    custom_meta: RowDictsOnWire | None = None
    backend_meta: RowDictsOnWire | None = None


class KeysOnWire(msgspec.Struct, array_like=True, omit_defaults=True):
    session: str | None
    partition_id: str | None
    keys: list[str]
    fields: list[str] | None
    tags: RowDictsOnWire | None = None
    n_pads: int = 0
    pads: bytes = b""
    extra_info: dict[str, Any] = {}


def pack(body: msgspec.Struct) -> bytes:
    return bytes([WIRE_VERSION]) + msgspec.msgpack.encode(body)


def unpack(data: bytes, kind: type[Body]) -> Body:
    return unpack_versioned(
        data,
        kind,
        WIRE_VERSION,
        what="metadata message",
        which="metadata has wire version",
        where="in all processes of a session",
    )


def unpack_versioned(
    data: bytes, kind: type[Body], version: int, *, what: str, which: str, where: str, ext_hook: Any = None
) -> Body:
    """The msgpack behind a version byte. `what`, `which` and `where` are for the errors.

    Raises:
        CorruptSegmentError: `what` it is not.
        LayoutMismatchError: of another version than `version`.
    """
    if not data:
        raise CorruptSegmentError(f"{what} is empty")
    if data[0] != version:
        raise LayoutMismatchError(
            f"{which} {data[0]}, this build reads {version}: use one version of transferqueue-shm {where}",
            expected=version,
            found=data[0],
        )
    try:
        return msgspec.msgpack.decode(memoryview(data)[1:], type=kind, ext_hook=ext_hook)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:  # the second from older msgspec
        raise CorruptSegmentError(f"{what} does not decode: {error}") from error


def pack_status(fill: int, status: NDArray[np.int8] | None) -> int | bytes:
    if status is None or len(status) == 0:
        return fill
    if (status == status[0]).all():
        return int(status[0])
    if ((status == 0) | (status == 1)).all():
        return _BITMAP + np.packbits(status.astype(np.bool_)).tobytes()
    return _RAW + status.tobytes()


def unpack_status(packed: int | bytes, size: int) -> tuple[int, NDArray[np.int8] | None]:
    """(value for all rows, or a writable int8 array [size])."""
    if isinstance(packed, int):
        if not -128 <= packed <= 127:
            raise CorruptSegmentError(f"metadata: production status {packed} is no int8")
        return packed, None
    kind, body = packed[:1], packed[1:]
    if kind == _BITMAP and len(body) == (size + 7) // 8:
        bits = np.unpackbits(np.frombuffer(body, dtype=np.uint8), count=size)
        return 1, bits.astype(np.int8)
    if kind == _RAW and len(body) == size:
        return 1, np.frombuffer(body, dtype=np.int8).copy()
    raise CorruptSegmentError(f"metadata: {len(body)} bytes of production status do not fit {size} rows")


def pack_fields(schemas: dict[str, FieldSchema], row_shapes: dict[str, RowShapes]) -> list[FieldOnWire]:
    fields = []
    for name, schema in schemas.items():
        known = row_shapes.get(name)
        fields.append(
            FieldOnWire(
                name=name,
                dtype=schema.dtype,
                shape=None if schema.shape is None else list(schema.shape),
                flags=_NESTED * schema.is_nested + _NON_TENSOR * schema.is_non_tensor,
                row_shapes=None if known is None else [encode_int64(sizes.copy()) for sizes in known.matrix.T],
            )
        )
    return fields


def unpack_fields(fields: list[FieldOnWire], size: int) -> tuple[dict[str, FieldSchema], dict[str, RowShapes]]:
    schemas: dict[str, FieldSchema] = {}
    row_shapes: dict[str, RowShapes] = {}
    for field in fields:
        if field.name in schemas or not 0 <= field.flags <= _NESTED | _NON_TENSOR:
            raise CorruptSegmentError(f"metadata: field {field.name!r} is listed twice or has unknown flags")
        try:
            shape = None if field.shape is None else tuple(field.shape)
            schemas[field.name] = _schema(field.dtype, shape, field.flags)
        except SchemaMismatchError as error:
            raise CorruptSegmentError(f"metadata: schema of field {field.name!r}: {error}") from error
        if field.row_shapes is not None:
            # One number per row may be a few bytes here, so the product is bounded, not only each factor.
            if len(field.row_shapes) * size > MAX_ROWS:
                raise CorruptSegmentError(f"metadata: field {field.name!r} has {len(field.row_shapes)} dimensions")
            matrix = np.empty((size, len(field.row_shapes)), dtype=np.int64)
            for dim, packed in enumerate(field.row_shapes):
                matrix[:, dim] = decode_int64(packed, size)
            row_shapes[field.name] = RowShapes(matrix)
    return schemas, row_shapes


@functools.lru_cache(maxsize=1024)
def _schema(dtype: str | None, shape: tuple[int, ...] | None, flags: int) -> FieldSchema:
    # Immutable, and the fields of a run are few: each is checked once in a process.
    return FieldSchema.of(
        {"dtype": dtype, "shape": shape, "is_nested": flags & _NESTED, "is_non_tensor": flags & _NON_TENSOR}
    )


def pack_mask(mask: NDArray[np.bool_] | None) -> tuple[int, bytes]:
    """(how many are set, their positions)."""
    if mask is None:
        return 0, b""
    positions = np.flatnonzero(mask)
    return len(positions), encode_int64(positions)


def unpack_mask(count: int, positions: bytes, size: int) -> NDArray[np.bool_] | None:
    if count == 0:
        return None
    decoded = decode_int64(positions, count)
    if decoded[0] < 0 or decoded[-1] >= size or (np.diff(decoded) <= 0).any():
        raise CorruptSegmentError(f"metadata: positions of padding rows do not fit {size} rows")
    mask = np.zeros(size, dtype=np.bool_)
    mask[decoded] = True
    mask.flags.writeable = False
    return mask


def unpack_rows(batch: BatchOnWire) -> tuple[NDArray[np.int64], tuple[str, ...], NDArray[np.int32] | None]:
    """(global indexes, partition names, which of them each row belongs to or `None` when all to the first)."""
    if not 0 <= batch.size <= MAX_ROWS:
        raise CorruptSegmentError(f"metadata claims {batch.size} rows; at most {MAX_ROWS} are accepted")
    run = decode_run(batch.indexes, batch.size)
    if run is not None:
        indexes = run_values(*run, batch.size)
        lowest = min(run[0], run[0] + run[1] * (batch.size - 1))
    else:
        indexes = decode_int64(batch.indexes, batch.size)
        lowest = int(indexes.min()) if batch.size else 0
    if lowest < 0:
        raise CorruptSegmentError("metadata holds a negative global index")
    indexes.flags.writeable = False
    names = tuple(batch.partitions)
    if not batch.partition_codes:
        if batch.size and len(names) != 1:
            raise CorruptSegmentError(f"metadata names {len(names)} partitions and does not say which row is where")
        return indexes, names, None
    codes = decode_int64(batch.partition_codes, batch.size)
    if len(codes) and (codes.min() < 0 or codes.max() >= len(names)):
        raise CorruptSegmentError("metadata: a row belongs to a partition that is not named")
    return indexes, names, codes.astype(np.int32)
