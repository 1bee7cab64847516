"""Claims beside a model of dicts, driven by hypothesis: whatever the order of claims, ends, lapses, departures, resets
and clears, both say the same about every row.

Time is the model's: leases and steps of the clock are whole thousands of seconds, so the seconds that a test takes
decide nothing. A visitor is a second attachment, with a lease file of its own, that comes and leaves.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tensordict import TensorDict

import transferqueue as tq
from transferqueue import TransferQueueClient, _native
from transferqueue.client.core import as_indexes
from transferqueue.storage.attachment import Attachment, attach

PARTITIONS = ["a", "b"]
TASKS = ["s", "t"]
STEP_S = 1000
partitions, tasks, steps = st.sampled_from(PARTITIONS), st.sampled_from(TASKS), st.integers(1, 3)


@dataclass
class Made:
    """A claim that was made, alive or not."""

    claim: tq.Claim
    rows: set[int]
    lapses_at: int
    of_visitor: bool
    over: bool = False


@dataclass
class Part:
    rows: list[int] = field(default_factory=list)
    consumed: dict[str, set[int]] = field(default_factory=lambda: {task: set() for task in TASKS})


class ClaimModel(RuleBasedStateMachine):
    """`client` is set by the test; each example starts and ends with an empty store."""

    client: TransferQueueClient

    def __init__(self) -> None:
        super().__init__()
        self.parts: dict[str, Part] = {}
        self.made: list[Made] = []
        self.now = 0
        self.visitor: Attachment | None = None

    def teardown(self) -> None:
        self._leave()
        for partition in self.client.get_partition_list():
            self.client.clear_partition(partition)
        _native.set_claim_clock_ahead(0)

    # -- help ------------------------------------------------------------------------------------------------------
    def _living(self, partition: str, task: str) -> list[Made]:
        return [
            made
            for made in self.made
            if not made.over and (made.claim.partition_id, made.claim.task_name) == (partition, task)
        ]

    def _free(self, partition: str, task: str) -> list[int]:
        part = self.parts.get(partition, Part())
        taken = part.consumed[task].union(*(made.rows for made in self._living(partition, task)))
        return [row for row in part.rows if row not in taken]

    def _leave(self) -> None:
        if self.visitor is not None:
            self.visitor.detach()
            self.visitor = None
        for made in self.made:
            made.over = made.over or made.of_visitor

    def _end(self, partition: str, task: str | None = None) -> None:
        for made in self.made:
            if made.claim.partition_id == partition and task in (None, made.claim.task_name):
                made.over = True

    def _chosen(self, data: Any) -> Made:
        return data.draw(st.sampled_from(self.made), label="claim")  # type: ignore[no-any-return]

    def _refused(self, made: Made) -> None:
        for call in (self.client.ack, self.client.nack, lambda claim: self.client.extend(claim, STEP_S)):
            with pytest.raises(tq.StaleMetadataError, match=f"claim {made.claim.fencing} of task"):
                call(made.claim)

    # -- what happens ----------------------------------------------------------------------------------------------
    @rule(partition=partitions, count=st.integers(1, 6))
    def put(self, partition: str, count: int) -> None:
        meta = self.client.put(TensorDict({"x": torch.arange(count)}, [count]), partition_id=partition)
        self.parts.setdefault(partition, Part()).rows += meta.global_indexes

    @rule(partition=partitions, task=tasks, count=st.integers(1, 5), lease=steps, partial=st.booleans())
    def claim(self, partition: str, task: str, count: int, lease: int, partial: bool) -> None:
        claim = self.client.claim(
            task, partition, fields="x", batch_size=count, lease_s=lease * STEP_S, partial=partial
        )
        free = self._free(partition, task)
        expected = free[:count] if partial or len(free) >= count else []
        assert claim.meta.global_indexes == expected
        assert bool(claim) == bool(expected)
        if expected:
            self.made.append(Made(claim, set(expected), self.now + lease, of_visitor=False))
        else:
            self.client.ack(claim)

    @rule(partition=partitions, task=tasks, count=st.integers(1, 5), lease=steps)
    def claim_elsewhere(self, partition: str, task: str, count: int, lease: int) -> None:
        if self.visitor is None:
            self.visitor = attach(self.client.session)
        snapshot = self.visitor.store.task_snapshot(partition, task, ["x"])
        free = self._free(partition, task)
        assert snapshot.ready.tolist() == free
        rows = as_indexes(free[:count])
        version, state = snapshot.task_version, snapshot.sampler_state
        granted = self.visitor.store.claim(partition, task, version, ["x"], rows, state, lease * STEP_S)
        assert (granted is not None) == snapshot.partition_found
        if granted is not None and len(rows):
            meta = tq.BatchMeta(rows.tolist(), [partition] * len(rows))
            claim = tq.Claim(meta, task, partition, granted[0], lease * STEP_S, granted[1])
            self.made.append(Made(claim, set(rows.tolist()), self.now + lease, of_visitor=True))

    @rule(partition=partitions, task=tasks, count=st.integers(1, 5))
    def fetch(self, partition: str, task: str, count: int) -> None:
        free = self._free(partition, task)
        meta = self.client.get_meta("x", count, partition, task_name=task, polling_mode=True)
        assert meta.global_indexes == (free[:count] if len(free) >= count else [])
        if meta.size:
            self.parts[partition].consumed[task] |= set(meta.global_indexes)

    @precondition(lambda self: self.made)
    @rule(data=st.data(), acknowledge=st.booleans())
    def finish(self, data: Any, acknowledge: bool) -> None:
        made = self._chosen(data)
        if made.over:
            return self._refused(made)
        if acknowledge:
            self.client.ack(made.claim)
            self.parts[made.claim.partition_id].consumed[made.claim.task_name] |= made.rows
        else:
            self.client.nack(made.claim)
        made.over = True
        return self._refused(made)

    @precondition(lambda self: self.made)
    @rule(data=st.data(), lease=steps)
    def extend(self, data: Any, lease: int) -> None:
        made = self._chosen(data)
        if made.over:
            return self._refused(made)
        self.client.extend(made.claim, lease * STEP_S)
        assert made.claim.lease_s == lease * STEP_S
        made.lapses_at = self.now + lease
        made.of_visitor = False
        return None

    @rule(by=steps)
    def time_passes(self, by: int) -> None:
        self.now += by
        _native.set_claim_clock_ahead(self.now * STEP_S)
        for made in self.made:
            made.over = made.over or made.lapses_at <= self.now

    @rule()
    def the_visitor_leaves(self) -> None:
        self._leave()

    @rule()
    def the_service_looks(self) -> None:
        self.client._store.drop_claims()
        assert self.client._store.drop_claims() == 0

    @rule(partition=partitions, task=st.none() | tasks)
    def reset(self, partition: str, task: str | None) -> None:
        assert self.client.reset_consumption(partition, task)
        self._end(partition, task)
        for name in TASKS if task is None else [task]:
            self.parts.get(partition, Part()).consumed[name].clear()

    @precondition(lambda self: any(part.rows for part in self.parts.values()))
    @rule(data=st.data())
    def clear_rows(self, data: Any) -> None:
        partition = data.draw(st.sampled_from([name for name, part in self.parts.items() if part.rows]))
        rows = data.draw(st.lists(st.sampled_from(self.parts[partition].rows), min_size=1, max_size=4, unique=True))
        self.client.clear_samples(tq.BatchMeta(rows, [partition] * len(rows)))
        self.parts[partition].rows = [row for row in self.parts[partition].rows if row not in rows]

    @rule(partition=partitions)
    def clear_partition(self, partition: str) -> None:
        self.client.clear_partition(partition)
        self._end(partition)
        self.parts.pop(partition, None)

    # -- what must be so -------------------------------------------------------------------------------------------
    @invariant()
    def both_say_the_same(self) -> None:
        for partition in PARTITIONS:
            part = self.parts.get(partition)
            for task in TASKS:
                found, rows, marks = self.client._store.consumption(partition, task)
                assert found == (part is not None)
                if part is None:
                    continue
                assert rows.tolist() == part.rows
                assert marks.tolist() == [int(row in part.consumed[task]) for row in part.rows]
                snapshot = self.client._store.task_snapshot(partition, task, ["x"])
                assert snapshot.ready.tolist() == self._free(partition, task)
                living = self._living(partition, task)
                assert set(snapshot.claimed.tolist()) == set().union(*(made.rows for made in living))
                soonest = min((made.lapses_at for made in living), default=None)
                assert (snapshot.next_lapse_s is None) == (soonest is None)
                if soonest is not None and snapshot.next_lapse_s is not None:
                    assert 0 <= (soonest - self.now) * STEP_S - snapshot.next_lapse_s < STEP_S
