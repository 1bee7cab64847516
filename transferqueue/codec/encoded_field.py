"""One field on its way into a block: its layout and where its bytes are now."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from transferqueue import _native
from transferqueue.codec.dtypes import copies_as_bytes
from transferqueue.errors import SchemaMismatchError, StorageFullError

if TYPE_CHECKING:
    from numpy.typing import NDArray

PAGE = 4096
CACHE_LINE = 64
# From this size on a field begins on its own page, so that a view maps no byte of another field.
OWN_PAGE_NBYTES = 64 << 10
# What a file offset can name, with room to round up.
_MAX_NBYTES = 1 << 62


class EncodedField:
    """Layout and sources of one field; offsets of sources count from the start of the field's data.

    Attributes:
        writes: ``(offset, address, nbytes)`` of bytes that can be copied as they are.
        copies: ``(offset, tensor)`` of tensors that torch lays out row-contiguously while copying (strided, expanded,
            conjugated, on another device).
        keep: owners of the addresses in `writes`.
        offsets: for ragged fields, int64 [rows + 1] in bytes from the start of the data.
    """

    __slots__ = (
        "copies",
        "data_nbytes",
        "data_offset",
        "keep",
        "kind",
        "name",
        "offsets",
        "offsets_offset",
        "row_nbytes",
        "schema",
        "writes",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        schema: bytes,
        *,
        data_nbytes: int,
        row_nbytes: int = 0,
        offsets: NDArray[np.int64] | None = None,
        writes: Sequence[tuple[int, int, int]] = (),
        copies: Sequence[tuple[int, torch.Tensor]] = (),
        keep: Any = None,
    ) -> None:
        self.name = name
        self.schema = schema
        self.kind = _native.DENSE if offsets is None else _native.RAGGED
        self.data_nbytes = data_nbytes
        self.row_nbytes = row_nbytes
        self.offsets = offsets
        self.writes = writes
        self.copies = copies
        self.keep = keep
        self.data_offset = 0
        self.offsets_offset = 0

    def layout(self) -> _native.FieldLayout:
        return _native.FieldLayout(
            self.name, self.kind, self.data_offset, self.data_nbytes, self.row_nbytes, self.offsets_offset, self.schema
        )

    def placed_writes(self) -> list[tuple[int, int, int]]:
        """`writes` and the row offsets, at their place in the block."""
        base = self.data_offset
        placed = [(base + offset, address, nbytes) for offset, address, nbytes in self.writes if nbytes]
        if self.offsets is not None:
            placed.append((self.offsets_offset, self.offsets.ctypes.data, self.offsets.nbytes))
        return placed


def place(fields: Sequence[EncodedField]) -> int:
    """Gives every field its place in the block and returns the bytes of the block (0 without fields).

    Small parts come first, packed to cache lines; parts of `OWN_PAGE_NBYTES` and more follow, each on a page of its
    own. The block itself begins on a page when it is large enough to hold such a part.

    Raises:
        StorageFullError: more bytes than a file offset can name (an expanded tensor, a mistaken shape).
    """
    cursor = 0
    large: list[tuple[EncodedField, bool]] = []
    for field in fields:
        if field.data_nbytes >= OWN_PAGE_NBYTES:
            large.append((field, True))
        else:
            field.data_offset = cursor
            cursor += -(-field.data_nbytes // CACHE_LINE) * CACHE_LINE
        if field.offsets is not None:
            if field.offsets.nbytes >= OWN_PAGE_NBYTES:
                large.append((field, False))
            else:
                field.offsets_offset = cursor
                cursor += -(-field.offsets.nbytes // CACHE_LINE) * CACHE_LINE
    for field, is_data in large:
        cursor = -(-cursor // PAGE) * PAGE
        if is_data:
            field.data_offset = cursor
            cursor += field.data_nbytes
        else:
            assert field.offsets is not None  # narrowing: only ragged fields are listed for their offsets
            field.offsets_offset = cursor
            cursor += field.offsets.nbytes
    if cursor > _MAX_NBYTES:
        raise StorageFullError(f"no room for {cursor} bytes: no store can be that large", wanted_bytes=cursor)
    # A batch of zero-element rows has no bytes, but it has a block: rows x fields that exist.
    return max(cursor, CACHE_LINE) if fields else 0


@contextlib.contextmanager
def reading(name: str) -> Iterator[None]:
    """Around what torch does with the values of a field.

    Raises:
        SchemaMismatchError: a mode that the caller is in lets torch do nothing with this tensor (FakeTensorMode).
    """
    try:
        yield
    except AssertionError as error:
        raise SchemaMismatchError(f"field {name!r} cannot be read here: {error}", fields=(name,)) from error


def copy_strided(target: torch.Tensor, source: torch.Tensor) -> None:
    """One copy of `source` (any strides, device, conjugated or not) into the 1-D uint8 `target` of the same bytes."""
    source = source.detach()
    dtype = source.dtype
    if copies_as_bytes(dtype):
        source, dtype = source.view(torch.uint8), torch.uint8
    target.view(dtype).view(source.shape).copy_(source)
