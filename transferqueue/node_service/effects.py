"""What a change of a partition came to, as the partition's standby is told it: no decision is made twice."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from transferqueue._native import AlreadyApplied
from transferqueue.client.core import as_indexes
from transferqueue.nodes.messages import carried
from transferqueue.nodes.names import Names
from transferqueue.nodes.stubs import StubPlan

if TYPE_CHECKING:
    from transferqueue._native import Reservation, Store

ROWS, TAGS, GONE, ONLY, CLEARED, MARKS, RESET, WEIGHT = (
    "rows",
    "tags",
    "gone",
    "only",
    "cleared",
    "marks",
    "reset",
    "weight",
)
Room = Callable[[int], "Reservation"]


def _no_rows() -> Names:
    return np.empty(0, dtype=np.int64)


@carried
@dataclass
class Effect:
    """One commit of one partition. What a kind does not have is empty.

    Attributes:
        kind: ROWS: there are these rows now, with these fields beside those that they had; TAGS: merged; GONE: cleared;
            ONLY: no others are left; CLEARED: the whole partition; MARKS: consumed by a task; RESET: of one task or
            all; WEIGHT: the version of the weights is `number`.
        indexes: int64, the rows.
        keys: of ROWS, one a row, of rows that have had them from the beginning; of GONE instead of indexes.
        tags: one map a row, as they are stored.
        names: int64, of the payload of ROWS. None: rows without data.
        nbytes: of that payload, as limits count it.
        schemas: field -> schema of that payload.
        task: of MARKS and RESET.
        state: of the task's sampler from now on; None: it stays.
        request_id: of the call that made the change; empty: the call is not to be remembered.
        number: see WEIGHT.
    """

    kind: str
    indexes: Names = field(default_factory=_no_rows)
    keys: list[str] | None = None
    tags: list[bytes] | None = None
    names: Names | None = None
    nbytes: int = 0
    schemas: dict[str, bytes] = field(default_factory=dict)
    task: str | None = None
    state: bytes | None = None
    request_id: bytes = b""
    number: int = 0


def apply_effect(store: Store, partition: str, effect: Effect, reserve: Room) -> None:
    """Does to `partition` what was done at the home, and remembers the call.

    Args:
        reserve: room for so many bytes.

    Raises:
        StorageFullError: no room.
    """
    if effect.kind == ROWS and effect.keys is not None:
        _make_keyed(store, partition, effect)
    numbered = store.request(effect.request_id) if effect.request_id else contextlib.nullcontext()
    with numbered, contextlib.suppress(AlreadyApplied):
        if effect.kind == ROWS:
            _make_rows(store, partition, effect, reserve)
        elif effect.kind == TAGS:
            store.merge_tags(partition, effect.indexes, effect.tags or [])
        elif effect.kind == GONE and effect.keys is not None:
            store.clear_rows(partition, keys=effect.keys)
        elif effect.kind == GONE:
            store.clear_rows(partition, indexes=effect.indexes)
        elif effect.kind == ONLY:
            there = store.production(partition, [])[1]
            store.clear_rows(partition, indexes=as_indexes(np.setdiff1d(there, effect.indexes)))
        elif effect.kind == CLEARED:
            store.clear_partition(partition)
        elif effect.kind == MARKS:
            store.mark_rows(partition, effect.task or "", effect.indexes, effect.state)
        elif effect.kind == RESET:
            store.task_reset(partition, effect.task)
        elif effect.kind != WEIGHT:
            raise ValueError(f"no change is of the kind {effect.kind[:40]!r}")


def _make_keyed(store: Store, partition: str, effect: Effect) -> None:
    keys = effect.keys or []
    new = store.find_keys(partition, keys)[1] < 0
    if new.any():
        named = [key for key, is_new in zip(keys, new.tolist(), strict=True) if is_new]
        store.publish(partition, indexes=as_indexes(effect.indexes[new]), keys=named, create_rows=True)


def _make_rows(store: Store, partition: str, effect: Effect, reserve: Room) -> None:
    rows, tags = as_indexes(effect.indexes), effect.tags or ()
    if effect.names is None:
        store.publish(partition, indexes=rows, create_rows=True, tags=tags)
        return
    plan = StubPlan(effect.names, effect.schemas)
    reservation = reserve(plan.nbytes)
    try:
        plan.write(reservation)
        store.publish(
            partition,
            indexes=rows,
            create_rows=True,
            tags=tags,
            reservation=reservation,
            fields=plan.layouts,
            elsewhere_nbytes=effect.nbytes,
        )
    except BaseException:
        reservation.abandon()
        raise


def effect_of_rows(
    indexes: Names,
    keys: list[str] | None,
    tags: list[bytes],
    names: Names | None,
    nbytes: int,
    schemas: Mapping[str, bytes],
) -> Effect:
    """ROWS."""
    return Effect(ROWS, as_indexes(indexes), keys, tags or None, names, nbytes, dict(schemas))
