"""Who makes the calls of a model: this process, or another one that is told to over a pipe.

What a hand holds (views, allocations, claims) stays with it, under a number, and is looked at where it is.
"""

from __future__ import annotations

import gc
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any

import torch
from tensordict import TensorDict

import transferqueue as tq
from tests.race.model_rows import WIDTH, Expected, batch_of, column, compare
from tests.support.compaction import compact
from tests.support.nursery import Child, Nursery
from transferqueue import BatchMeta, Claim, TransferQueueClient, _native

LEASE_S = 3600.0


def meta_of(partition: str, indexes: Sequence[int]) -> BatchMeta:
    """Metadata as a controller would have kept it: it may name rows that are gone."""
    return BatchMeta(list(indexes), [partition] * len(indexes))


class Hand:
    """In this process. Each method is one call of the client, or a look at what it gave."""

    def __init__(self, client: TransferQueueClient) -> None:
        self.client = client
        self._views: dict[int, tuple[TensorDict, list[Expected]]] = {}
        self._allocations: dict[int, tuple[Any, torch.Tensor | None]] = {}
        self._claims: dict[int, Claim] = {}

    def do(self, what: str, *arguments: Any) -> Any:
        """Raises what the client raises."""
        return getattr(self, f"_{what}")(*arguments)

    # -- puts ------------------------------------------------------------------------------------------------------
    def _put(self, partition: str, names: list[str], numbers: list[int], version: int) -> list[int]:
        return list(self.client.put(batch_of(names, numbers, version), partition_id=partition).global_indexes)

    def _overwrite(
        self, partition: str, indexes: list[int], names: list[str], numbers: list[int], version: int
    ) -> None:
        self.client.put(batch_of(names, numbers, version), metadata=meta_of(partition, indexes))

    def _put_keys(
        self, partition: str, keys: list[str], names: list[str], numbers: list[int], version: int, tagged: bool
    ) -> list[int]:
        batch = batch_of(names, numbers, version) if names else None
        self.client.kv_batch_put(keys, partition, batch, [{"t": version}] * len(keys) if tagged else None)
        return list(self.client.kv_retrieve_meta(keys, partition).global_indexes)

    def _alloc(
        self, at: int, partition: str, keys: list[str] | None, numbers: list[int], version: int, keep: bool
    ) -> None:
        spec = {"x": ((WIDTH,), torch.int64), "y": ((2,), torch.int64)}
        rows: dict[str, Any] = {"batch_size": len(numbers)} if keys is None else {"keys": keys}
        allocation = self.client.alloc(spec, partition_id=partition, **rows)
        for name in spec:
            allocation.data[name].copy_(column(name, numbers, version))
        self._allocations[at] = (allocation, allocation.data["x"] if keep else None)

    def _commit(self, at: int, keys: list[str] | None, partition: str) -> list[int]:
        allocation, kept = self._allocations.pop(at)
        allocation.commit()
        if kept is not None:
            kept.fill_(-1)  # reaches nobody
        meta = allocation.meta if keys is None else self.client.kv_retrieve_meta(keys, partition)
        return list(meta.global_indexes)

    def _abort(self, at: int) -> None:
        allocation, kept = self._allocations.pop(at)
        allocation.abort()
        if kept is not None:
            kept.fill_(-1)
            del allocation, kept
            self.client._store.reap()  # the room is given back by this process's first call after the tensor died

    # -- gets ------------------------------------------------------------------------------------------------------
    def _get(
        self,
        partition: str,
        indexes: list[int],
        names: list[str],
        mode: str,
        expected: list[Expected],
        hold: int | None,
    ) -> None:
        batch = self.client.get_data(meta_of(partition, indexes), fields=names, mode=mode)
        compare(batch, expected)
        if hold is not None:
            self._views[hold] = (batch, expected)

    def _look(self, at: int) -> None:
        compare(*self._views[at])

    def _write(self, at: int) -> None:
        """In place, then dropped."""
        batch, _ = self._views.pop(at)
        for name in ("x", "y"):
            if name in batch.keys():
                batch.get(name).fill_(-7)

    def _drop(self, at: int) -> None:
        del self._views[at]

    def _keep_one_field(self, at: int) -> None:
        batch, expected = self._views[at]
        name = next(iter(batch.keys()))
        self._views[at] = (TensorDict({name: batch.get(name)}, batch.batch_size), expected)

    # -- rows ------------------------------------------------------------------------------------------------------
    def _clear(self, partition: str, indexes: list[int]) -> None:
        self.client.clear_samples(meta_of(partition, indexes))

    def _clear_partition(self, partition: str) -> None:
        self.client.clear_partition(partition)

    def _coalesce(self, partition: str, indexes: list[int], names: list[str]) -> None:
        self.client.coalesce(meta_of(partition, indexes), names)

    def _tag(self, partition: str, indexes: list[int], number: int) -> None:
        meta = meta_of(partition, indexes)
        meta.custom_meta = [{"u": number}] * len(indexes)
        self.client.set_custom_meta(meta)

    def _consume(self, partition: str, task: str, count: int) -> list[int]:
        meta = self.client.get_meta("x", count, partition, task_name=task, polling_mode=True, partial=True)
        return list(meta.global_indexes)

    def _reset(self, partition: str, task: str) -> None:
        self.client.reset_consumption(partition, task)

    def _keep_house(self, what: str) -> None:
        store = self.client._store
        if what == "spill":
            store.spill(1 << 20)  # nothing where the session has no spill file
        elif what == "compact":
            compact(self.client)
        else:
            getattr(store, what)()

    # -- claims ----------------------------------------------------------------------------------------------------
    def _claim(self, at: int, partition: str, task: str, count: int) -> list[int]:
        claim = self.client.claim(task, partition, fields="x", batch_size=count, lease_s=LEASE_S, partial=True)
        if claim:
            self._claims[at] = claim
        return list(claim.meta.global_indexes)

    def _finish(self, at: int, how: str) -> None:
        getattr(self.client, how)(self._claims.pop(at))

    # -- the rest --------------------------------------------------------------------------------------------------
    def _arm(self, point: str) -> None:
        _native.arm_pause(point, "kill")

    def _let_go(self) -> None:
        """Of everything; as at the start of an example."""
        for at in list(self._views):
            self._look(at)
            self._drop(at)
        for at in list(self._allocations):
            self._abort(at)
        self._claims.clear()
        gc.collect()


def serve(pipe: Connection, session: str) -> None:
    """Work of a nursery: does what it is told until the other end is closed."""
    hand = Hand(tq.init(session=session).client)
    while True:
        try:
            what, arguments = pipe.recv()
        except EOFError:
            break
        try:
            answer = (True, hand.do(what, *arguments))
        except (tq.TransferQueueError, AssertionError) as error:
            answer = (False, error.with_traceback(None))  # its frames name what the hand holds
        pipe.send(answer)
    tq.close()


class ElsewhereHand:
    """In a process of its own."""

    def __init__(self, nursery: Nursery, session: str) -> None:
        self.child: Child = nursery.start(serve, session)

    def do(self, what: str, *arguments: Any) -> Any:
        """Raises what the client over there raised."""
        self.begin(what, *arguments)
        done, answer = self.child.receive()
        if not done:
            raise answer
        return answer

    def begin(self, what: str, *arguments: Any) -> None:
        """Without waiting for the answer."""
        self.child.pipe.send((what, arguments))

    def settle(self) -> bool:
        """Waits until its last call has ended (True), or it has (False)."""
        try:
            self.child.receive()
        except (EOFError, ConnectionResetError):
            return False
        return True

    def kill(self) -> None:
        self.child.kill()
        assert self.child.wait() == -9

    def end(self) -> None:
        self.child.pipe.close()
