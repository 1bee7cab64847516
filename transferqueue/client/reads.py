"""Reading rows: resolved at one snapshot, leased, then viewed or gathered."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from tensordict import TensorDict

from transferqueue.aio import asynchronous
from transferqueue.client.arguments import check_choice, check_device
from transferqueue.client.consumption import ConsumptionCalls
from transferqueue.client.core import (
    Indexes,
    as_indexes,
    by_partition,
    check_batch_meta,
    check_names,
    unknown_fields,
)
from transferqueue.client.row_choice import join_rows
from transferqueue.client.row_meta import Coverage
from transferqueue.client.rows import stale
from transferqueue.codec import LAYOUTS, STORED, decode, decode_empty
from transferqueue.config import READ_MODES
from transferqueue.errors import FieldNotReadyError, TransferTimeoutError, name_some
from transferqueue.metadata import BatchMeta
from transferqueue.read_report import ReadReport
from transferqueue.waiting import Steps, blocking, deadline, wait_until

if TYPE_CHECKING:
    from transferqueue._native import Resolved


class ReadCalls(ConsumptionCalls):
    """Part of `TransferQueueClient`."""

    # Whether `_read_rows` reads (see `ClusterClient`). Else `_read` does: a step more would be a tenth of a small get.
    _reads_elsewhere = False

    @blocking
    def get_data(
        self,
        metadata: BatchMeta,
        *,
        fields: str | Sequence[str] | None = None,
        mode: str | None = None,
        timeout: float | None = None,
        device: str | torch.device | None = None,
        layout: str = STORED,
    ) -> Steps[TensorDict]:
        """The rows of `metadata`, in its order, as a TensorDict of batch size [rows].

        A tensor field of at least ``read.copy_below`` bytes whose rows lie in one stretch, in order, becomes a view;
        anything else is gathered by one native copy. `get_data_with_report` says how much was which; `coalesce` brings
        scattered rows together.

        Args:
            metadata: pads are read like any row.
            fields: default: those that the metadata names.
            mode: "cow" (default, see ``read.mode``): tensors are private copy-on-write views, nothing is copied until
                written, and writing reaches nobody else; "shared": read-only views, writing to them kills the process;
                "copy": private memory.
            timeout: seconds to wait for fields that are not ready; None: an error at once.
            device: where the tensors go; other devices than the CPU get a copy.
            layout: "stored": columns come back as they were put; "jagged": every tensor whose rows have a shape as a
                nested tensor, jagged where that can hold the rows. Dense columns are seen so without being copied.

        Raises:
            StaleMetadataError: a row was cleared since; it is named.
            FieldNotReadyError: a field is unknown or not there on some rows; both are named.
            TransferTimeoutError: not ready within `timeout`.
            SessionNotFoundError: the metadata belongs to another session; both are named.
        """
        return (yield from self._read(metadata, fields, mode, timeout, device, None, layout))

    @blocking
    def get_data_with_report(
        self,
        metadata: BatchMeta,
        *,
        fields: str | Sequence[str] | None = None,
        mode: str | None = None,
        timeout: float | None = None,
        device: str | torch.device | None = None,
    ) -> Steps[tuple[TensorDict, ReadReport]]:
        """`get_data`, and what it cost."""
        cost = ReadCost()
        batch = yield from self._read(metadata, fields, mode, timeout, device, cost)
        return batch, ReadReport(**vars(cost))

    def _read(
        self,
        metadata: BatchMeta,
        fields: Any,
        mode: str | None,
        timeout: float | None,
        device: Any,
        cost: ReadCost | None,
        layout: str = STORED,
    ) -> Steps[TensorDict]:
        self._open()
        check_layout(layout)
        self._check_session(check_batch_meta(metadata, "get_data"))
        names = metadata.field_names if fields is None else check_names(fields, "fields")
        mode = self._read_mode(mode, device)
        if not metadata.size:
            empty = self._empty(metadata, names)
            return empty if device is None else empty.to(device)
        until_s = None if timeout is None else deadline(timeout)
        batches: list[TensorDict] = []
        for partition, indexes in by_partition(metadata) if names else ():
            if self._reads_elsewhere:
                how = (mode, timeout, until_s, layout, cost)
                batches.append((yield from self._read_rows(partition, indexes, names, how)))
                continue
            started_s = 0.0 if cost is None else time.perf_counter()
            if timeout is None:
                resolved = self._look(partition, indexes, names, raise_missing=True)
                assert resolved is not None  # narrowing: it raised
            else:
                resolved = yield from self._awaited(partition, indexes, names, timeout, until_s)
            if cost is not None:
                cost.looked(len(indexes), time.perf_counter() - started_s, waited=timeout is not None)
            batch, viewed, copied = self._decode(resolved, names, mode, layout)
            if copied and mode != "copy":
                self._service.note_gather(partition, indexes, names, copied)
            batches.append(batch)
            if cost is not None:
                cost.bytes_viewed += viewed
                cost.bytes_copied += copied
        batch = batches[0] if len(batches) == 1 else self._in_order(metadata, batches)
        return batch if device is None else batch.to(device)

    def _read_rows(self, partition: str, indexes: Indexes, names: Sequence[str], how: HowToRead) -> Steps[TensorDict]:
        """Rows of one partition, of a client whose rows may be elsewhere."""
        raise NotImplementedError

    def _awaited(
        self, partition: str, indexes: Indexes, names: Sequence[str], timeout: float, until_s: float | None
    ) -> Steps[Resolved]:
        """Rows that have all the fields, leased."""
        return (
            yield from wait_until(
                self._store,
                partition,
                until_s,
                partial(self._look, partition, indexes, names, raise_missing=False),
                partial(self._read_timeout, partition, indexes, names, timeout),
            )
        )

    def _decoded(
        self,
        partition: str,
        resolved: Resolved,
        names: Sequence[str],
        mode: str,
        layout: str,
        cost: ReadCost | None = None,
    ) -> TensorDict:
        """Rows that have all the fields, and whose payload is here."""
        batch, viewed, copied = self._decode(resolved, names, mode, layout)
        if copied and mode != "copy":
            self._service.note_gather(partition, as_indexes(resolved.indexes), names, copied)
        if cost is not None:
            cost.bytes_viewed += viewed
            cost.bytes_copied += copied
        return batch

    def _read_mode(self, mode: str | None, device: Any) -> str:
        if mode is not None:
            check_choice(mode, READ_MODES, "mode")
        if device is not None and check_device(device).type != "cpu":
            # A private page given to a device would be copied first; the shared mapping is read as it is.
            return "shared"
        return mode or self._config.read.mode

    def _look(self, partition: str, indexes: Indexes, fields: Sequence[str], *, raise_missing: bool) -> Resolved | None:
        """The rows, leased, when every one has every field; None (no lease) when not and that may change."""
        resolved = self._store.resolve(partition, indexes=indexes, fields=fields)
        return resolved if resolved.complete else self._incomplete(resolved, partition, fields, raise_missing)

    def _incomplete(
        self, resolved: Resolved, partition: str, fields: Sequence[str], raise_missing: bool
    ) -> Resolved | None:
        resolved.release()
        if len(resolved.gone):
            raise stale(partition, resolved.indexes[resolved.gone])
        if raise_missing:
            missing = Coverage(resolved).missing(fields)
            raise not_ready(partition, resolved, missing, known=self._store.field_names(partition))
        return None

    def _decode(
        self, resolved: Resolved, fields: Sequence[str], mode: str, layout: str = STORED
    ) -> tuple[TensorDict, int, int]:
        try:
            decoded = decode(
                resolved,
                mode=mode,
                copy_below=self._config.read.copy_below,
                allow_pickle=self._config.unpickles_own,
                fields=fields,
                layout=layout,
            )
        except BaseException:
            resolved.release()
            raise
        # Views hold leases of their own; what was copied needs none.
        resolved.finish()
        return decoded

    def _empty(self, metadata: BatchMeta, names: Sequence[str]) -> TensorDict:
        unknown = [name for name in names if not metadata.has_field(name)]
        if unknown:
            raise FieldNotReadyError(
                f"the metadata has no rows and does not know the fields {name_some(unknown)}; it has "
                f"{name_some(metadata.field_names) or 'none'}",
                fields=tuple(unknown),
            )
        schemas = {name: metadata.schema_of(name).to_plain() for name in names}
        empty: TensorDict = decode_empty(schemas)
        return empty

    def _in_order(self, metadata: BatchMeta, batches: list[TensorDict]) -> TensorDict:
        if not batches:
            return TensorDict({}, batch_size=[metadata.size])
        # The batches came partition by partition; row i of the answer is where a stable sort by partition put row i.
        ids = np.array([metadata.partition_names.index(name) for name in metadata.partition_ids])
        order = np.empty(metadata.size, dtype=np.int64)
        order[np.argsort(ids, kind="stable")] = np.arange(metadata.size)
        return join_rows(batches, order)

    def _read_timeout(
        self, partition: str, indexes: Any, fields: Sequence[str], timeout: float | None
    ) -> TransferTimeoutError:
        resolved = self._store.resolve(partition, indexes=as_indexes(indexes), fields=fields, lease=False)
        missing = Coverage(resolved).missing(fields)
        return TransferTimeoutError(
            f"waited {timeout} s for fields of partition {partition!r}: {describe_missing(resolved, missing)}"
            f"{self._what_does_not_exist(partition, fields)}",
            timeout_s=timeout,
            missing={field: [int(resolved.indexes[row]) for row in rows] for field, rows in missing.items()},
        )

    def row_shapes(self, metadata: BatchMeta, field: str) -> list[tuple[int, ...]]:
        """The shape of each row of a field, read from what is stored (payload is mapped, not copied)."""
        column = self.get_data(metadata, fields=[field], mode="shared").get(field)
        return (
            [tuple(row.shape) for row in column.unbind(0)]
            if isinstance(column, torch.Tensor)
            else [tuple(getattr(row, "shape", ())) for row in column.tolist()]
        )

    async_get_data = asynchronous(get_data)
    async_get_data_with_report = asynchronous(get_data_with_report)
    async_row_shapes = asynchronous(row_shapes)


def check_layout(layout: str) -> None:
    """Raises ValueError for what is no layout."""
    check_choice(layout, LAYOUTS, "layout")


class ReadCost:
    """A `ReadReport` in the making."""

    def __init__(self) -> None:
        self.rows = self.bytes_viewed = self.bytes_copied = self.bytes_pulled = 0
        self.resolve_s = self.wait_s = 0.0

    def looked(self, rows: int, seconds: float, *, waited: bool) -> None:
        self.rows += rows
        if waited:
            self.wait_s += seconds
        else:
            self.resolve_s += seconds


HowToRead = tuple[str, float | None, float | None, str, ReadCost | None]
"""The options of a read, see `ReadCalls.get_data`: mode, timeout, its deadline, layout, and what it costs."""


def describe_missing(resolved: Resolved, missing: dict[str, list[int]]) -> str:
    """``field 'a' on 2 of 4 rows (global indexes 1, 3)``, for the first few fields."""
    parts = [
        f"field {field!r} is not there on {len(rows)} of {len(resolved.indexes)} rows "
        f"(global indexes {name_some(int(resolved.indexes[row]) for row in rows)})"
        for field, rows in list(missing.items())[:4]
    ]
    more = len(missing) - len(parts)
    return "; ".join(parts) + (f"; and {more} more fields" if more > 0 else "")


def not_ready(
    partition: str,
    resolved: Resolved,
    missing: dict[str, list[int]],
    keys: Sequence[str] | None = None,
    known: Sequence[str] = (),
) -> FieldNotReadyError:
    """The error for fields that are not produced yet, or that no row has: `known` are those that some row has."""
    unknown = unknown_fields(partition, list(missing), known) if known else ""
    positions = sorted({row for rows in missing.values() for row in rows})
    return FieldNotReadyError(
        f"partition {partition!r}: {describe_missing(resolved, missing)}{'; ' if unknown else ''}{unknown}. timeout= "
        "waits for fields",
        fields=tuple(missing),
        rows=tuple(int(resolved.indexes[row]) for row in positions),
        keys=() if keys is None else tuple(keys[row] for row in positions),
        partition_id=partition,
    )
