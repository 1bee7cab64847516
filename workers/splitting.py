"""Splitting the batches among the arguments of a call: what has rows is split, and nothing else passes by accident."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from transferqueue.workers.arguments import Broadcast, PerRank
from transferqueue.workers.errors import DispatchError
from transferqueue.workers.row_batch import RowBatchKind, kind_of

Dispatched = tuple[tuple[Any, ...], dict[str, Any]]


def each_argument(
    function: Callable[[int | str, Any], Any], args: Sequence[Any], kwargs: Mapping[str, Any], first: int = 0
) -> Dispatched:
    """``function(position or name, value)`` in place of every argument; `first` is the position of the first."""
    return (
        tuple(function(position, value) for position, value in enumerate(args, first)),
        {name: function(name, value) for name, value in kwargs.items()},
    )


def split_arguments(
    args: Sequence[Any], kwargs: Mapping[str, Any], shards: int, shard_of_rank: Sequence[int], first: int = 0
) -> Dispatched:
    """Every batch in `shards` pieces of consecutive rows, and each rank the piece of its shard (one object for all
    ranks that share it). The first pieces are a row longer where it does not divide; some are empty when there are
    fewer rows than shards. `PerRank` and `Broadcast` values stay as they are. `first` is the position of the first
    argument in the call, for errors.

    Raises `DispatchError` for an argument that has no rows, and for batches of different length.
    """
    rows = SameLength()

    def pieces(argument: int | str, value: Any) -> Any:
        if isinstance(value, (PerRank, Broadcast)):
            return value
        kind = kind_of(value)
        if kind is None:
            raise unsplittable(argument, value)
        rows.check(argument, kind.size(value))
        split = kind.split(value, shards)
        return PerRank(split[shard] for shard in shard_of_rank)

    return each_argument(pieces, args, kwargs, first)


def split_in_pieces(chunks: int, *args: Any, **kwargs: Any) -> tuple[list[Any], dict[str, Any]]:
    """Every argument as a list of `chunks` pieces, one per rank: for dispatch functions of programs, whose ranks all
    get pieces of their own. Splits, and refuses, what `split_arguments` does."""
    split, named = split_arguments(args, kwargs, chunks, range(chunks))
    return list(split), named


class SameLength:
    """Checks that all batches of a call have as many rows as the first. `rows` is None before there is one."""

    def __init__(self) -> None:
        self.rows: int | None = None
        self._first: int | str = 0

    def check(self, argument: int | str, rows: int | None) -> None:
        """Of one more batch; None rows for one whose length is not known yet."""
        if rows is None:
            return
        if self.rows is None:
            self.rows, self._first = rows, argument
        elif rows != self.rows:
            raise DispatchError.about(
                argument,
                f"has {rows} rows and the one before it that is split, {self._first!r}, has {self.rows}; batches that "
                "are split together need the same rows: pass Broadcast(batch) for one that every rank needs whole",
            )


def batches_of(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[tuple[int | str, Any, RowBatchKind]]:
    """(position or name, batch, kind) of every argument that a splitting mode would split."""
    arguments: list[tuple[int | str, Any]] = [*enumerate(args), *kwargs.items()]
    for argument, value in arguments:
        kind = None if isinstance(value, (PerRank, Broadcast)) else kind_of(value)
        if kind is not None:
            yield argument, value, kind


def unsplittable(argument: int | str, value: Any) -> DispatchError:
    """The error for an argument without rows."""
    return DispatchError.about(
        argument,
        f"is of type {_type_name(value)}, which has no rows to split over the ranks; pass Broadcast(value) to give it "
        "to every rank whole, or PerRank([...]) with one value for each rank",
    )


def _type_name(value: Any) -> str:
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
