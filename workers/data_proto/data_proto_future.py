"""The rows that a non-blocking call will give, while the ranks still compute them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from transferqueue.workers.batch_rows import split_sizes
from transferqueue.workers.errors import OutputMismatchError
from transferqueue.workers.futures import Future
from transferqueue.workers.pending import all_ready, async_resolve, is_pending, portable, resolve
from transferqueue.workers.row_batch import join_outputs, kind_of

NO_ROWS = -1
"""The row count of an output that is no batch."""

Gather = Callable[[Sequence[Any], "float | None"], "list[Any]"]

_Steps = Generator[Sequence[Any], "list[Any]", Any]


@dataclass(frozen=True)
class OutputShard:
    """The output of one rank that is part of a future.

    Args:
        output: a Ray reference, or a call in this process.
        rows: likewise, of its number of rows (`rows_of`), by which a piece knows whether it needs the output; None
            where only the output tells.
        padded_rows, pads: an output of that many rows has that many pads at its end.
    """

    output: Any
    rows: Any = None
    padded_rows: int = 0
    pads: int = 0

    def trimmed(self, output: Any) -> Any:
        kind = kind_of(output)
        return output if kind is None else kind.drop(output, self.padded_rows, self.pads)

    def real_rows(self, rows: int) -> int:
        return rows - self.pads if rows == self.padded_rows else rows


class DataProtoFuture(Future):
    """The joined rows of a call that does not block: `DataProto`, TensorDict, `BatchMeta` or `KVBatchMeta`, whichever
    the method returns.

    Passed to a method of a group it is neither waited for nor fetched here: it is split like the batch that it stands
    for, and each rank fetches what it needs of its piece. `get` waits for the batch itself, here or on a rank; `await`
    does so without blocking the event loop. Can be pickled while Ray computes it; where ranks of this process do,
    pickling waits for them.

    Args:
        collect_fn: ``(outputs) -> batch``; None joins them.
        futures: Ray references of the outputs, in the order of the rows.
        dispatch_fn: ``(batch) -> result``, applied at the end; may be None.
        shards: instead of `futures`, with what is known of each.
        whole: ``(timeout_s) -> result`` of the whole, for the process that made the call; not pickled.
        gather: ``(references, timeout_s) -> outputs``, likewise: with errors that name the rank.
    """

    travels = True

    def __init__(
        self,
        collect_fn: Callable[[list[Any]], Any] | None = None,
        futures: Sequence[Any] = (),
        dispatch_fn: Callable[[Any], Any] | None = None,
        *,
        shards: Sequence[OutputShard] | None = None,
        whole: Callable[[float | None], Any] | None = None,
        gather: Gather | None = None,
    ) -> None:
        self._shards = tuple(OutputShard(ref) for ref in futures) if shards is None else tuple(shards)
        self.collect_fn = collect_fn or join_outputs
        self.dispatch_fn = dispatch_fn
        self._cuts: tuple[tuple[int, int], ...] = ()
        self._whole = whole
        self._gather = gather or resolve
        self._result: tuple[Any] | None = None

    @property
    def futures(self) -> list[Any]:
        """What is waited for: one Ray reference per output, in the order of the rows."""
        return [shard.output for shard in self._shards]

    @staticmethod
    def concat(data: Sequence[Any]) -> DataProtoFuture:
        """A future of the rows of several outputs (Ray references) or whole futures, in their order."""
        shards: list[OutputShard] = []
        for one in data:
            if is_pending(one):
                shards.append(OutputShard(one))
            elif isinstance(one, DataProtoFuture) and not one._cuts and one.dispatch_fn is None:
                shards.extend(one._shards)
            else:
                raise TypeError(f"concat takes references and whole futures, got {type(one).__name__}")
        return DataProtoFuture(shards=shards)

    def chunk(self, chunks: int) -> list[DataProtoFuture]:
        """`chunks` futures of consecutive rows, sizes differing by at most one. Nothing is waited for: a piece finds
        out which outputs it needs when it is asked for its rows."""
        return [self._cut(index, chunks) for index in range(chunks)]

    def get(self, timeout_s: float | None = None) -> Any:
        """The batch. Raises what the method raised on its rank, `TransferTimeoutError` after `timeout_s` (of each of
        the two waits that a piece may need), `OutputMismatchError` for a piece of outputs that have no rows."""
        if self._result is None:
            self._result = (self._whole(timeout_s) if self._whole else self._loaded(timeout_s),)
        return self._result[0]

    def done(self) -> bool:
        return self._result is not None or all_ready(self.futures)

    def __await__(self) -> Generator[Any, None, Any]:
        if self._whole is not None:  # its errors name the rank
            return asyncio.to_thread(self.get).__await__()
        return self._async_loaded().__await__()

    def __repr__(self) -> str:
        pieces = "".join(f", piece {index} of {parts}" for index, parts in self._cuts)
        return f"DataProtoFuture({len(self._shards)} outputs{pieces})"

    def __getstate__(self) -> dict[str, Any]:
        # Who gets it waits by its own means.
        shards = tuple(
            replace(shard, output=portable(shard.output), rows=portable(shard.rows)) for shard in self._shards
        )
        return {**self.__dict__, "_shards": shards, "_whole": None, "_gather": resolve, "_result": None}

    def _cut(self, index: int, parts: int) -> DataProtoFuture:
        piece = object.__new__(DataProtoFuture)
        vars(piece).update(vars(self), _whole=None, _result=None, _cuts=(*self._cuts, (index, parts)))
        return piece

    def _loaded(self, timeout_s: float | None) -> Any:
        steps = self._steps()
        try:
            wanted = next(steps)
            while True:
                wanted = steps.send(self._gather(wanted, timeout_s))
        except StopIteration as end:
            return end.value

    async def _async_loaded(self) -> Any:
        if self._result is None:
            steps = self._steps()
            try:
                wanted = next(steps)
                while True:
                    wanted = steps.send(await async_resolve(wanted))
            except StopIteration as end:
                self._result = (end.value,)
        return self._result[0]

    def _steps(self) -> _Steps:
        """Yields what is to be fetched, is sent the values, returns the batch."""
        batch = yield from self._whole_rows() if not self._cuts else self._piece()
        return batch if self.dispatch_fn is None else self.dispatch_fn(batch)

    def _whole_rows(self) -> _Steps:
        outputs = yield self.futures
        return self.collect_fn([shard.trimmed(output) for shard, output in zip(self._shards, outputs, strict=True)])

    def _piece(self) -> _Steps:
        shards = self._shards
        fetched: dict[int, Any] = {}
        if all(shard.rows is not None for shard in shards):
            counts = yield [shard.rows for shard in shards]
        else:
            outputs = yield self.futures
            fetched.update(enumerate(outputs))
            counts = [rows_of(output) for output in outputs]
        rows = [shard.real_rows(count) for shard, count in zip(shards, counts, strict=True)]
        if NO_ROWS in rows:
            raise OutputMismatchError(
                f"the output of shard {rows.index(NO_ROWS)} of a non-blocking call is no batch, so it cannot be split; "
                "wait for the result with get() and pass what is wanted of it"
            )
        start, stop = self._range(sum(rows))
        ranges = _overlaps(rows, start, stop)
        missing = [position for position in ranges if position not in fetched]
        if missing:
            found = yield [shards[position].output for position in missing]
            fetched.update(zip(missing, found, strict=True))
        pieces = []
        for position, (first, last) in ranges.items():
            output = shards[position].trimmed(fetched[position])
            kind = kind_of(output)
            if kind is not None:
                pieces.append(output if (first, last) == (0, rows[position]) else kind.take(output, first, last))
        return self.collect_fn(pieces) if pieces else None

    def _range(self, rows: int) -> tuple[int, int]:
        start, stop = 0, rows
        for index, parts in self._cuts:
            sizes = split_sizes(stop - start, parts)
            start += sum(sizes[:index])
            stop = start + sizes[index]
        return start, stop


def rows_of(output: Any) -> int:
    """Rows of an output, flagged pads not counted; 0 of None, `NO_ROWS` of what is no batch."""
    if output is None:
        return 0
    kind = kind_of(output)
    if kind is None:
        return NO_ROWS
    rows = kind.size(kind.drop(output, NO_ROWS, 0))
    return NO_ROWS if rows is None else rows


def _overlaps(sizes: Sequence[int], start: int, stop: int) -> dict[int, tuple[int, int]]:
    """Shard -> its range of rows in [start, stop). For no rows one shard, which says of what kind they would be."""
    found: dict[int, tuple[int, int]] = {}
    before = 0
    for position, size in enumerate(sizes):
        first, last = max(start - before, 0), min(stop - before, size)
        if first < last:
            found[position] = (first, last)
        before += size
    if not found:
        filled = [position for position, size in enumerate(sizes) if size]
        return {filled[0] if filled else 0: (0, 0)}
    return found
