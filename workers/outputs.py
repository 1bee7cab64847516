"""Outputs that a bridged method computes straight into the store: `alloc_outputs`.

The bridge knows the rows of the call, so it can hand out room for the outputs before they exist, and publish it when
the method returns what was handed out. A method need not know whether that happens: where its outputs are not stored
(a rank that does not collect), or not as they are (pads, rows of several partitions, a call without metadata), it gets
ordinary tensors, and what it returns is treated like any other output.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, cast

import torch
from tensordict import TensorDict, TensorDictBase
from tensordict.tensorclass import is_non_tensor

from transferqueue.codec import plan_alloc
from transferqueue.errors import SchemaMismatchError
from transferqueue.workers.write_back import WriteBack

if TYPE_CHECKING:
    from transferqueue.allocation import Allocation
    from transferqueue.client import TransferQueueClient
    from transferqueue.metadata import BatchMeta


def alloc_outputs(fields: Mapping[Any, Any], *, batch_size: int | Sequence[int] | None = None) -> TensorDict:
    """Room for outputs of the bridged method that is running, to be computed in place.

    When the method returns this TensorDict, or another with these very tensors, they are published on the rows of its
    first metadata argument without being copied. Fields put beside them (strings, for instance) are copied and
    published in the same transaction. Returned in part, or with a tensor replaced, everything is copied as usual; not
    returned, or when the method raises, the room is given back. For no copy at all nobody must hold the tensors when
    the method has returned; where somebody does they keep their values, private to this process from then on.

    On a rank that does not collect, for padded metadata, for rows of several partitions or none, and in a call without
    metadata the tensors are private memory: the method's code is the same.

    Args:
        fields: name (or tuple of keys) -> ``(shape of one row, dtype)`` or `transferqueue.Jagged`, as in
            `TransferQueueClient.alloc`.
        batch_size: rows; default those of the first metadata argument, which it must equal. Needed in a call without
            metadata (``batch.batch_size`` is right in all calls), unless a `Jagged` field says how many.

    Returns:
        A TensorDict of writable tensors on the CPU; what they hold before they are written is undefined.

    Raises:
        RuntimeError: the second time in one call: name all fields at once.
        SchemaMismatchError: descriptions that do not fit each other or the rows. StorageFullError: no room.
        StaleMetadataError (when the method returns): a row was cleared meanwhile; nothing is stored.
    """
    outputs = current_outputs.get()
    if outputs is None:
        return _private(fields, _given_rows(fields, batch_size))
    where = outputs._room_for(fields, batch_size)
    if where is None:
        return _private(fields, outputs.rows.size)
    client, options = where
    return outputs._handed_out(client.alloc(fields, **options))


async def async_alloc_outputs(
    fields: Mapping[Any, Any], *, batch_size: int | Sequence[int] | None = None
) -> TensorDict:
    """`alloc_outputs` for coroutine methods: waiting for room leaves the event loop free."""
    outputs = current_outputs.get()
    if outputs is None:
        return _private(fields, _given_rows(fields, batch_size))
    where = outputs._room_for(fields, batch_size)
    if where is None:
        return _private(fields, outputs.rows.size)
    client, options = where
    return outputs._handed_out(await client.async_alloc(fields, **options))


class CallOutputs:
    """The room for outputs of one bridged call on `rows`."""

    __slots__ = ("_allocation", "_asked", "_client", "_owner", "_tensors", "_write_back", "rows")

    def __init__(
        self, rows: BatchMeta, client: TransferQueueClient | None, write_back: WriteBack, owner: object
    ) -> None:
        self.rows = rows
        self._client = client
        self._write_back = write_back
        self._owner = owner
        self._asked = False
        self._allocation: Allocation[Any] | None = None
        self._tensors: TensorDict | None = None

    def beside(self, columns: TensorDict) -> dict[str, Any] | None:
        """What to publish beside the allocation; None when `columns` are not what was handed out."""
        if self._allocation is None:
            return None
        tensors, self._tensors = self._tensors, None
        assert tensors is not None
        names = set(tensors.keys())
        if any(name not in columns.keys() or not _same(tensors.get(name), columns.get(name)) for name in names):
            return None
        return {str(name): columns.get(name) for name in columns.keys() if name not in names}

    def commit(self, beside: dict[str, Any]) -> BatchMeta:
        """The rows with their new fields."""
        assert self._allocation is not None
        return cast("BatchMeta", self._allocation.commit(extra=beside or None))

    async def async_commit(self, beside: dict[str, Any]) -> BatchMeta:
        return self.commit(beside)  # one short transaction

    def close(self) -> None:
        """Gives back what was not committed."""
        self._tensors = None
        if self._allocation is not None:
            self._allocation.abort()

    def _room_for(
        self, fields: Mapping[Any, Any], batch_size: int | Sequence[int] | None
    ) -> tuple[TransferQueueClient, dict[str, Any]] | None:
        """Where and how to allocate; None for private memory."""
        if self._asked:
            raise RuntimeError("alloc_outputs was called before in this call: name all fields in one call")
        self._asked = True
        rows = self.rows
        if batch_size is not None and _as_rows(batch_size) != rows.size:
            raise SchemaMismatchError(
                f"alloc_outputs was asked for {_as_rows(batch_size)} rows; the first metadata argument has {rows.size}",
                expected=rows.size,
                found=_as_rows(batch_size),
            )
        if not rows.size or rows.num_padding or len(rows.partition_names) != 1 or self._client is None:
            return None
        if not self._write_back.collects(self._owner):
            return None
        # A copy: commit adds the fields to the metadata that it was given.
        return self._client, {"partition_id": rows.partition_names[0], "metadata": rows.copy()}

    def _handed_out(self, allocation: Allocation[Any]) -> TensorDict:
        self._allocation = allocation
        # Of its own, because the method may add and replace entries in what it gets.
        self._tensors = cast("TensorDict", allocation.data.copy())
        return cast("TensorDict", allocation.data.unlock_())


current_outputs: ContextVar[CallOutputs | None] = ContextVar("transferqueue_call_outputs", default=None)
"""Those of the bridged call that this thread or task is in; None in a method that was called without metadata."""


def _private(fields: Mapping[Any, Any], rows: int) -> TensorDict:
    tensors: TensorDict = plan_alloc(fields, rows).private_tensors()
    return tensors


def _given_rows(fields: Mapping[Any, Any], batch_size: int | Sequence[int] | None) -> int:
    if batch_size is not None:
        return _as_rows(batch_size)
    lengths = [len(spec) for spec in fields.values() if not isinstance(spec, tuple)]
    if not lengths:
        raise SchemaMismatchError(
            "alloc_outputs in a call without metadata needs to know how many rows: batch_size=batch.batch_size"
        )
    return lengths[0]


def _as_rows(batch_size: int | Sequence[int]) -> int:
    if isinstance(batch_size, int):
        return batch_size
    if len(batch_size) != 1:
        raise SchemaMismatchError(f"batch_size must be one number of rows, not {tuple(batch_size)}")
    return int(batch_size[0])


def _same(mine: Any, theirs: Any) -> bool:
    """Whether two entries are the same elements of the same memory."""
    if mine is theirs:
        return True
    if isinstance(mine, TensorDictBase):
        return (
            isinstance(theirs, TensorDictBase)
            and not is_non_tensor(theirs)
            and set(mine.keys()) == set(theirs.keys())
            and all(_same(mine.get(name), theirs.get(name)) for name in mine.keys())
        )
    if not isinstance(theirs, torch.Tensor) or mine.is_nested != theirs.is_nested or mine.dtype != theirs.dtype:
        return False
    return _same_jagged(mine, theirs) if mine.is_nested else _same_dense(mine, theirs)


def _same_jagged(mine: Any, theirs: Any) -> bool:
    return (
        theirs.layout is torch.jagged
        and getattr(theirs, "_ragged_idx", 1) == getattr(mine, "_ragged_idx", 1)
        and getattr(theirs, "_lengths", None) is None
        and _same_dense(mine.values(), theirs.values())
        and torch.equal(mine.offsets(), theirs.offsets())
    )


def _same_dense(mine: torch.Tensor, theirs: torch.Tensor) -> bool:
    return (
        mine.device == theirs.device
        and mine.shape == theirs.shape
        and mine.stride() == theirs.stride()
        and mine.data_ptr() == theirs.data_ptr()
        and mine.is_conj() == theirs.is_conj()
        and mine.is_neg() == theirs.is_neg()
    )
