"""What a source sent, checked before it is believed: it came from another machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from transferqueue import _native
from transferqueue.errors import CorruptSegmentError
from transferqueue.nodes.place import NodePlace
from transferqueue.nodes.transport.protocol import Destination, FieldDescription, PayloadDescription, PayloadRequest

# A message with more places than that, and less than so many bytes for each, is received as one.
_FEW_WINDOWS = 8
_WINDOW_NBYTES = 1 << 10


def announced(source: NodePlace, header: Any, into: Destination) -> int:
    """The bytes that a stream says it will send. CorruptSegmentError: those of the request are not what is expected."""
    match header:
        case [int() as total, int() as own] if total == into.nbytes and own >= 0:
            return own
    raise CorruptSegmentError(f"{source} announces {str(header)[:80]} where {into.nbytes} bytes are expected")


def write_message(source: NodePlace, what: PayloadRequest, into: Destination, header: Any, data: Any) -> int:
    """Writes what one message has; how many bytes. CorruptSegmentError: bytes that no field has."""
    at = 0
    try:
        data = memoryview(data)
        for field, start, nbytes in header:
            if nbytes < 0 or at + nbytes > len(data) or field < 0:
                raise ValueError("more than the message has")
            into.write(what.fields[field], start, data[at : at + nbytes])
            at += nbytes
    except (TypeError, ValueError, LookupError) as error:
        raise CorruptSegmentError(f"{source} sent bytes that no field has: {error}") from error
    return at


def write_answer(source: NodePlace, what: PayloadRequest, into: Destination, answer: Any) -> tuple[int, int]:
    """Writes what `payload.fetch` answered: (bytes, messages). CorruptSegmentError."""
    match answer:
        case [[header, _], *parts] if all(type(part) is list and len(part) == 2 for part in parts):
            expected = announced(source, header, into)
            written = sum(write_message(source, what, into, each, data) for each, data in parts)
            if written == expected:
                return written, len(parts)
            raise CorruptSegmentError(f"{source} sent {written} of {expected} bytes")
    raise CorruptSegmentError(f"{source} answered what is no payload")


def read_description(answer: Any, what: PayloadRequest) -> PayloadDescription:
    """What `payload.describe` answered.

    Raises:
        CorruptSegmentError: it contradicts itself or is about something else.
    """
    rows = len(what.rows)
    fields: dict[str, FieldDescription] = {}
    for part in answer if type(answer) is list else ():
        match part:
            case [str() as name, list() as types, int() | np.ndarray() as which, int() | np.ndarray() as sizes]:
                which, sizes = _of_rows(which, rows), _of_rows(sizes, rows)
                if which.dtype == sizes.dtype == np.int64 and len(which) == len(sizes) == rows:
                    fields[name] = FieldDescription(tuple(_type(each) for each in types), which, sizes)
                    _check(name, fields[name], rows)
    if tuple(fields) != what.fields:
        raise CorruptSegmentError("another node describes other rows or fields than it was asked for")
    return PayloadDescription(fields)


def _of_rows(given: Any, rows: int) -> npt.NDArray[Any]:
    """One number for all rows is their array."""
    if not isinstance(given, int):
        return given  # type: ignore[no-any-return]  # it is an array
    if not 0 <= given < 1 << 62:
        raise CorruptSegmentError("another node describes rows that cannot be")
    return np.full(rows, given, dtype=np.int64)


def _type(given: Any) -> tuple[int, bytes, int]:
    match given:
        case [int() as kind, bytes() as schema, int() as row_nbytes] if kind in (_native.DENSE, _native.RAGGED):
            return kind, schema, row_nbytes
    raise CorruptSegmentError("another node describes a field in a way that this build does not know")


def _check(name: str, field: FieldDescription, rows: int) -> None:
    if not rows:
        return
    well = bool(field.types) and field.which.min() >= 0 and field.which.max() < len(field.types)
    well = well and field.sizes.min() >= 0 and int(field.sizes.max()) * rows < 1 << 62
    if well:
        for number, (kind, _, row_nbytes) in enumerate(field.types):
            dense = kind == _native.DENSE
            well = well and not (dense and (field.sizes[field.which == number] != row_nbytes).any())
    if not well:
        raise CorruptSegmentError(f"another node describes rows of field {name!r} that cannot be")


def receive_message(
    source: NodePlace,
    what: PayloadRequest,
    into: Destination,
    header: Any,
    nbytes: int,
    receive: Callable[[Sequence[Any]], None],
) -> int:
    """Has `receive` fill the memory where the bytes of a message belong, all of them; how many bytes.

    Raises:
        CorruptSegmentError: bytes that no field has. What `receive` raises.
    """
    try:
        windows = [
            window for field, start, count in header for window in into.windows(what.fields[field], start, count)
        ]
        well = all(field >= 0 <= count for field, _, count in header)
        if not well or sum(len(window) for window in windows) != nbytes:
            raise ValueError("its stretches are not what follows")
    except (TypeError, ValueError, LookupError) as error:
        raise CorruptSegmentError(f"{source} sent bytes that no field has: {error}") from error
    if len(windows) <= max(_FEW_WINDOWS, nbytes // _WINDOW_NBYTES):
        receive(windows)
        return nbytes
    # Many small places: one copy more costs less than telling the kernel of each.
    data = np.empty(nbytes, dtype=np.uint8)
    receive([data])
    at = 0
    for window in windows:
        window[:] = data[at : at + len(window)]
        at += len(window)
    return nbytes
