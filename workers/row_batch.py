"""The kinds of arguments that have rows: how dispatch splits them and collect joins them.

Metadata splits into metadata and never touches a byte of payload. A TensorDict is split for programs that pass
batches by value. A further kind (a protocol object of a trainer) is one more entry in `register_row_batch`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

from tensordict import NonTensorStack, TensorDictBase

from transferqueue.metadata import BatchMeta, KVBatchMeta
from transferqueue.workers.batch_rows import batch_rows, join_batches, pad_batch, split_batch, take_batch
from transferqueue.workers.errors import OutputMismatchError


@dataclass(frozen=True)
class RowBatchKind:
    """What the controller does with one kind of batch.

    `pad(batch, divisor)` returns the padded batch and the rows it added. `drop(batch, padded_rows, added)` takes pads
    out of a joined result: those that are flagged, or the last `added` of a result that still has `padded_rows`.
    `wants_padding(batch)` is whether a batch asks for padding by itself; None for a kind that cannot.
    """

    type: type
    size: Callable[[Any], int]
    split: Callable[[Any, int], Sequence[Any]]
    join: Callable[[Sequence[Any]], Any]
    pad: Callable[[Any, int], tuple[Any, int]]
    drop: Callable[[Any, int, int], Any]
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


def _join_metadata(metas: Sequence[Any]) -> Any:
    # Pieces of ranks without rows know neither partition nor schema; concat is asked about the others only.
    filled = [meta for meta in metas if meta.size] or list(metas[:1])
    return type(filled[0]).concat(filled)


def _pad_metadata(meta: Any, divisor: int) -> tuple[Any, int]:
    padded = meta.pad_to_divisor(divisor)
    return padded, padded.size - meta.size


def _drop_metadata(meta: Any, padded_rows: int, added: int) -> Any:
    # The bridge returns rows without pads; metadata that a method handed through still has them, flagged.
    return meta.unpad() if meta.num_padding else meta


for _type in (BatchMeta, KVBatchMeta):
    register_row_batch(
        RowBatchKind(
            type=_type,
            size=len,
            split=lambda meta, parts: meta.chunk(parts),
            join=_join_metadata,
            pad=_pad_metadata,
            drop=_drop_metadata,
        )
    )


def _drop_rows(batch: TensorDictBase, padded_rows: int, added: int) -> TensorDictBase:
    if not added or batch_rows(batch) != padded_rows:  # not row for row what was sent
        return batch
    return take_batch(batch, 0, padded_rows - added)


register_row_batch(
    RowBatchKind(
        type=TensorDictBase, size=batch_rows, split=split_batch, join=join_batches, pad=pad_batch, drop=_drop_rows
    )
)
