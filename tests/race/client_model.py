"""A client beside a model of dicts, driven by hypothesis: whatever the order of calls, both say the same.

The model has what a user knows: rows by index with the version of each of their fields, keys, tags, marks of a
consumer, claims, and the views and allocations in hand. The calls are made by hands: this process here, several
processes in `process_model`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

import transferqueue as tq
from tests.race.hand import ElsewhereHand, Hand
from tests.race.model_rows import FIELDS, Expected
from tests.race.paused import settled
from transferqueue import TransferQueueClient

PARTITIONS = ["a", "b"]
KEYS = ["k0", "k1", "k2", "k3"]
any_hand, partitions = st.integers(0, 2), st.sampled_from(PARTITIONS)
some_fields = st.lists(st.sampled_from(FIELDS), min_size=1, unique=True)


@dataclass
class Row:
    index: int
    number: int
    key: str | None = None
    versions: dict[str, int] = field(default_factory=dict)
    tags: dict[str, int] = field(default_factory=dict)


@dataclass
class Held:
    """Views in a hand."""

    hand: int
    at: int
    writable: bool


@dataclass
class Open:
    """An allocation in a hand, and what it will store."""

    hand: int
    at: int
    partition: str
    numbers: list[int]
    keys: list[str] | None
    version: int


@dataclass
class Claimed:
    """A claim that stands."""

    hand: int
    at: int
    partition: str
    rows: list[int]


class ClientModel(RuleBasedStateMachine):
    """`client` and `hands` are set by the test; each example starts and ends with an empty store."""

    client: TransferQueueClient
    hands: Sequence[Hand | ElsewhereHand]
    _task = 0

    def __init__(self) -> None:
        super().__init__()
        self.rows: dict[str, dict[int, Row]] = {}
        self.gone: dict[str, list[int]] = {}
        self.held: list[Held] = []
        self.open: list[Open] = []
        self.claims: list[Claimed] = []
        self.consumed: dict[str, set[int]] = {}
        self.counter = 0
        # Marks of a cleared partition die with it; another name for each example keeps them apart all the same.
        ClientModel._task += 1
        self.task = f"task {ClientModel._task}"

    def teardown(self) -> None:
        for hand in self.hands:
            hand.do("let_go")
        for partition in self.client.get_partition_list():
            self.client.clear_partition(partition)
        settled(self.client)
        stats = self.client._store.stats()
        assert (stats["used_bytes"], stats["spilled_bytes"]) == (0, 0)

    # -- help ------------------------------------------------------------------------------------------------------
    def _do(self, hand: int, what: str, *arguments: Any) -> Any:
        return self.hands[hand % len(self.hands)].do(what, *arguments)

    def _next(self) -> int:
        self.counter += 1
        return self.counter

    def _filled(self, data: Any) -> str:
        """A partition with rows."""
        return data.draw(  # type: ignore[no-any-return]
            st.sampled_from([name for name, rows in self.rows.items() if rows]), label="partition"
        )

    def _chosen(self, data: Any, partition: str, least: int = 1) -> list[Row]:
        rows = list(self.rows[partition].values())
        return data.draw(  # type: ignore[no-any-return]
            st.lists(st.sampled_from(rows), min_size=least, max_size=6, unique_by=lambda row: row.index), label="rows"
        )

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

    # -- puts ------------------------------------------------------------------------------------------------------
    @rule(hand=any_hand, partition=partitions, count=st.integers(1, 5), names=some_fields)
    def put_new(self, hand: int, partition: str, count: int, names: list[str]) -> None:
        version = self._next()
        numbers = [self._next() for _ in range(count)]
        indexes = self._do(hand, "put", partition, names, numbers, version)
        for row in self._store(partition, indexes, numbers):
            row.versions |= dict.fromkeys(names, version)

    @rule(
        hand=any_hand,
        partition=partitions,
        keys=st.lists(st.sampled_from(KEYS), min_size=1, unique=True),
        names=st.lists(st.sampled_from(FIELDS), unique=True),
        tagged=st.booleans(),
    )
    def put_keys(self, hand: int, partition: str, keys: list[str], names: list[str], tagged: bool) -> None:
        if not names and not tagged:
            return
        version = self._next()
        known = self._key_rows(partition, keys)
        numbers = [row.number if row is not None else self._next() for row in known]
        indexes = self._do(hand, "put_keys", partition, keys, names, numbers, version, tagged)
        self._keys_were_put(partition, keys, names, numbers, version, indexes, tagged)

    def _keys_were_put(
        self,
        partition: str,
        keys: list[str],
        names: list[str],
        numbers: list[int],
        version: int,
        indexes: list[int],
        tagged: bool,
    ) -> None:
        known = self._key_rows(partition, keys)
        for row, old in zip(self._store(partition, indexes, numbers, keys), known, strict=True):
            assert old is None or old is row
            row.versions |= dict.fromkeys(names, version)
            if tagged:
                row.tags["t"] = version

    @precondition(lambda self: any(self.rows.values()))
    @rule(hand=any_hand, data=st.data(), names=some_fields, stale=st.booleans())
    def overwrite(self, hand: int, data: Any, names: list[str], stale: bool) -> None:
        """`stale`: together with a row that was cleared, which refuses all of it."""
        partition = self._filled(data)
        rows, version = self._chosen(data, partition), self._next()
        gone = self.gone.get(partition, [])
        asked = [*rows, Row(data.draw(st.sampled_from(gone)), 0)] if stale and gone else rows
        arguments = [row.index for row in asked], names, [row.number for row in asked], version
        if asked is not rows:
            with pytest.raises(tq.StaleMetadataError):
                self._do(hand, "overwrite", partition, *arguments)
            return
        self._do(hand, "overwrite", partition, *arguments)
        for row in rows:
            row.versions |= dict.fromkeys(names, version)

    # -- in place --------------------------------------------------------------------------------------------------
    @rule(
        hand=any_hand,
        partition=partitions,
        keys=st.none() | st.lists(st.sampled_from(KEYS), min_size=1, unique=True),
        keep=st.booleans(),
    )
    def allocate(self, hand: int, partition: str, keys: list[str] | None, keep: bool) -> None:
        version, at = self._next(), self._next()
        known = [None, None] if keys is None else self._key_rows(partition, keys)
        numbers = [row.number if row is not None else self._next() for row in known]
        self._do(hand, "alloc", at, partition, keys, numbers, version, keep)
        self.open.append(Open(hand, at, partition, numbers, keys, version))

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
            self._do(each.hand, "abort", each.at)
            return
        indexes = self._do(each.hand, "commit", each.at, each.keys, each.partition)
        for row in self._store(each.partition, indexes, each.numbers, each.keys):
            row.versions |= {"x": each.version, "y": each.version}

    # -- reading ---------------------------------------------------------------------------------------------------
    @precondition(lambda self: any(self.rows.values()))
    @rule(
        hand=any_hand,
        data=st.data(),
        names=some_fields,
        mode=st.sampled_from(["cow", "shared", "copy"]),
        hold=st.booleans(),
    )
    def get(self, hand: int, data: Any, names: list[str], mode: str, hold: bool) -> None:
        partition = self._filled(data)
        rows = self._chosen(data, partition)
        expected: list[Expected] = [(row.number, dict(row.versions)) for row in rows]
        at = self._next() if hold else None
        arguments = partition, [row.index for row in rows], names, mode, expected, at
        if any(name not in row.versions for row in rows for name in names):
            with pytest.raises(tq.FieldNotReadyError):
                self._do(hand, "get", *arguments)
            return
        self._do(hand, "get", *arguments)
        if at is not None:
            self.held.append(Held(hand, at, mode != "shared"))

    @precondition(lambda self: self.held)
    @rule(data=st.data(), action=st.sampled_from(["look", "write", "drop", "keep_one_field"]))
    def use_held(self, data: Any, action: str) -> None:
        number = data.draw(st.integers(0, len(self.held) - 1))
        held = self.held[number]
        self._do(held.hand, "look", held.at)
        if action == "look" or (action == "write" and not held.writable):
            return
        self._do(held.hand, action, held.at)
        if action != "keep_one_field":
            self.held.pop(number)

    @precondition(lambda self: any(self.gone.values()))
    @rule(hand=any_hand, data=st.data())
    def get_what_was_cleared(self, hand: int, data: Any) -> None:
        partition = data.draw(st.sampled_from([name for name, indexes in self.gone.items() if indexes]))
        index = data.draw(st.sampled_from(self.gone[partition]))
        with pytest.raises(tq.StaleMetadataError):
            self._do(hand, "get", partition, [index], ["x"], "cow", [], None)

    # -- rows ------------------------------------------------------------------------------------------------------
    @precondition(lambda self: any(self.rows.values()))
    @rule(hand=any_hand, data=st.data())
    def clear(self, hand: int, data: Any) -> None:
        partition = self._filled(data)
        rows = self._chosen(data, partition)
        self._do(hand, "clear", partition, [row.index for row in rows])
        self._remove(partition, rows)

    @rule(hand=any_hand, partition=partitions)
    def clear_partition(self, hand: int, partition: str) -> None:
        self._do(hand, "clear_partition", partition)
        self._claims_end(partition)
        if partition in self.rows:
            self._remove(partition, list(self.rows[partition].values()))
            del self.rows[partition]
            self.consumed.pop(partition, None)

    @precondition(lambda self: any(self.rows.values()))
    @rule(hand=any_hand, data=st.data())
    def coalesce(self, hand: int, data: Any) -> None:
        partition = self._filled(data)
        rows = self._chosen(data, partition)
        names = sorted(set.intersection(*(set(row.versions) for row in rows)))
        if names:
            self._do(hand, "coalesce", partition, [row.index for row in rows], names)

    @precondition(lambda self: any(self.rows.values()))
    @rule(hand=any_hand, data=st.data())
    def tag(self, hand: int, data: Any) -> None:
        partition = self._filled(data)
        rows, value = self._chosen(data, partition), self._next()
        self._do(hand, "tag", partition, [row.index for row in rows], value)
        for row in rows:
            row.tags["u"] = value

    @rule(hand=any_hand, what=st.sampled_from(["reclaim", "reap", "trim", "spill", "compact"]))
    def keep_house(self, hand: int, what: str) -> None:
        self._do(hand, "keep_house", what)

    # -- consumption -----------------------------------------------------------------------------------------------
    def _free(self, partition: str) -> list[int]:
        """Rows that nobody consumed or claimed, in order."""
        taken = self.consumed.get(partition, set()).union(
            *(claim.rows for claim in self.claims if claim.partition == partition)
        )
        ready = sorted(row.index for row in self.rows.get(partition, {}).values() if "x" in row.versions)
        return [index for index in ready if index not in taken]

    def _claims_end(self, partition: str) -> None:
        self.claims = [claim for claim in self.claims if claim.partition != partition]

    @rule(hand=any_hand, partition=partitions, count=st.integers(1, 4))
    def consume(self, hand: int, partition: str, count: int) -> None:
        found = self._do(hand, "consume", partition, self.task, count)
        assert found == self._free(partition)[:count]
        self.consumed.setdefault(partition, set()).update(found)

    @rule(hand=any_hand, partition=partitions, count=st.integers(1, 4))
    def claim(self, hand: int, partition: str, count: int) -> None:
        at = self._next()
        found = self._do(hand, "claim", at, partition, self.task, count)
        assert found == self._free(partition)[:count]
        if found:
            self.claims.append(Claimed(hand, at, partition, found))

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), how=st.sampled_from(["ack", "nack"]))
    def finish_claim(self, data: Any, how: str) -> None:
        claim = self.claims.pop(data.draw(st.integers(0, len(self.claims) - 1)))
        self._do(claim.hand, "finish", claim.at, how)
        if how == "ack":
            self.consumed.setdefault(claim.partition, set()).update(claim.rows)

    @rule(hand=any_hand, partition=partitions)
    def reset(self, hand: int, partition: str) -> None:
        self._do(hand, "reset", partition, self.task)
        self._claims_end(partition)
        self.consumed.pop(partition, None)

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
        on_disk = ("spilled_bytes", "spill_pending_bytes", "spill_retired_bytes", "spill_free_extent_bytes")
        assert sum(stats[name] for name in on_disk) == stats["spill_reserved_bytes"]
        assert stats["live_bytes"] <= stats["used_bytes"]
        assert (stats["pending_bytes"] == 0) or self.open
