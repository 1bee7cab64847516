"""Forced interleavings: a call that stops at a named point of the native core, in a thread or in another process."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any, Generic, TypeVar

import transferqueue as tq
from tests.support.sessions import wait_for
from tests.support.space import is_settled
from transferqueue import TransferQueueClient, _native

R = TypeVar("R")


class Call(Generic[R]):
    """A call in a thread of its own."""

    def __init__(self, function: Callable[..., R], *arguments: Any, **options: Any) -> None:
        self._result: R | None = None
        self._error: BaseException | None = None

        def run() -> None:
            try:
                self._result = function(*arguments, **options)
            except BaseException as error:
                self._error = error

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()

    def done(self) -> bool:
        return not self._thread.is_alive()

    def result(self) -> R:
        """What it returned; raises what it raised."""
        self._thread.join(60)
        assert self.done(), "the call did not return within 60 s"
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]


@contextmanager
def stopped(point: str, function: Callable[..., R], *arguments: Any, **options: Any) -> Iterator[Call[R]]:
    """`function` is called in a thread and stands at the point (``name[:passes before]``) inside the block; it goes on
    at the block's end."""
    name, _, after = point.partition(":")
    _native.arm_pause(name, "stop", after=int(after or 0))
    try:
        call = Call(function, *arguments, **options)
        wait_for(lambda: _native.paused(name) or call.done(), what=f"a stop at {name}")
        assert _native.paused(name), f"the call did not pass {point}: {call.result()}"
        yield call
    finally:
        _native.resume(name)


def stop_elsewhere(pipe: Connection, session: str, point: str, deed: Callable[..., Any], *arguments: Any) -> None:
    """Work of a nursery: ``deed(client, *arguments)`` stops at the point, says "paused", goes on when told to, and
    sends what it returned."""
    client = tq.init(session=session).client
    client.get_partition_list()
    with stopped(point, deed, client, *arguments) as call:
        pipe.send("paused")
        pipe.recv()
    try:
        pipe.send(call.result())
    except tq.TransferQueueError as error:
        pipe.send(error)
    tq.close()


def settled(client: TransferQueueClient) -> None:
    """Nothing is pending, retired or leased; every byte has one owner."""
    store = client._store
    tries = 0

    def clean() -> bool:
        nonlocal tries
        tries += 1
        if tries > 2:
            gc.collect()  # slow where torch is loaded
        return is_settled(store)

    wait_for(clean, 10.0, what="the return of everything")
