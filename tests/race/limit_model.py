"""Random calls on one partition with limits, against a dictionary: who is refused, what is shed, and the accounts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
import torch
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tensordict import TensorDict

import transferqueue as tq

PARTITION = "limited"
TASKS = ("a", "b")
NBYTES_PER_ROW = 64  # of the field, so that blocks of whole rows take no more


@dataclass
class Row:
    version: int | None
    given: set[str] = field(default_factory=set)
    claimed: set[str] = field(default_factory=set)


@dataclass
class Refused:
    """What a put comes to: an error, or (of rows that are too old) nothing at all."""

    dropped: bool


def batch(rows: int) -> TensorDict:
    return TensorDict({"x": torch.zeros(rows, NBYTES_PER_ROW // 4)}, [rows])


class LimitModel(RuleBasedStateMachine):
    """`client` is set by the test. The partition is cleared between examples."""

    client: tq.TransferQueueClient

    def __init__(self) -> None:
        super().__init__()
        self.client.clear_partition(PARTITION)
        self.rows: dict[int, Row] = {}
        self.claims: list[tuple[str, tq.Claim]] = []
        self.newest: int | None = None
        self.shed = self.keys = 0
        self.max_rows: int | None = None
        self.max_lag: int | None = None
        self.consumers: tuple[str, ...] = ()
        self.way = "wait"

    # -- the model ---------------------------------------------------------------------------------------------------
    def waits(self, row: Row) -> bool:
        return not row.given if not self.consumers else not set(self.consumers) <= row.given

    def waiting(self) -> list[Row]:
        return [row for row in self.rows.values() if self.waits(row)]

    def oldest(self, rows: list[Row]) -> int | None:
        return min((row.version for row in rows if row.version is not None), default=None)

    def expect_put(self, count: int, version: int | None) -> list[int] | Refused:
        """The rows that go for it."""
        gone: list[int] = []
        newest = self.newest
        if self.max_lag is not None and version is not None:
            newest = version if newest is None else max(newest, version)

        def free(chosen: Callable[[Row], bool]) -> list[int]:
            return [
                index
                for index, row in self.rows.items()
                if index not in gone and not row.given and not row.claimed and chosen(row)
            ]

        while True:
            left = [row for index, row in self.rows.items() if index not in gone and self.waits(row)]
            if self.max_rows is not None and len(left) + count > self.max_rows:
                over = len(left) + count - self.max_rows
                never, candidates = count > self.max_rows, free(lambda row: True)
            elif self.max_lag is not None and version is not None and newest is not None:
                bound = newest - self.max_lag
                over = sum(1 for row in left if row.version is not None and row.version < bound)
                never = version < bound
                if not over and not never:
                    return gone
                candidates = free(lambda row, bound=bound: row.version is not None and row.version < bound)  # type: ignore[misc]
            else:
                return gone
            if never or self.way != "shed" or len(candidates) < over:
                return Refused(never and self.way == "shed" and count <= (self.max_rows or count))
            gone += candidates[:over]

    # -- calls -------------------------------------------------------------------------------------------------------
    @initialize()
    def limit(self) -> None:
        self.client.set_limits(
            PARTITION,
            max_bytes=None,
            max_unconsumed_rows=None,
            max_version_lag=None,
            consumers=(),
            when_exceeded="wait",
        )

    @rule(
        max_rows=st.none() | st.integers(1, 12),
        max_lag=st.none() | st.integers(0, 3),
        consumers=st.sampled_from([(), ("a",), ("a", "b")]),
        way=st.sampled_from(["wait", "shed", "raise", "shed"]),
    )
    def set_limits(self, max_rows: int | None, max_lag: int | None, consumers: tuple[str, ...], way: str) -> None:
        self.client.set_limits(
            PARTITION, max_unconsumed_rows=max_rows, max_version_lag=max_lag, consumers=consumers, when_exceeded=way
        )
        self.max_rows, self.consumers, self.way, self.max_lag = max_rows, consumers, way, max_lag
        if PARTITION not in self.client.get_partition_list():
            return
        if max_lag is None:
            self.newest = None
        elif self.newest is None:
            self.newest = max((row.version for row in self.rows.values() if row.version is not None), default=None)
        if (max_rows, max_lag) == (None, None):
            self.shed = 0  # without limits there is no account

    @rule(count=st.integers(1, 6), version=st.none() | st.integers(0, 6), keyed=st.booleans())
    def put(self, count: int, version: int | None, keyed: bool) -> None:
        tags = None if version is None else [{"weight_version": version}] * count
        before = self.client.get_limits(PARTITION)
        gone = self.expect_put(count, version)
        if isinstance(gone, Refused):
            if gone.dropped:
                made = self.call(count, tags, keyed)
                assert (made.size, made.shed_rows) == (0, count)
            else:
                with pytest.raises(tq.LimitExceededError):
                    self.call(count, tags, keyed)
            assert self.client.get_limits(PARTITION) == before
            return
        made = self.call(count, tags, keyed)
        assert made.shed_rows == len(gone)
        for index in gone:
            del self.rows[index]
        if (self.max_rows, self.max_lag) != (None, None):
            self.shed += len(gone)
        if self.max_lag is not None and version is not None:
            self.newest = version if self.newest is None else max(self.newest, version)
        indexes = sorted(set(self.indexes()) - self.rows.keys())
        assert len(indexes) == count
        self.rows |= {index: Row(version) for index in indexes}

    def call(self, count: int, tags: list[dict[str, int]] | None, keyed: bool) -> tq.BatchMeta | tq.KVBatchMeta:
        if not keyed:
            return self.client.put(batch(count), partition_id=PARTITION, tags=tags, timeout=0)
        keys = [f"k{self.keys + i}" for i in range(count)]
        self.keys += count
        return self.client.kv_batch_put(keys, PARTITION, batch(count), tags, timeout=0)

    def indexes(self) -> list[int]:
        if PARTITION not in self.client.get_partition_list():
            return []
        return [int(index) for index in self.client._store.list_rows(PARTITION).indexes]

    @rule(task=st.sampled_from(TASKS), count=st.integers(1, 4))
    def fetch(self, task: str, count: int) -> None:
        for index in self.client.get_meta(
            "x", count, PARTITION, task_name=task, partial=True, polling_mode=True
        ).global_indexes:
            self.rows[index].given.add(task)

    @rule(task=st.sampled_from(TASKS), count=st.integers(1, 4))
    def claim(self, task: str, count: int) -> None:
        claim = self.client.claim(task, PARTITION, fields="x", batch_size=count, lease_s=600.0)
        for index in claim.meta.global_indexes:
            self.rows[index].claimed.add(task)
        if claim.meta.size:
            self.claims.append((task, claim))

    @rule(data=st.data(), acknowledged=st.booleans())
    def finish(self, data: st.DataObject, acknowledged: bool) -> None:
        if not self.claims:
            return
        task, claim = self.claims.pop(data.draw(st.integers(0, len(self.claims) - 1)))
        (self.client.ack if acknowledged else self.client.nack)(claim)
        for index in claim.meta.global_indexes:
            if index in self.rows:
                self.rows[index].claimed.discard(task)
                if acknowledged:
                    self.rows[index].given.add(task)

    @rule(data=st.data(), count=st.integers(1, 5))
    def clear(self, data: st.DataObject, count: int) -> None:
        if not self.rows:
            return
        chosen = data.draw(st.lists(st.sampled_from(sorted(self.rows)), min_size=1, max_size=count, unique=True))
        self.client.clear_samples(tq.BatchMeta(chosen, PARTITION, session=self.client.session))
        for index in chosen:
            del self.rows[index]

    @rule(data=st.data(), version=st.integers(0, 6))
    def retag(self, data: st.DataObject, version: int) -> None:
        if not self.rows:
            return
        index = data.draw(st.sampled_from(sorted(self.rows)))
        meta = tq.BatchMeta([index], PARTITION, session=self.client.session)
        meta.custom_meta = [{"weight_version": version}]
        self.client.set_custom_meta(meta)
        self.rows[index].version = version
        if self.max_lag is not None:
            self.newest = version if self.newest is None else max(self.newest, version)

    @rule(data=st.data(), count=st.integers(1, 4))
    def overwrite(self, data: st.DataObject, count: int) -> None:
        if not self.rows:
            return
        chosen = data.draw(st.lists(st.sampled_from(sorted(self.rows)), min_size=1, max_size=count, unique=True))
        self.client.put(batch(len(chosen)), metadata=tq.BatchMeta(chosen, PARTITION, session=self.client.session))

    @rule(task=st.none() | st.sampled_from(TASKS))
    def reset(self, task: str | None) -> None:
        self.client.reset_consumption(PARTITION, task)
        for row in self.rows.values():
            for each in TASKS if task is None else (task,):
                row.given.discard(each)
                row.claimed.discard(each)
        self.claims = [(of, claim) for of, claim in self.claims if task is not None and of != task]

    @rule(version=st.integers(0, 6))
    def say_version(self, version: int) -> None:
        self.client.set_weight_version(PARTITION, version)
        if self.max_lag is not None:
            self.newest = version

    @rule()
    def clear_all(self) -> None:
        self.client.clear_partition(PARTITION)
        self.rows, self.claims, self.newest, self.shed = {}, [], None, 0

    @invariant()
    def accounts_agree(self) -> None:
        self.client._store.check()
        assert self.indexes() == sorted(self.rows)
        held = self.client.get_limits(PARTITION)
        assert held.shed_rows == self.shed
        if PARTITION not in self.client.get_partition_list():
            return
        counted = (self.max_rows, self.max_lag) != (None, None)
        assert held.unconsumed_rows == (len(self.waiting()) if counted else None)
        if self.max_lag is not None:
            assert (held.newest_version, held.oldest_version) == (self.newest, self.oldest(self.waiting()))
