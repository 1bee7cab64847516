"""The protocol of whatever can be split and joined by rows, and its registry.

Dispatch, padding, collect and futures know no batch type: they ask for the kind of a value and use what it declares.
Metadata splits into metadata and never touches a byte of payload; TensorDicts and `DataProto`s are split for programs
that pass batches by value. The kinds that come with the package stand in `transferqueue.workers.batch_kinds`; a further
one (a batch type of a trainer) is one more call of `register_row_batch`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

from tensordict import NonTensorStack

from transferqueue.workers.errors import OutputMismatchError


@dataclass(frozen=True)
class RowBatchKind:
    """What is done with the batches of one type. None of these changes the batch that it is given.

    Args:
        type: the class; subclasses belong to the kind.
        size: the number of rows, pads included; None while it is not known, for batches that are still computed.
        split: ``(batch, parts)`` -> that many batches of consecutive rows, the first ones a row longer where it does
            not divide, some without rows where there are fewer. They share no memory with the batch.
        join: the rows of several batches in order; `SchemaMismatchError` where they do not fit.
        pad: ``(batch, divisor)`` -> the batch with its last row repeated up to a multiple, and the rows added.
        drop: ``(batch, padded_rows, added)`` -> a joined result without pads: those that are flagged, or the last
            `added` of a result that still has `padded_rows`.
        take: ``(batch, start, stop)`` -> these rows.
        wants_padding: whether the batch itself asks to be padded; None for a kind that cannot.
    """

    type: type
    size: Callable[[Any], int | None]
    split: Callable[[Any, int], Sequence[Any]]
    join: Callable[[Sequence[Any]], Any]
    pad: Callable[[Any, int], tuple[Any, int]]
    drop: Callable[[Any, int, int], Any]
    take: Callable[[Any, int, int], Any]
    wants_padding: Callable[[Any], bool] | None = None


_kinds: list[RowBatchKind] = []


def register_row_batch(kind: RowBatchKind) -> None:
    """Adds a kind; a later one is asked first."""
    _kinds.insert(0, kind)


def kind_of(value: object) -> RowBatchKind | None:
    """The kind of a value, `None` for one that has no rows to split (numbers, strings, lists, configurations)."""
    if isinstance(value, NonTensorStack):  # a single column, not a batch of fields
        return None
    return next((kind for kind in _kinds if isinstance(value, kind.type)), None)


def join_outputs(outputs: Sequence[Any], ranks: Sequence[int] | None = None) -> Any:
    """What several ranks returned, as one result. `ranks` says whose outputs they are, 0 to n-1 when not given.

    Batches of one kind are joined in order, outputs of one other type are listed; `None` of ranks that had nothing is
    left out beside batches. Outputs of different types raise `OutputMismatchError` with both.
    """
    named = [(rank, out) for rank, out in zip(ranks or range(len(outputs)), outputs, strict=True) if out is not None]
    if not named:
        return list(outputs)
    first_rank, first = named[0]
    kind = kind_of(first)
    for rank, output in named[1:]:
        if kind_of(output) is not kind or (kind is None and _shown_type(output) is not _shown_type(first)):
            found = {rank: type(output).__name__ for rank, output in named}
            raise OutputMismatchError(
                f"rank {first_rank} returned {found[first_rank]} and rank {rank} {found[rank]}: outputs of different "
                "types cannot be joined; return the same on every rank, None where there is nothing",
                found=found,
                expected=found[first_rank],
            )
    return list(outputs) if kind is None else kind.join([output for _, output in named])


def _shown_type(output: object) -> type:
    # 0 beside 0.5 is the accident of a value, not another type of output.
    return Real if isinstance(output, Real) else type(output)
