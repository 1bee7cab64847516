"""Futures of rows: what a piece fetches, joins and leaves alone."""

from __future__ import annotations

import asyncio
import pickle
from concurrent.futures import Future as Call
from itertools import chain
from typing import Any

import pytest
import torch
from tensordict import TensorDict

from transferqueue.errors import TransferTimeoutError
from transferqueue.metadata import BatchMeta, KVBatchMeta
from transferqueue.workers import DataProto, DataProtoFuture
from transferqueue.workers.data_proto import OutputShard, rows_of
from transferqueue.workers.errors import OutputMismatchError


def done(value: Any) -> Call[Any]:
    call: Call[Any] = Call()
    if isinstance(value, Exception):
        call.set_exception(value)
    else:
        call.set_result(value)
    return call


def proto(values: list[int]) -> DataProto:
    return DataProto.from_dict({"x": torch.tensor(values)}, {"s": [str(value) for value in values]})


def batch(values: list[int]) -> TensorDict:
    return TensorDict({"x": torch.tensor(values)}, [len(values)])


def meta(values: list[int]) -> BatchMeta:
    return BatchMeta(values, "p")


def keyed(values: list[int]) -> KVBatchMeta:
    return KVBatchMeta([f"k{value}" for value in values], [{} for _ in values], "p")


def values_of(found: Any) -> list[int]:
    if isinstance(found, BatchMeta):
        return found.global_indexes
    if isinstance(found, KVBatchMeta):
        return [int(key[1:]) for key in found.keys]
    column = found.batch["x"] if isinstance(found, DataProto) else found["x"]
    return column.tolist()


KINDS = [proto, batch, meta, keyed]


class Gathered:
    """Counts which outputs are fetched."""

    def __init__(self) -> None:
        self.fetched: list[Any] = []

    def __call__(self, wanted: Any, timeout_s: float | None) -> list[Any]:
        found = [call.result(timeout_s) for call in wanted]
        self.fetched += [values_of(value) for value in found if not isinstance(value, int)]
        return found


def shards(kind: Any, *parts: list[int], **padded: Any) -> list[OutputShard]:
    return [OutputShard(done(kind(part)), done(len(part)), **padded) for part in parts]


@pytest.mark.parametrize("kind", KINDS)
def test_the_whole_and_its_pieces_are_the_joined_rows(kind: Any) -> None:
    parts = [[0, 1, 2], [3], [4, 5, 6, 7]]
    future = DataProtoFuture(shards=shards(kind, *parts))
    assert future.done()
    assert type(future.get()) is type(kind([0]))
    assert future.get() is future.get()
    assert values_of(future.get()) == list(range(8))
    for pieces in (1, 2, 3, 5, 8):
        found = [piece.get() for piece in future.chunk(pieces)]
        assert [values_of(piece) for piece in found] == [values_of(piece.get()) for piece in future.chunk(pieces)]
        sizes = [len(values_of(piece)) for piece in found]
        assert max(sizes) - min(sizes) <= 1
        assert list(chain(*map(values_of, found))) == list(range(8))


@pytest.mark.parametrize("kind", KINDS)
def test_pieces_without_rows_are_empty_batches_of_the_kind(kind: Any) -> None:
    pieces = [piece.get() for piece in DataProtoFuture(shards=shards(kind, [4], [])).chunk(3)]
    assert [len(values_of(piece)) for piece in pieces] == [1, 0, 0]
    assert {type(piece) for piece in pieces} == {type(kind([0]))}


def test_a_piece_fetches_the_outputs_it_needs_and_no_other() -> None:
    gathered = Gathered()
    future = DataProtoFuture(shards=shards(proto, [0, 1, 2], [3, 4], [5, 6, 7]), gather=gathered)
    expected = {0: [[0, 1, 2]], 1: [[0, 1, 2], [3, 4]], 2: [[3, 4], [5, 6, 7]], 3: [[5, 6, 7]]}
    for index, piece in enumerate(future.chunk(4)):
        gathered.fetched.clear()
        assert values_of(piece.get()) == [2 * index, 2 * index + 1]
        assert gathered.fetched == expected[index]
    gathered.fetched.clear()
    inner = future.chunk(2)[1].chunk(2)[0]
    assert (values_of(inner.get()), gathered.fetched) == ([4, 5], [[3, 4], [5, 6, 7]])
    assert repr(inner) == "DataProtoFuture(3 outputs, piece 1 of 2, piece 0 of 2)"


def test_outputs_of_unknown_length_are_fetched_to_be_split() -> None:
    future = DataProtoFuture(futures=[done(proto([0, 1])), done(None), done(proto([2]))])
    assert [values_of(piece.get()) for piece in future.chunk(3)] == [[0], [1], [2]]
    assert len(future.futures) == 3
    joined = DataProtoFuture.concat([future, done(proto([9]))])
    assert values_of(joined.get()) == [0, 1, 2, 9]
    with pytest.raises(TypeError, match="whole futures, got DataProtoFuture"):
        DataProtoFuture.concat([future.chunk(2)[0]])
    last = DataProtoFuture(DataProto.concat, [done(proto([0, 1]))], lambda found: found[1:])
    assert values_of(last.get()) == [1]
    assert DataProtoFuture(futures=[done(None)]).chunk(2)[0].get() is None


@pytest.mark.parametrize("kind", [proto, batch])
def test_pads_are_taken_out_of_every_output(kind: Any) -> None:
    """7 rows over 3 ranks, padded to 9: the last rank got one row and two pads."""
    outputs = [
        OutputShard(done(kind([0, 1, 2])), done(3), 3, 0),
        OutputShard(done(kind([3, 4, 5])), done(3), 3, 0),
        OutputShard(done(kind([6, 6, 6])), done(3), 3, 2),
    ]
    future = DataProtoFuture(shards=outputs)
    assert values_of(future.get()) == list(range(7))
    assert [values_of(piece.get()) for piece in future.chunk(2)] == [[0, 1, 2, 3], [4, 5, 6]]
    longer = DataProtoFuture(shards=[OutputShard(done(kind([0, 1, 2, 3])), done(4), 3, 2)])
    assert values_of(longer.chunk(1)[0].get()) == [0, 1, 2, 3], "not row for row what was sent"


def test_flagged_pads_are_no_rows() -> None:
    padded = meta([0, 1, 2]).pad_to_divisor(4)
    future = DataProtoFuture(shards=[OutputShard(done(padded), done(rows_of(padded)), 4, 1), *shards(meta, [3])])
    assert values_of(future.get()) == [0, 1, 2, 3]
    assert [values_of(piece.get()) for piece in future.chunk(2)] == [[0, 1], [2, 3]]


def test_what_is_no_batch_is_listed_whole_and_refused_in_pieces() -> None:
    future = DataProtoFuture(shards=[OutputShard(done(1.5), done(rows_of(1.5))), OutputShard(done(2.5), done(-1))])
    assert future.get() == [1.5, 2.5]
    with pytest.raises(OutputMismatchError, match="shard 0 of a non-blocking call is no batch"):
        future.chunk(2)[0].get()
    assert [rows_of(value) for value in (None, "ab", [1], batch([1, 2]), keyed([3]))] == [0, -1, -1, 2, 1]


def test_errors_and_deadlines() -> None:
    future = DataProtoFuture(futures=[done(proto([0])), done(ValueError("broken"))])
    for one in (future, *future.chunk(2)):
        with pytest.raises(ValueError, match="broken"):
            one.get()
        with pytest.raises(ValueError, match="broken"):
            asyncio.run(one._async_loaded())
    waiting = DataProtoFuture(futures=[Call()])
    assert not waiting.done()
    with pytest.raises(TransferTimeoutError, match="1 outputs"):
        waiting.get(timeout_s=0.01)
    raised = DataProtoFuture(futures=[done(TimeoutError("of the method"))])
    with pytest.raises(TimeoutError, match="of the method"):
        raised.get(timeout_s=5)


def test_awaited_it_leaves_the_loop_to_what_it_waits_for() -> None:
    async def program() -> list[Any]:
        slow: Call[Any] = Call()
        future = DataProtoFuture(futures=[slow, done(proto([1]))])
        asyncio.get_running_loop().call_later(0.01, slow.set_result, proto([0]))
        first, second = await asyncio.gather(*[_awaited(piece) for piece in future.chunk(2)])
        return [values_of(first), values_of(second), values_of(await future)]

    assert asyncio.run(program()) == [[0], [1], [0, 1]]


async def _awaited(future: DataProtoFuture) -> Any:
    return await future


def test_travels_without_what_belongs_to_its_process() -> None:
    future = DataProtoFuture(shards=[OutputShard(1, 2)], whole=lambda timeout_s: None, gather=lambda refs, t: [])
    back = pickle.loads(pickle.dumps(future.chunk(2)[1]))
    assert (back.futures, repr(back)) == ([1], "DataProtoFuture(1 outputs, piece 1 of 2)")
