"""The store of a home whose changes are followed by a standby: each is noted in the order of the commits."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from transferqueue.client.core import as_indexes
from transferqueue.codec.stub_schema import is_stub, payload_schema
from transferqueue.errors import CorruptSegmentError
from transferqueue.node_service.effects import CLEARED, GONE, MARKS, ONLY, RESET, TAGS, WEIGHT, Effect, effect_of_rows
from transferqueue.nodes.errors import NotHomeError
from transferqueue.nodes.names import Names, is_hidden

if TYPE_CHECKING:
    from transferqueue._native import FieldLayout, PublishResult, Store

# Claims that run out are not heard of.
_MOST_CLAIMS = 1 << 16


@dataclass
class CurrentCall:
    """What a thread works on.

    Attributes:
        request_id: of the call; its first change is remembered under it.
        names: of the payload that it publishes.
    """

    request_id: bytes = b""
    names: Names | None = None


@dataclass
class PartitionLog:
    """The changes of one partition that its standby has yet to hear of.

    Attributes:
        commits: held while a change is committed and noted, so that the two have one order.
        sends: held while the standby is told.
        epoch: of the home.
        is_over: another node is the home.
        standby: who follows; None: nobody, or not yet.
        is_alone: nobody can follow for now.
        unsent: noted and not sent, or not known to have arrived; `first` is the number of the first of them.
        claims: (task, fencing number) -> rows that a claim holds.
        weights: the version that was said last.
    """

    epoch: int
    commits: threading.RLock = field(default_factory=threading.RLock)
    sends: threading.RLock = field(default_factory=threading.RLock)
    is_over: bool = False
    standby: int | None = None
    is_alone: bool = False
    unsent: list[Effect] = field(default_factory=list)
    first: int = 1
    claims: dict[tuple[str, int], Names] = field(default_factory=dict)
    weights: int | None = None
    generation: int = -1

    @property
    def end(self) -> int:
        """The number that the next change gets."""
        return self.first + len(self.unsent)


class Logs(Protocol):
    """See `Replication`."""

    def log_to_change(self, partition: str) -> PartitionLog:
        """Raises `NotHomeError`."""
        ...


class ReplicatedStore:
    """A `Store` for the calls that a home's agent makes for clients; what is not named here is the store's own.

    Args:
        store: of the node.
        logs: where changes are noted.
    """

    def __init__(self, store: Store, logs: Logs) -> None:
        self._store = store
        self._logs = logs
        self._of_thread = threading.local()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    @contextmanager
    def working_on(self, request_id: bytes, names: Names | None) -> Iterator[None]:
        """What this thread changes meanwhile is of that call."""
        self._of_thread.call = CurrentCall(request_id, names)
        try:
            yield
        finally:
            self._of_thread.call = CurrentCall()

    def publish(
        self,
        partition: str,
        *,
        keys: Sequence[str] | None = None,
        fields: Sequence[FieldLayout] = (),
        tags: Sequence[bytes] = (),
        elsewhere_nbytes: int | None = None,
        **rest: Any,
    ) -> PublishResult:
        with self._changing(partition) as note:
            done = self._store.publish(
                partition, keys=keys, fields=fields, tags=tags, elsewhere_nbytes=elsewhere_nbytes, **rest
            )
            if not all(is_stub(layout.schema) for layout in fields):
                raise CorruptSegmentError(f"partition {partition!r} is kept on two nodes and was given rows of one")
            names = self._call.names if fields else None
            schemas = {layout.name: payload_schema(layout.schema) for layout in fields}
            nbytes = elsewhere_nbytes or 0
            note(effect_of_rows(done.indexes, None if keys is None else list(keys), list(tags), names, nbytes, schemas))
            if done.shed_rows:
                note(Effect(ONLY, as_indexes(self._store.production(partition, [])[1])))
            return done

    def merge_tags(self, partition: str, indexes: Names, tags: Sequence[bytes]) -> None:
        with self._changing(partition) as note:
            self._store.merge_tags(partition, indexes, tags)
            note(Effect(TAGS, indexes, tags=list(tags)))

    def clear_rows(self, partition: str, *, indexes: Names | None = None, keys: Sequence[str] | None = None) -> int:
        with self._changing(partition) as note:
            done = self._store.clear_rows(partition, indexes=indexes, keys=keys)
            if indexes is not None:
                note(Effect(GONE, indexes))
            else:
                note(Effect(GONE, keys=list(keys or ())))
            return done

    def clear_partition(self, partition: str) -> bool:
        with self._changing(partition) as note:
            done = self._store.clear_partition(partition)
            note(Effect(CLEARED))
            return done

    def task_commit(
        self,
        partition: str,
        task: str,
        task_version: int,
        fields: Sequence[str],
        consumed: Names,
        sampler_state: bytes,
        **rest: Any,
    ) -> bool:
        with self._changing(partition) as note:
            done = self._store.task_commit(partition, task, task_version, fields, consumed, sampler_state, **rest)
            if done:
                note(Effect(MARKS, consumed, task=task, state=sampler_state))
            return done

    def task_reset(self, partition: str, task: str | None) -> None:
        with self._changing(partition) as note:
            self._store.task_reset(partition, task)
            note(Effect(RESET, task=task))

    def claim(
        self,
        partition: str,
        task: str,
        task_version: int,
        fields: Sequence[str],
        rows: Names,
        sampler_state: bytes,
        lease_s: float,
        **rest: Any,
    ) -> tuple[int, float] | None:
        with self._changing(partition) as note:
            done = self._store.claim(partition, task, task_version, fields, rows, sampler_state, lease_s, **rest)
            if done is not None:
                claims = self._logs.log_to_change(partition).claims
                claims[task, done[0]] = rows
                if len(claims) > _MOST_CLAIMS:
                    del claims[next(iter(claims))]
                # The claim itself ends with its home, as if it had run out: the call is made anew then.
                self._of_thread.call = CurrentCall(names=self._call.names)
                note(Effect(MARKS, task=task, state=sampler_state))
            return done

    def finish_claim(self, partition: str, task: str, fencing: int, consumed: bool) -> None:
        with self._changing(partition) as note:
            self._store.finish_claim(partition, task, fencing, consumed)
            rows = self._logs.log_to_change(partition).claims.pop((task, fencing), None)
            if consumed and rows is not None:
                note(Effect(MARKS, rows, task=task))
            elif consumed:
                self._logs.log_to_change(partition).standby = None  # it is told everything anew

    def set_weight_version(self, partition: str, version: int) -> bool:
        with self._changing(partition) as note:
            done = self._store.set_weight_version(partition, version)
            self._logs.log_to_change(partition).weights = version
            note(Effect(WEIGHT, number=version))
            return done

    @property
    def _call(self) -> CurrentCall:
        found: CurrentCall | None = getattr(self._of_thread, "call", None)
        return CurrentCall() if found is None else found

    @contextmanager
    def _changing(self, partition: str) -> Iterator[Any]:
        if is_hidden(partition):
            yield lambda effect: None
            return
        log = self._logs.log_to_change(partition)

        def note(effect: Effect) -> None:
            call = self._call
            effect.request_id, call.request_id = call.request_id, b""  # the first one carries it
            log.unsent.append(effect)

        with log.commits:
            if log.is_over:
                raise not_home(partition)
            yield note


def not_home(partition: str) -> NotHomeError:
    """Another node took the place of this one."""
    return NotHomeError(f"this node is not the home of partition {partition!r} any more", partition_id=partition)
