"""A client beside a model of dicts, driven by hypothesis: whatever the order of calls, both say the same.

Every value follows from (field, row number, version), so a byte of another row, field or version shows. The model has
what a user knows: rows by index with the version of each of their fields, keys, tags, marks of a consumer, the views
and allocations in hand.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tensordict import NonTensorStack, TensorDict

import transferqueue as tq
from tests.race.paused import settled
from transferqueue import BatchMeta, TransferQueueClient

PARTITIONS = ["a", "b"]
KEYS = ["k0", "k1", "k2", "k3"]
FIELDS = ["x", "y", "r", "s"]
WIDTH = 4096  # two rows of x in one piece are viewed, one row is copied


def value(name: str, number: int, version: int) -> Any:
    seed = number * 1009 + version
    if name == "x":
        return torch.arange(WIDTH) + seed
    if name == "y":
        return torch.tensor([seed, -seed])
    if name == "r":
        return torch.full((seed % 5,), float(seed))
    return f"{number}:{version}"


def column(name: str, numbers: list[int], version: int) -> Any:
    values = [value(name, number, version) for number in numbers]
    if name == "r":
        return torch.nested.nested_tensor(values, layout=torch.jagged)
    return NonTensorStack(*values) if name == "s" else torch.stack(values)


def same(name: str, found: Any, number: int, version: int) -> bool:
    expected = value(name, number, version)
    return bool(found == expected) if name == "s" else torch.equal(found, expected)


@dataclass
class Row:
    index: int
    number: int
    key: str | None = None
    versions: dict[str, int] = field(default_factory=dict)
    tags: dict[str, int] = field(default_factory=dict)


@dataclass
class Held:
    batch: TensorDict
    expected: list[tuple[int, dict[str, int]]]  # number and versions of each row
    writable: bool


@dataclass
class Open:
    """An allocation in hand, and what it will store."""

    partition: str
    allocation: Any
    numbers: list[int]
    keys: list[str] | None
    version: int
    kept: torch.Tensor | None


class ClientModel(RuleBasedStateMachine):
    """`client` is set by the test; each example starts and ends with an empty store."""

    client: TransferQueueClient
    _task = 0

    def __init__(self) -> None:
        super().__init__()
        self.rows: dict[str, dict[int, Row]] = {}
        self.gone: dict[str, list[int]] = {}
        self.held: list[Held] = []
        self.open: list[Open] = []
        self.consumed: dict[str, set[int]] = {}
        self.counter = 0
        # Marks of a cleared partition die with it; another name for each example keeps them apart all the same.
        ClientModel._task += 1
        self.task = f"task {ClientModel._task}"

    def teardown(self) -> None:
        while self.held:  # no name of this frame may keep a view
            self._look_at(self.held.pop())
        while self.open:
            self.open.pop().allocation.abort()
        for partition in self.client.get_partition_list():
            self.client.clear_partition(partition)
        settled(self.client)
        assert self.client.stats().used_bytes == 0

    # -- help ------------------------------------------------------------------------------------------------------
    def _next(self) -> int:
        self.counter += 1
        return self.counter

    def _chosen(self, data: Any, partition: str, least: int = 1) -> list[Row]:
        rows = list(self.rows[partition].values())
        return data.draw(  # type: ignore[no-any-return]
            st.lists(st.sampled_from(rows), min_size=least, max_size=6, unique_by=lambda row: row.index)
        )

    def _meta(self, partition: str, rows: list[Row]) -> BatchMeta:
        """Metadata of the rows, as a controller would have kept it: it may name rows that are gone."""
        indexes = [row.index for row in rows]
        return BatchMeta(indexes, [partition] * len(indexes))

    def _store(
        self, partition: str, indexes: list[int], numbers: list[int], keys: list[str] | None = None
    ) -> list[Row]:
        rows = self.rows.setdefault(partition, {})
        made = []
        for at, index in enumerate(indexes):
            if index not in rows:
                assert all(index not in seen for seen in self.gone.values()), "an index was used again"
                assert all(index not in other for other in self.rows.values()), "an index in two partitions"
                rows[index] = Row(index, numbers[at], None if keys is None else keys[at])
            made.append(rows[index])
        return made

    def _key_rows(self, partition: str, keys: list[str]) -> list[Row | None]:
        by_key = {row.key: row for row in self.rows.get(partition, {}).values() if row.key is not None}
        return [by_key.get(key) for key in keys]

    def _remove(self, partition: str, rows: list[Row]) -> None:
        for row in rows:
            del self.rows[partition][row.index]
            self.gone.setdefault(partition, []).append(row.index)
            self.consumed.get(partition, set()).discard(row.index)

    def _look_at(self, held: Held) -> None:
        self._compare(held.batch, held.expected)

    @staticmethod
    def _compare(batch: TensorDict, expected: list[tuple[int, dict[str, int]]]) -> None:
        assert batch.batch_size == torch.Size([len(expected)])
        for name in batch.keys():
            got = batch.get(name)
            rows = got.unbind(0) if isinstance(got, torch.Tensor) else got.tolist()
            for found, (number, versions) in zip(rows, expected, strict=True):
                assert same(name, found, number, versions[name]), (name, number, versions[name])

    # -- puts ------------------------------------------------------------------------------------------------------
    @rule(
        partition=st.sampled_from(PARTITIONS),
        count=st.integers(1, 5),
        names=st.lists(st.sampled_from(FIELDS), min_size=1, unique=True),
    )
    def put_new(self, partition: str, count: int, names: list[str]) -> None:
        version = self._next()
        numbers = [self._next() for _ in range(count)]
        batch = TensorDict({name: column(name, numbers, version) for name in names}, [count])
        meta = self.client.put(batch, partition_id=partition)
        for row in self._store(partition, meta.global_indexes, numbers):
            row.versions |= dict.fromkeys(names, version)

    @rule(
        partition=st.sampled_from(PARTITIONS),
        keys=st.lists(st.sampled_from(KEYS), min_size=1, unique=True),
        names=st.lists(st.sampled_from(FIELDS), unique=True),
        tagged=st.booleans(),
    )
    def put_keys(self, partition: str, keys: list[str], names: list[str], tagged: bool) -> None:
        if not names and not tagged:
            return
        version = self._next()
        known = self._key_rows(partition, keys)
        numbers = [row.number if row is not None else self._next() for row in known]
        batch = TensorDict({name: column(name, numbers, version) for name in names}, [len(keys)]) if names else None
        self.client.kv_batch_put(keys, partition, batch, [{"t": version}] * len(keys) if tagged else None)
        indexes = self.client.kv_retrieve_meta(keys, partition).global_indexes
        for row, old in zip(self._store(partition, indexes, numbers, keys), known, strict=True):
            assert old is None or old is row
            row.versions |= dict.fromkeys(names, version)
            if tagged:
                row.tags["t"] = version

    @precondition(lambda self: any(self.rows.values()))
    @rule(data=st.data(), names=st.lists(st.sampled_from(FIELDS), min_size=1, unique=True), stale=st.booleans())
    def overwrite(self, data: Any, names: list[str], stale: bool) -> None:
        """`stale`: together with a row that was cleared, which refuses all of it."""
        partition = data.draw(st.sampled_from([name for name, rows in self.rows.items() if rows]))
        rows, version = self._chosen(data, partition), self._next()
        gone = self.gone.get(partition, [])
        asked = [*rows, Row(data.draw(st.sampled_from(gone)), 0)] if stale and gone else rows
        numbers = [row.number for row in asked]
        batch = TensorDict({name: column(name, numbers, version) for name in names}, [len(asked)])
        if asked is not rows:
            with pytest.raises(tq.StaleMetadataError):
                self.client.put(batch, metadata=self._meta(partition, asked))
            return
        self.client.put(batch, metadata=self._meta(partition, rows))
        for row in rows:
            row.versions |= dict.fromkeys(names, version)

    # -- in place --------------------------------------------------------------------------------------------------
    @rule(
        partition=st.sampled_from(PARTITIONS),
        keys=st.none() | st.lists(st.sampled_from(KEYS), min_size=1, unique=True),
        keep=st.booleans(),
    )
    def allocate(self, partition: str, keys: list[str] | None, keep: bool) -> None:
        version = self._next()
        known = [None, None] if keys is None else self._key_rows(partition, keys)
        numbers = [row.number if row is not None else self._next() for row in known]
        spec = {"x": ((WIDTH,), torch.int64), "y": ((2,), torch.int64)}
        rows: dict[str, Any] = {"batch_size": 2} if keys is None else {"keys": keys}
        allocation = self.client.alloc(spec, partition_id=partition, **rows)
        for name in spec:
            allocation.data[name].copy_(column(name, numbers, version))
        kept = allocation.data["x"] if keep else None
        self.open.append(Open(partition, allocation, numbers, keys, version, kept))

    @precondition(lambda self: self.open)
    @rule(data=st.data(), how=st.sampled_from(["commit", "commit", "abort"]))
    def finish_allocation(self, data: Any, how: str) -> None:
        each = self.open.pop(data.draw(st.integers(0, len(self.open) - 1)))
        if each.keys is not None:
            # Keys cleared and made again meanwhile are other rows with other numbers.
            known = self._key_rows(each.partition, each.keys)
            if [row.number if row else number for row, number in zip(known, each.numbers, strict=True)] != each.numbers:
                how = "abort"
        if how == "abort":
            each.allocation.abort()
        else:
            each.allocation.commit()
            if each.keys is None:
                indexes = each.allocation.meta.global_indexes
            else:
                indexes = self.client.kv_retrieve_meta(each.keys, each.partition).global_indexes
            for row in self._store(each.partition, indexes, each.numbers, each.keys):
                row.versions |= {"x": each.version, "y": each.version}
        if each.kept is not None:
            each.kept.fill_(-1)

    # -- reading ---------------------------------------------------------------------------------------------------
    @precondition(lambda self: any(self.rows.values()))
    @rule(data=st.data(), mode=st.sampled_from(["cow", "shared", "copy"]), hold=st.booleans())
    def get(self, data: Any, mode: str, hold: bool) -> None:
        partition = data.draw(st.sampled_from([name for name, rows in self.rows.items() if rows]))
        rows = self._chosen(data, partition)
        names = data.draw(st.lists(st.sampled_from(FIELDS), min_size=1, unique=True))
        meta = self._meta(partition, rows)
        if any(name not in row.versions for row in rows for name in names):
            with pytest.raises(tq.FieldNotReadyError):
                self.client.get_data(meta, fields=names, mode=mode)
            return
        batch = self.client.get_data(meta, fields=names, mode=mode)
        expected = [(row.number, dict(row.versions)) for row in rows]
        self._compare(batch, expected)
        if hold:
            self.held.append(Held(batch, expected, mode != "shared"))

    @precondition(lambda self: self.held)
    @rule(data=st.data(), action=st.sampled_from(["look", "write", "drop", "keep one field"]))
    def use_held(self, data: Any, action: str) -> None:
        at = data.draw(st.integers(0, len(self.held) - 1))
        held = self.held[at]
        self._look_at(held)
        if action == "write" and held.writable:
            for name in ("x", "y"):
                if name in held.batch.keys():
                    held.batch.get(name).fill_(-7)
            self.held.pop(at)
        elif action == "drop":
            self.held.pop(at)
        elif action == "keep one field":
            name = next(iter(held.batch.keys()))
            held.batch = TensorDict({name: held.batch.get(name)}, held.batch.batch_size)

    @precondition(lambda self: any(self.gone.values()))
    @rule(data=st.data())
    def get_what_was_cleared(self, data: Any) -> None:
        partition = data.draw(st.sampled_from([name for name, indexes in self.gone.items() if indexes]))
        index = data.draw(st.sampled_from(self.gone[partition]))
        with pytest.raises(tq.StaleMetadataError):
            self.client.get_data(self._meta(partition, [Row(index, 0)]), fields=["x"])

    # -- rows ------------------------------------------------------------------------------------------------------
    @precondition(lambda self: any(self.rows.values()))
    @rule(data=st.data())
    def clear(self, data: Any) -> None:
        partition = data.draw(st.sampled_from([name for name, rows in self.rows.items() if rows]))
        rows = self._chosen(data, partition)
        self.client.clear_samples(self._meta(partition, rows))
        self._remove(partition, rows)

    @rule(partition=st.sampled_from(PARTITIONS))
    def clear_partition(self, partition: str) -> None:
        self.client.clear_partition(partition)
        if partition in self.rows:
            self._remove(partition, list(self.rows[partition].values()))
            del self.rows[partition]
            self.consumed.pop(partition, None)

    @precondition(lambda self: any(self.rows.values()))
    @rule(data=st.data())
    def coalesce(self, data: Any) -> None:
        partition = data.draw(st.sampled_from([name for name, rows in self.rows.items() if rows]))
        rows = self._chosen(data, partition)
        names = sorted(set.intersection(*(set(row.versions) for row in rows)))
        if names:
            self.client.coalesce(self._meta(partition, rows), names)

    @precondition(lambda self: any(self.rows.values()))
    @rule(data=st.data())
    def tag(self, data: Any) -> None:
        partition = data.draw(st.sampled_from([name for name, rows in self.rows.items() if rows]))
        rows, value = self._chosen(data, partition), self._next()
        meta = self._meta(partition, rows)
        meta.custom_meta = [{"u": value}] * len(rows)
        self.client.set_custom_meta(meta)
        for row in rows:
            row.tags["u"] = value

    @rule(partition=st.sampled_from(PARTITIONS), count=st.integers(1, 4))
    def consume(self, partition: str, count: int) -> None:
        found = self.client.get_meta("x", count, partition, task_name=self.task, polling_mode=True, partial=True)
        marks = self.consumed.setdefault(partition, set())
        ready = sorted(row.index for row in self.rows.get(partition, {}).values() if "x" in row.versions)
        assert found.global_indexes == [index for index in ready if index not in marks][:count]
        marks.update(found.global_indexes)

    @rule(partition=st.sampled_from(PARTITIONS))
    def reset(self, partition: str) -> None:
        self.client.reset_consumption(partition, self.task)
        self.consumed.pop(partition, None)

    @rule(what=st.sampled_from(["reclaim", "reap", "trim"]))
    def keep_house(self, what: str) -> None:
        getattr(self.client._store, what)()

    # -- always ----------------------------------------------------------------------------------------------------
    @invariant()
    def partitions_rows_and_keys_agree(self) -> None:
        assert set(self.client.get_partition_list()) == set(self.rows)
        for partition, rows in self.rows.items():
            keyed = {row.key: row.tags for row in sorted(rows.values(), key=lambda row: row.index) if row.key}
            assert self.client.kv_list(partition)[partition] == keyed
            status = self.client.get_production_status(FIELDS, partition)
            if status[0] is not None and status[1] is not None:
                ready = [[int(name in rows[index].versions) for name in FIELDS] for index in sorted(rows)]
                assert status[0].tolist() == sorted(rows)
                assert status[1].tolist() == ready

    @invariant()
    def every_byte_has_one_owner(self) -> None:
        stats = self.client._store.stats()
        owned = sum(
            stats[name] for name in ("used_bytes", "pending_bytes", "arena_bytes", "retired_bytes", "free_extent_bytes")
        )
        assert owned == stats["reserved_bytes"]
        assert stats["live_bytes"] <= stats["used_bytes"]
        assert (stats["pending_bytes"] == 0) or self.open
