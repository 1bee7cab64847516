"""Compact bytes for int64 sequences that are mostly regular: row indexes, row positions, per-row sizes.

Three encodings, the shortest is taken; one byte in front says which:

    R  run-length coded differences   first value, then (difference, count) pairs
    D  differences                    first value, then one difference per value
    O  offsets from the minimum       minimum (8 B), width w (1 B), then w bits per value, lowest bit first

R makes an arithmetic run of any length (contiguous rows, every eighth row, a repeated padding row) cost a few bytes.
D and O bound scattered values: values within a span of 2**39 take less than 5 bytes each, in any order. Numbers in R
and D are little-endian base-128 varints (LEB128), signed ones zigzag coded, as in Protocol Buffers.

One run, which most batches are, is written and read without arrays of numbers: in a process that just woke up for a
call every numpy operation costs several times what it costs in a loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from transferqueue.errors import CorruptSegmentError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Int64Array = NDArray[np.int64]

MAX_ROWS = 1 << 24
"""Largest count that is decoded (a 128 MB array): a forged message of ten bytes must not ask for more."""

_RUNS, _DIFFERENCES, _OFFSETS = b"R", b"D", b"O"
_VARINT_MAX_BYTES = 10
_ONE_RUN_MAX_BYTES = 2 * _VARINT_MAX_BYTES + 5
_MAX_STEP = 1 << 62
_MAX_INT64 = (1 << 63) - 2  # one less than it holds: `arange` is given the number behind the last
_BIT_ROWS = 1 << 14  # values whose 64 bits are spread out at a time: 1 MiB


def encode_int64(values: Int64Array) -> bytes:
    """The 1-D int64 array `values` as bytes; its length is not included and must be given to `decode_int64`."""
    count = len(values)
    if count == 0:
        return b""
    one_run = _one_run(values)
    if one_run is not None:
        return one_run
    differences = _zigzag(np.diff(values))
    first = _zigzag(values[:1])
    starts = np.flatnonzero(np.concatenate(([True], differences[1:] != differences[:-1]))) if count > 1 else None
    runs = first
    if starts is not None:
        pairs = np.empty((len(starts), 2), dtype=np.uint64)
        pairs[:, 0] = differences[starts]
        pairs[:, 1] = np.diff(starts, append=count - 1)
        runs = np.concatenate((first, pairs.ravel()))
    run_sizes = _varint_sizes(runs)
    if run_sizes.sum() <= count:  # at most a byte per value: nothing below can be shorter by much
        return _RUNS + _varints(runs, run_sizes)

    singles = np.concatenate((first, differences))
    single_sizes = _varint_sizes(singles)
    low = values.min()
    offsets = values.view(np.uint64) - low.view(np.uint64)
    width = max(1, int(offsets.max()).bit_length())
    costs = {
        _RUNS: int(run_sizes.sum()),
        _DIFFERENCES: int(single_sizes.sum()),
        _OFFSETS: 9 + (width * count + 7) // 8,
    }
    cheapest = min(costs, key=costs.__getitem__)
    if cheapest == _RUNS:
        return _RUNS + _varints(runs, run_sizes)
    if cheapest == _DIFFERENCES:
        return _DIFFERENCES + _varints(singles, single_sizes)
    return _OFFSETS + int(low).to_bytes(8, "little", signed=True) + bytes([width]) + _pack_bits(offsets, width)


def decode_int64(data: bytes, count: int) -> Int64Array:
    """The `count` values behind `data`, as a fresh int64 array.

    Raises `CorruptSegmentError` where bytes and count disagree; never allocates more than `MAX_ROWS` values.
    """
    if not 0 <= count <= MAX_ROWS:
        raise CorruptSegmentError(f"metadata claims {count} rows; at most {MAX_ROWS} are accepted")
    if count == 0:
        if data:
            raise CorruptSegmentError(f"metadata claims 0 rows but carries {len(data)} bytes of row indexes")
        return np.empty(0, dtype=np.int64)
    run = _read_run(data, count)
    if run is not None:
        return run_values(*run, count)
    method, body = data[:1], data[1:]
    if method == _OFFSETS:
        return _decode_offsets(body, count)
    if method == _RUNS:
        numbers = _read_varints(body)
        lengths = numbers[2::2]
        if len(numbers) % 2 == 0 or (len(lengths) and (lengths.min() < 1 or lengths.max() >= count)):
            raise CorruptSegmentError("row indexes: run lengths are out of bounds")
        if int(lengths.sum()) != count - 1:  # cannot overflow: each is below MAX_ROWS, and there are few
            raise CorruptSegmentError(f"row indexes: runs hold {int(lengths.sum()) + 1} rows instead of {count}")
        differences = np.repeat(_unzigzag(numbers[1::2]), lengths.astype(np.int64))
    elif method == _DIFFERENCES:
        numbers = _read_varints(body)
        if len(numbers) != count:
            raise CorruptSegmentError(f"row indexes: {len(numbers)} values instead of {count}")
        differences = _unzigzag(numbers[1:])
    else:
        raise CorruptSegmentError(f"row indexes: unknown encoding {method!r}")
    values = np.empty(count, dtype=np.int64)
    values[0] = _unzigzag(numbers[:1])[0]
    values[1:] = differences
    return np.cumsum(values, out=values)


def _one_run(values: Int64Array) -> bytes | None:
    """The R form of values with one difference throughout, None for others and where another form may be shorter."""
    count, first = len(values), values.item(0)
    step = values.item(1) - first if count > 1 else 0
    # The ends first: they differ for nearly everything that is no run. Steps that wrap around 64 bits are left out.
    if values.item(-1) - first != step * (count - 1) or not -_MAX_STEP < step < _MAX_STEP:
        return None
    if count > 2 and not np.logical_and.reduce(values[1:] - values[:-1] == step):
        return None
    out = bytearray(_RUNS)
    for number in (_zigzag_int(first),) if count == 1 else (_zigzag_int(first), _zigzag_int(step), count - 1):
        while number > 0x7F:
            out.append(number & 0x7F | 0x80)
            number >>= 7
        out.append(number)
    return bytes(out) if count == 1 or len(out) <= count + 1 else None


def decode_run(data: bytes, count: int) -> tuple[int, int] | None:
    """(first value, step) of `count` values that are one run with a step; None for everything else, errors included."""
    run = _read_run(data, count)
    return None if run is None or run[1] == 0 else run


def _read_run(data: bytes, count: int) -> tuple[int, int] | None:
    """`decode_run`, of equal values, too."""
    if not 2 <= count <= MAX_ROWS or not 0 < len(data) <= _ONE_RUN_MAX_BYTES or data[0] != _RUNS[0]:
        return None
    numbers: list[int] = []
    number = shift = 0
    for byte in data[1:]:
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            numbers.append(number)
            number = shift = 0
    if shift or len(numbers) != 3 or numbers[2] != count - 1:
        return None
    first, step = (numbers[0] >> 1) ^ -(numbers[0] & 1), (numbers[1] >> 1) ^ -(numbers[1] & 1)
    last = first + step * (count - 1)
    if not (-_MAX_INT64 <= first <= _MAX_INT64 and -_MAX_INT64 <= last <= _MAX_INT64):
        return None
    return first, step


def run_values(first: int, step: int, count: int) -> Int64Array:
    """The values of a run that `decode_run` found."""
    if step == 1:
        return np.arange(first, first + count, dtype=np.int64)
    if step == 0:
        return np.full(count, first, dtype=np.int64)
    return np.arange(count, dtype=np.int64) * step + first  # `arange` counts its steps in floating point


def _zigzag_int(value: int) -> int:
    return value << 1 if value >= 0 else (-value << 1) - 1


def _decode_offsets(body: bytes, count: int) -> Int64Array:
    width = body[8] if len(body) > 8 else 0
    if not 1 <= width <= 64 or len(body) != 9 + (width * count + 7) // 8:
        raise CorruptSegmentError(f"row indexes: {len(body)} bytes do not hold {count} values of {width} bits")
    offsets = _unpack_bits(np.frombuffer(body, dtype=np.uint8, offset=9), width, count)
    return offsets.view(np.int64) + np.int64(int.from_bytes(body[:8], "little", signed=True))


def _pack_bits(values: NDArray[np.uint64], width: int) -> bytes:
    parts = []
    for start in range(0, len(values), _BIT_ROWS):
        raw = values[start : start + _BIT_ROWS].astype("<u8").view(np.uint8).reshape(-1, 8)
        parts.append(np.packbits(np.unpackbits(raw, axis=1, count=width, bitorder="little"), bitorder="little"))
    packed: bytes = np.concatenate(parts).tobytes()
    return packed


def _unpack_bits(packed: NDArray[np.uint8], width: int, count: int) -> NDArray[np.uint64]:
    values = np.empty(count, dtype=np.uint64)
    for start in range(0, count, _BIT_ROWS):
        rows = min(_BIT_ROWS, count - start)
        first_byte = start * width // 8  # whole, as _BIT_ROWS is a multiple of 8
        bits = np.zeros((rows, 64), dtype=np.uint8)
        bits[:, :width] = np.unpackbits(
            packed[first_byte : first_byte + (rows * width + 7) // 8], count=rows * width, bitorder="little"
        ).reshape(rows, width)
        values[start : start + rows] = np.packbits(bits, axis=1, bitorder="little").view("<u8").ravel()
    return values


def _zigzag(values: Int64Array) -> NDArray[np.uint64]:
    return ((values << 1) ^ (values >> 63)).view(np.uint64)


def _unzigzag(values: NDArray[np.uint64]) -> Int64Array:
    return (values >> np.uint64(1)).view(np.int64) ^ -(values & np.uint64(1)).view(np.int64)


def _varint_sizes(values: NDArray[np.uint64]) -> Int64Array:
    sizes = np.ones(len(values), dtype=np.int64)
    for bits in range(7, 64, 7):
        above = values >= np.uint64(1 << bits)
        if not above.any():
            break
        sizes += above
    return sizes


def _varints(values: NDArray[np.uint64], sizes: Int64Array) -> bytes:
    starts = np.cumsum(sizes) - sizes
    out = np.empty(int(sizes.sum()), dtype=np.uint8)
    for position in range(int(sizes.max())):
        here = sizes > position
        septets = (values[here] >> np.uint64(7 * position)) & np.uint64(0x7F)
        more = (sizes[here] > position + 1).astype(np.uint64) << np.uint64(7)
        out[starts[here] + position] = (septets | more).astype(np.uint8)
    return out.tobytes()


def _read_varints(data: bytes) -> NDArray[np.uint64]:
    raw = np.frombuffer(data, dtype=np.uint8)
    if len(raw) == 0 or raw[-1] >= 0x80:
        raise CorruptSegmentError("row indexes end in the middle of a number")
    ends = np.flatnonzero(raw < 0x80)
    starts = np.concatenate(([0], ends[:-1] + 1))
    sizes = ends - starts + 1
    if sizes.max() > _VARINT_MAX_BYTES:
        raise CorruptSegmentError("row indexes hold a number of more than 64 bits")
    positions = np.arange(len(raw)) - np.repeat(starts, sizes)
    if (raw[positions == _VARINT_MAX_BYTES - 1] > 1).any():
        raise CorruptSegmentError("row indexes hold a number of more than 64 bits")
    septets = (raw & 0x7F).astype(np.uint64) << (7 * positions).astype(np.uint64)
    numbers: NDArray[np.uint64] = np.add.reduceat(septets, starts)
    return numbers
