"""Choosing rows for a consumer: the part that fetches and claims have in common.

The sampler runs on a snapshot, outside any transaction. Its choice is committed only if every chosen row is still
ready, unconsumed and unclaimed, and nobody else changed the task's state meanwhile; else it runs again on a new
snapshot, with its old state. Who lost four times holds the task's lock, so that progress is certain.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from transferqueue.client.core import Indexes, as_indexes, refuse_duplicates
from transferqueue.client.rows import RowCalls
from transferqueue.errors import StaleMetadataError, name_some
from transferqueue.metadata import BatchMeta
from transferqueue.waiting import lock_timeout

if TYPE_CHECKING:
    from transferqueue._native import TaskSnapshot

_FREE_TRIES = 4
_TASK_LOCK_TIMEOUT_S = 60.0
Taken = TypeVar("Taken")


class PartitionView:
    """What a sampler may ask about the partition it samples from."""

    def __init__(self, client: RowCalls, partition: str) -> None:
        self._client = client
        self._partition = partition

    def get_custom_meta(self, indexes: Sequence[int]) -> dict[int, dict[str, Any]]:
        """Tags by global index."""
        listed = [int(index) for index in indexes]
        return dict(zip(listed, self._client._tags_of(self._partition, as_indexes(listed)), strict=True))


@dataclass(frozen=True)
class Wanted:
    """Rows that a task asks for.

    Attributes:
        fields: every row has all of them.
        batch_size: what the sampler is asked for.
        at_least: ready rows below which it is not even called.
        config: passed to the sampler as keyword arguments.
    """

    partition: str
    task: str
    fields: list[str]
    batch_size: int
    at_least: int
    config: Mapping[str, Any]


class Way(Generic[Taken]):
    """What becomes of the rows that were chosen.

    Attributes:
        until_s: the call's deadline, as `waiting.deadline` gives it.
    """

    until_s: float | None = None

    def take(self, wanted: Wanted, snapshot: TaskSnapshot, rows: Indexes, state: bytes) -> Taken | None:
        """One transaction; None when what the choice rests on has changed."""
        raise NotImplementedError

    def repeat(self, snapshot: TaskSnapshot, sampled: list[int], consumed: list[int]) -> list[int] | None:
        """The rows to take when the sampler gives an earlier answer again; None: not now."""
        raise NotImplementedError


@dataclass(frozen=True)
class Look(Generic[Taken]):
    """What one look came to: metadata and what `Way.take` returned, or neither when there are too few rows.

    Attributes:
        snapshot: what the last choice was made from.
    """

    snapshot: TaskSnapshot
    chosen: tuple[BatchMeta, Taken] | None = None


class ChoiceCalls(RowCalls):
    """Part of `TransferQueueClient`."""

    def _choose(self, wanted: Wanted, way: Way[Taken]) -> Look[Taken]:
        tries = 0
        with contextlib.ExitStack() as stack:
            while True:
                snapshot = self._store.task_snapshot(wanted.partition, wanted.task, wanted.fields)
                run = self._sampler_run(snapshot)
                ready = snapshot.ready.tolist()
                repeated = run.has_cached_result(wanted.config)
                if len(ready) < wanted.at_least and not repeated:
                    return Look(snapshot)
                view = PartitionView(self, wanted.partition)
                sampled, consumed = run.sample(ready, wanted.batch_size, view, wanted.config)
                if not sampled and wanted.batch_size:
                    return Look(snapshot)
                refuse_duplicates(sampled, "the sampler chose rows twice")
                rows: list[int] | None = consumed
                if repeated:
                    rows = way.repeat(snapshot, sampled, consumed)
                else:
                    _refuse_strangers([*sampled, *consumed], ready)
                if rows is None:
                    return Look(snapshot)
                # Described before they are taken: if one was cleared meanwhile, the others are not lost.
                try:
                    meta = self._meta_of_rows(wanted.partition, as_indexes(sampled), wanted.fields)
                except StaleMetadataError:
                    if repeated:
                        raise
                    continue
                taken = way.take(wanted, snapshot, as_indexes(rows), run.state())
                if taken is not None:
                    return Look(snapshot, (meta, taken))
                tries += 1
                if tries == _FREE_TRIES:
                    limit_s = lock_timeout(way.until_s)
                    limit_s = _TASK_LOCK_TIMEOUT_S if limit_s is None else limit_s
                    lock = self._store.lock_task(wanted.partition, wanted.task, limit_s)
                    stack.enter_context(lock)

    def _what_is_there(self, wanted: Wanted, snapshot: TaskSnapshot | None) -> str:
        """For messages of calls that got too few rows: how many there are, consumed and claimed ones apart."""
        _, indexes, ready, _ = self._store.production(wanted.partition, wanted.fields)
        complete = indexes[ready.all(axis=1)]
        free = 0 if snapshot is None else len(snapshot.ready)
        claimed = 0 if snapshot is None else int(np.isin(complete, snapshot.claimed).sum())
        consumed = len(complete) - free - claimed
        others = [f"{consumed} that it has consumed"] * (consumed > 0) + [f"{claimed} that are claimed"] * (claimed > 0)
        there = " and ".join([", ".join([f"there are {free}", *others[:-1]]), *others[-1:]])
        if free and free >= wanted.at_least:
            there += ", of which the sampler made no batch"
        return there + self._what_does_not_exist(wanted.partition, wanted.fields)


def _refuse_strangers(chosen: list[int], ready: list[int]) -> None:
    offered = set(ready)
    strangers = [index for index in chosen if index not in offered]
    if strangers:
        raise ValueError(f"the sampler chose rows that it was not offered: global indexes {name_some(strangers)}")
