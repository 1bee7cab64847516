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
            `added` of a result that still has `padded_rows`. Where these are the same, nothing of it is real: no rows,
            and no batch-wide values that a join would count.
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
_kind_of_type: dict[type, RowBatchKind | None] = {}
"""Answers of `kind_of`, which is asked several times in every call."""


def register_row_batch(kind: RowBatchKind) -> None:
    """Adds a kind; a later one is asked first."""
    _kinds.insert(0, kind)
    _kind_of_type.clear()


def kind_of(value: object) -> RowBatchKind | None:
    """The kind of a value, `None` for one that has no rows to split (numbers, strings, lists, configurations)."""
    cls = type(value)
    if cls not in _kind_of_type:
        # A stack is a single column, not a batch of fields.
        kinds = [] if issubclass(cls, NonTensorStack) else [kind for kind in _kinds if issubclass(cls, kind.type)]
        _kind_of_type[cls] = kinds[0] if kinds else None
    return _kind_of_type[cls]


def join_outputs(outputs: Sequence[Any], ranks: Sequence[int] | None = None) -> Any:
    """What several ranks returned, as one result. `ranks` says whose outputs they are, 0 to n-1 when not given.

    Batches of one kind are joined in order, outputs of one other type are listed; `None` of ranks that had nothing is
    left out beside batches. Outputs of different types raise `OutputMismatchError` with both.
    """
    batches = [output for output in outputs if output is not None]
    if not batches:
        return list(outputs)
    kind = kind_of(batches[0])
    for output in batches:
        if kind_of(output) is not kind or (kind is None and _shown_type(output) is not _shown_type(batches[0])):
            raise _mismatch(outputs, output, ranks or range(len(outputs)))
    return list(outputs) if kind is None else kind.join(batches)


def _mismatch(outputs: Sequence[Any], other: Any, ranks: Sequence[int]) -> OutputMismatchError:
    found = {rank: type(output).__name__ for rank, output in zip(ranks, outputs, strict=True) if output is not None}
    first_rank = next(iter(found))
    other_rank = next(rank for rank, output in zip(ranks, outputs, strict=True) if output is other)
    return OutputMismatchError(
        f"rank {first_rank} returned {found[first_rank]} and rank {other_rank} {found[other_rank]}: outputs of "
        "different types cannot be joined; return the same on every rank, None where there is nothing",
        found=found,
        expected=found[first_rank],
    )


def _shown_type(output: object) -> type:
    # 0 beside 0.5 is the accident of a value, not another type of output.
    return Real if isinstance(output, Real) else type(output)
