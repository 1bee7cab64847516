"""Rows written in place: tensors inside the store that a producer computes into, published without a copy."""

from __future__ import annotations

import contextlib
import os
import types
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from transferqueue._native import FieldLayout
from transferqueue.codec import PutPlan, plan_put
from transferqueue.codec.alloc_plan import AllocPlan
from transferqueue.codec.dlpack import from_dlpack
from transferqueue.errors import SchemaMismatchError, name_some

if TYPE_CHECKING:
    from tensordict import TensorDictBase

    from transferqueue._native import PublishResult, Reservation
    from transferqueue.codec.block_plan import BlockPlan

Meta = TypeVar("Meta")
Answer = TypeVar("Answer", covariant=True)


class TargetRows(Protocol[Answer]):
    """The rows that an allocation is for, and how they are stored."""

    def room(self, nbytes: int) -> Reservation:
        """More room than was reserved."""
        ...

    def publish(self, reservation: Reservation, layouts: list[FieldLayout], tags: Any) -> PublishResult:
        """Commits."""
        ...

    def metadata(self, done: PublishResult, plans: Sequence[BlockPlan], info: Mapping[str, Any], tags: Any) -> Answer:
        """What the caller gets for what was committed: the fields of `plans` on the rows."""
        ...


_PAGE = 4096
_SLACK_FROM_NBYTES = 64 << 10
_SLACK_NBYTES_PER_ROW = 128


def reserved_nbytes(plan: AllocPlan) -> int:
    """Bytes to reserve: those of the plan, and for larger ones some room behind them for the `extra` of a commit."""
    if plan.nbytes < _SLACK_FROM_NBYTES:
        return plan.nbytes
    return _page_end(plan.nbytes) + _PAGE + _SLACK_NBYTES_PER_ROW * plan.n_rows


def give_up(reservation: Reservation) -> None:
    """Gives the space back after an error; nothing if that came behind the publication (Ctrl-C between two lines)."""
    with contextlib.suppress(ValueError):
        reservation.abandon()


def _page_end(nbytes: int) -> int:
    return -(-nbytes // _PAGE) * _PAGE


class Allocation(Generic[Meta]):
    """Made by `TransferQueueClient.alloc`; ends with `commit` or `abort`, or as a context manager.

    Until then the rows do not exist for anybody else. As a context manager it commits, or aborts on an exception.
    """

    __slots__ = ("__weakref__", "_data", "_meta", "_pid", "_plan", "_reservation", "_rows", "_state")

    def __init__(self, plan: AllocPlan, reservation: Reservation, rows: TargetRows[Meta]) -> None:
        self._plan = plan
        self._reservation = reservation
        self._rows = rows
        # Locked: an entry that is assigned anew would be another tensor, of which nothing is published.
        self._data: TensorDictBase | None = plan.tensors(reservation).lock_()
        self._pid = os.getpid()
        self._state = "open"
        self._meta: Meta | None = None

    @property
    def data(self) -> TensorDictBase:
        """Writable tensors inside the segment; what they hold before they are written is undefined.

        Write into them (``data["x"].copy_(y)``, ``data.set_("x", y)``, ``out=``): the TensorDict is locked, so that
        ``data["x"] = y``, which would put another tensor in the place of the one that is published, is an error.

        Tensors that outlive the commit keep their values, private to this process from then on: writing to them no
        longer reaches the store.

        Raises:
            RuntimeError: after commit or abort.
        """
        if self._data is None:
            raise RuntimeError(f"the allocation is {self._state}: its tensors were handed out before that")
        return self._data

    @property
    def meta(self) -> Meta:
        """What `commit` returned. Raises RuntimeError before."""
        if self._meta is None:
            raise RuntimeError(f"the allocation is {self._state}, not committed")
        return self._meta

    def commit(
        self, extra: TensorDictBase | Mapping[str, Any] | None = None, tags: Sequence[Mapping[str, Any]] | None = None
    ) -> Meta:
        """Publishes the rows, all fields at once; no byte of them is copied.

        Args:
            extra: further fields for the same rows (for instance strings); these are copied, into room that the
                allocation kept for it. Where that is too small everything is copied once.
            tags: one dict per row.

        Raises:
            RuntimeError: committed or aborted before, or made by the parent process.
            SchemaMismatchError: `extra` has other rows or a field of the allocation.
            StaleMetadataError: a row was cleared meanwhile; nothing is stored.
            TransferTimeoutError: a process that stands still kept the session's write lock for the timeout of `alloc`
                (by default ``put.timeout_s``, at least 1 s); names it.
        """
        self._check_open()
        plan, reservation = self._plan, self._reservation
        added = None if extra is None else self._planned_extra(extra)
        try:
            plan.finish(reservation)
            layouts = plan.layouts
            if added is not None and added.nbytes:
                base = _page_end(plan.nbytes)
                if base + added.nbytes > reservation.nbytes:
                    reservation = self._copy_to(self._rows.room(base + added.nbytes))
                added.write(_Behind(reservation, base))  # type: ignore[arg-type]  # writes through two methods only
                layouts = layouts + [_moved(layout, base) for layout in added.layouts]
            # Dropped first: tensors that nobody else holds need no remapping.
            self._data = None
            done = self._rows.publish(reservation, layouts, tags)
            self._state = "committed"
        except BaseException:
            self.abort()
            raise
        if reservation is not self._reservation:
            self._reservation.abandon()
        # The rows are there, whatever becomes of the answer.
        plans = (plan,) if added is None else (plan, added)
        self._meta = meta = self._rows.metadata(done, plans, {} if added is None else added.batch_info, tags)
        return meta

    def abort(self) -> None:
        """Gives the space back: at once, or when the last tensor of the allocation dies. Idempotent."""
        if self._state == "open" and self._pid == os.getpid():
            self._state = "aborted"
            self._data = None
            give_up(self._reservation)

    def _planned_extra(self, extra: TensorDictBase | Mapping[str, Any]) -> PutPlan:
        added = plan_put(extra, self._plan.n_rows)
        clash = {layout.name for layout in added.layouts} & {layout.name for layout in self._plan.layouts}
        if clash:
            raise SchemaMismatchError(
                f"extra has fields that the allocation has too: {name_some(sorted(clash))}", fields=tuple(sorted(clash))
            )
        return added

    def _copy_to(self, reservation: Reservation) -> Reservation:
        source = from_dlpack(self._reservation.producer_tensor(0, self._plan.nbytes))
        reservation.copy_in([(0, source.data_ptr(), self._plan.nbytes)])
        return reservation

    def _check_open(self) -> None:
        if self._state != "open":
            raise RuntimeError(f"the allocation is {self._state} already")
        if self._pid != os.getpid():
            raise RuntimeError("the allocation belongs to the parent process: its space is the parent's to publish")

    def __enter__(self) -> Allocation[Meta]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None
    ) -> None:
        if kind is not None:
            self.abort()
        elif self._state == "open":
            self.commit()

    def __repr__(self) -> str:
        return f"Allocation({self._plan.n_rows} rows, {self._plan.nbytes} bytes, {self._state})"


class _Behind:
    """The part of a reservation behind `base`, for a plan that starts at 0."""

    def __init__(self, reservation: Reservation, base: int) -> None:
        self._reservation = reservation
        self._base = base

    def copy_in(self, writes: Sequence[tuple[int, int, int]]) -> None:
        self._reservation.copy_in([(self._base + offset, address, nbytes) for offset, address, nbytes in writes])

    def writable(self, offset: int, nbytes: int) -> Any:
        return self._reservation.writable(self._base + offset, nbytes)


def _moved(layout: FieldLayout, base: int) -> FieldLayout:
    return FieldLayout(
        layout.name,
        layout.kind,
        layout.data_offset + base,
        layout.data_nbytes,
        layout.row_nbytes,
        layout.offsets_offset + base,
        layout.schema,
    )
