"""The serving side: rows of the node's own store, described and sent from where they lie, under a lease."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from transferqueue import _native
from transferqueue.errors import CorruptSegmentError, SchemaMismatchError
from transferqueue.nodes import messages
from transferqueue.nodes.errors import GoneError
from transferqueue.nodes.rpc_server import Call, Handler
from transferqueue.nodes.transport.protocol import PayloadRequest
from transferqueue.nodes.transport.stream_plan import FieldBytes, Int64s, Stretch, part_bounds, stretches

if TYPE_CHECKING:
    from transferqueue._native import Resolved, Store

MAX_PARTS = 64
MAX_FETCH_NBYTES = 4 << 20
MIN_CHUNK_NBYTES, MAX_CHUNK_NBYTES = 64 << 10, 64 << 20
# Shorter stretches are copied together: a message of its own costs about as much as copying this much.
_ALONE_NBYTES = 128 << 10
# Of a message of several stretches that lie in their mappings, which take no memory: both ends handle it in one call of
# the kernel, and nobody runs Python meanwhile.
_TOGETHER_NBYTES, _MOST_TOGETHER = 256 << 20, 128


class PayloadStreams:
    """What a node's server gives other nodes of its store: a `StreamSource`.

    A request is resolved with a lease that ends when the last of its bytes is on its way. The source remembers nothing
    between a description and the streams: what a request asks for never changes, or has its blocks named.

    Args:
        store: of the node.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def handlers(self) -> Mapping[str, Handler]:
        return {"payload.describe": self._describe, "payload.fetch": self._fetch}

    def _describe(self, call: Call) -> list[Any]:
        request = PayloadRequest.of_parts(call.args.get("request"))
        resolved = resolve(self._store, request)
        try:
            return describe(resolved, range(len(request.fields)))
        finally:
            resolved.release()

    def _fetch(self, call: Call) -> list[Any]:
        """The one stream of a small request, as one answer."""
        request = PayloadRequest.of_parts(call.args.get("request"))
        parts: list[Any] = []
        total = 0
        for header, data in self.open(ticket_of(request, 0, 1, MAX_CHUNK_NBYTES)):
            total += 0 if data is None else data.size
            if total > MAX_FETCH_NBYTES:
                raise ValueError(f"{total} bytes and more are for a stream: one answer has at most {MAX_FETCH_NBYTES}")
            parts.append([header, b"" if data is None else data.to_pybytes()])
        return parts

    def open(self, ticket: bytes, *, together: bool = False) -> Iterator[tuple[Any, Any]]:
        """Part of a request: first (total bytes of the request, those of the part), then bytes with what they are:
        (field's number, where in it, how many) of each stretch.

        Args:
            together: what lies in the mappings may come many stretches at a time, as a list of buffers.
        """
        request, part, parts, chunk_nbytes = read_ticket(ticket)
        resolved = resolve(self._store, request)
        try:
            fields = [SourceField(resolved, number) for number in range(len(request.fields))]
            first, last = part_bounds(fields, part, parts)
            yield [sum(field.nbytes for field in fields), last - first], None
            self._store.count_sent(served=last - first)
            waiting: list[Stretch] = []
            lying: list[Stretch] = []
            for stretch in stretches(fields, first, last, chunk_nbytes):
                alone = stretch.piece >= 0 and stretch.nbytes >= _ALONE_NBYTES
                if waiting and (alone or sum(each.nbytes for each in waiting) + stretch.nbytes > chunk_nbytes):
                    yield _gathered(fields, waiting)
                    waiting = []
                if not alone:
                    waiting.append(stretch)
                elif together:
                    lying.append(stretch)
                    if len(lying) == _MOST_TOGETHER or sum(each.nbytes for each in lying) >= _TOGETHER_NBYTES:
                        yield _lying(fields, lying, resolved)
                        lying = []
                else:
                    yield [_header(stretch)], _mapped(fields, stretch, resolved)
            if lying:
                yield _lying(fields, lying, resolved)
            if waiting:
                yield _gathered(fields, waiting)
        except Exception:
            resolved.release()
            raise
        # Buffers on the mapping may still be on their way: the lease goes with the last of them.


def ticket_of(request: PayloadRequest, part: int, parts: int, chunk_nbytes: int) -> bytes:
    """For `PayloadStreams.open`."""
    return messages.encode([request.to_parts(), part, parts, chunk_nbytes])


def read_ticket(ticket: Any) -> tuple[PayloadRequest, int, int, int]:
    """Raises CorruptSegmentError or ValueError."""
    match messages.decode(ticket):
        case [list() as request, int() as part, int() as parts, int() as chunk] if 0 <= part < parts <= MAX_PARTS:
            return PayloadRequest.of_parts(request), part, parts, min(max(chunk, MIN_CHUNK_NBYTES), MAX_CHUNK_NBYTES)
    raise CorruptSegmentError("a request for payload is none")


def resolve(store: Store, request: PayloadRequest) -> Resolved:
    """All of it, leased.

    Raises:
        GoneError: a row or field is not there, or not in the block it should be in.
    """
    resolved = store.resolve(request.partition, indexes=request.rows, fields=request.fields)
    try:
        if not resolved.partition_found or not resolved.complete:
            gone = request.rows[resolved.gone][:8] if resolved.partition_found else request.rows[:8]
            raise GoneError(
                f"{len(resolved.gone)} of {len(request.rows)} rows of partition {request.partition!r} are not there, "
                "or not with all of these fields",
                rows=tuple(gone.tolist()),
                partition_id=request.partition,
            )
        if len(request.blocks):
            _check_blocks(resolved, request)
    except BaseException:
        resolved.release()
        raise
    return resolved


def _check_blocks(resolved: Resolved, request: PayloadRequest) -> None:
    seen = set()
    for number in range(len(request.fields)):
        shared = resolved.piece_list_id(number)
        if shared in seen:
            continue
        seen.add(shared)
        pieces = resolved.pieces(number)
        found = np.repeat([resolved.block_id(block) for block in pieces[:, 2].tolist()], pieces[:, 1])
        moved = np.flatnonzero(found != request.blocks)
        if len(moved):
            raise GoneError(
                f"{len(moved)} of {len(request.rows)} rows of partition {request.partition!r} lie elsewhere by now",
                rows=tuple(request.rows[moved[:8]].tolist()),
                partition_id=request.partition,
            )


def describe(resolved: Resolved, numbers: Iterable[int]) -> list[Any]:
    """What `read_description` reads, of these fields of all the resolved rows, which are complete.

    Raises:
        SchemaMismatchError: a field whose rows cannot be sent apart.
    """
    return [[resolved.fields[number], *_described(resolved, number)] for number in numbers]


def _described(resolved: Resolved, number: int) -> tuple[list[list[Any]], Int64s | int, Int64s | int]:
    """(types, which, sizes), see `FieldDescription`; what all rows share as one number."""
    pieces = resolved.pieces(number)
    types: dict[tuple[int, bytes, int], int] = {}
    by_block: dict[int, int] = {}
    for block in pieces[:, 2].tolist():
        if block not in by_block:
            layout = _layout(resolved, number, block)
            by_block[block] = types.setdefault((layout.kind, layout.schema, layout.row_nbytes), len(types))
    which = np.array([by_block[block] for block in pieces[:, 2].tolist()], dtype=np.int64)
    sizes = resolved.row_nbytes(number, pieces)
    listed = [list(each) for each in types]
    if len(types) > 1:
        return listed, np.repeat(which, pieces[:, 1]), sizes
    dense = [row_nbytes for kind, _, row_nbytes in types if kind == _native.DENSE]
    return listed, 0, dense[0] if dense else sizes


def _layout(resolved: Resolved, number: int, block: int) -> _native.FieldLayout:
    layout = resolved.layout(number, block)
    if layout is None:
        raise CorruptSegmentError(f"field {resolved.fields[number]!r} has rows in a block that lacks it")
    if layout.kind not in (_native.DENSE, _native.RAGGED):
        raise SchemaMismatchError(
            f"field {layout.name!r} is of a kind whose rows cannot be sent apart", fields=(layout.name,)
        )
    return layout


class SourceField(FieldBytes):
    """One field of a resolved request, and where its bytes are."""

    def __init__(self, resolved: Resolved, number: int) -> None:
        self.pieces = resolved.pieces(number)
        super().__init__(_sums(resolved.row_nbytes(number, self.pieces)), _sums(self.pieces[:, 1]))
        self._resolved = resolved
        self._number = number

    def address(self, stretch: Stretch) -> int:
        """Of bytes of a large piece, on the mapping of its block."""
        _, _, block, row = self.pieces[stretch.piece].tolist()
        layout = _layout(self._resolved, self._number, block)
        inside = stretch.start - int(self.starts[self.piece_rows[stretch.piece]])
        if layout.kind == _native.DENSE:
            begin = row * layout.row_nbytes
        else:
            at = self._resolved.view_address(block, layout.offsets_offset + 8 * row)
            begin = int.from_bytes(ctypes.string_at(at, 8), "little", signed=True)
        if not 0 <= begin + inside <= begin + inside + stretch.nbytes <= layout.data_nbytes:
            raise CorruptSegmentError(f"the rows of field {layout.name!r} lie outside of their block")
        return self._resolved.view_address(block, layout.data_offset + begin + inside)

    def gather(self, stretch: Stretch, target: Any) -> None:
        """Copies the bytes of a stretch to `target`, uint8 [nbytes]."""
        if stretch.piece >= 0:
            ctypes.memmove(target.ctypes.data, self.address(stretch), stretch.nbytes)
            return
        low, high = stretch.rows
        first = int(np.searchsorted(self.piece_rows, low, side="right")) - 1
        behind = int(np.searchsorted(self.piece_rows, high, side="left"))
        pieces = self.pieces[first:behind].copy()
        skipped = low - int(self.piece_rows[first])
        pieces[0, 1] -= skipped
        pieces[0, 3] += skipped
        pieces[-1, 1] -= int(self.piece_rows[behind]) - high
        written = self._resolved.copy_rows(self._number, pieces, target.ctypes.data, stretch.nbytes)
        if written != stretch.nbytes:
            raise CorruptSegmentError(f"{high - low} rows of {stretch.nbytes} bytes gave {written} bytes")


def _sums(sizes: Int64s) -> Int64s:
    sums = np.zeros(len(sizes) + 1, dtype=np.int64)
    np.cumsum(sizes, out=sums[1:])
    return sums


def _header(stretch: Stretch) -> list[int]:
    return [stretch.field, stretch.start, stretch.nbytes]


def _mapped(fields: list[SourceField], stretch: Stretch, resolved: Resolved) -> Any:
    """A buffer on the mapping itself, which keeps the lease while anybody has it."""
    import pyarrow as pa

    return pa.foreign_buffer(fields[stretch.field].address(stretch), stretch.nbytes, base=resolved)


def _lying(fields: list[SourceField], several: list[Stretch], resolved: Resolved) -> tuple[list[list[int]], list[Any]]:
    return [_header(each) for each in several], [_mapped(fields, each, resolved) for each in several]


def _gathered(fields: list[SourceField], several: list[Stretch]) -> tuple[list[list[int]], Any]:
    import pyarrow as pa

    data = np.empty(sum(each.nbytes for each in several), dtype=np.uint8)
    at = 0
    for stretch in several:
        fields[stretch.field].gather(stretch, data[at : at + stretch.nbytes])
        at += stretch.nbytes
    return [_header(stretch) for stretch in several], pa.py_buffer(data)
