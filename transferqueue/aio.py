"""The asynchronous face, derived from the blocking one.

``async_put = asynchronous(put)``: the blocking method runs in a thread of the client's pool, so the event loop stays
free. A method that may wait (`transferqueue.waiting.blocking`) leaves the pool while it waits: one notifier
thread per client sleeps on the session's wake word for all of them and completes their futures. Futures belong to the
loop that made the call, so one client serves any number of loops, one after another or at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import os
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from transferqueue.errors import ClosedError, TransferQueueError
from transferqueue.logs import get_logger
from transferqueue.waiting import SLICE_S, Away, Sleep, Steps, version_of, word_of

if TYPE_CHECKING:
    from transferqueue._native import Store

P = ParamSpec("P")
R = TypeVar("R")
Self = TypeVar("Self")
_log = get_logger("aio")
_IDLE_S = 5.0
_LONG_STEP_S = 0.002
_MOST_AWAY = 64


def asynchronous(method: Callable[Concatenate[Self, P], R]) -> Callable[Concatenate[Self, P], Coroutine[Any, Any, R]]:
    """The asynchronous form of a client's blocking method: same arguments, result and errors."""
    steps = getattr(method, "__steps__", None)

    @functools.wraps(method)
    async def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        runner: AsyncRunner = self._async_runner
        if steps is None:
            return await runner.run(functools.partial(method, self, *args, **kwargs))
        return await runner.run_steps(steps(self, *args, **kwargs))

    call.__name__ = f"async_{method.__name__}"
    call.__qualname__ = method.__qualname__.replace(method.__name__, call.__name__)
    call.__doc__ = f"`{method.__name__}` for asyncio.\n\n{inspect.cleandoc(method.__doc__ or '')}"
    # What wraps() copied would make the async form look like another blocking one with steps.
    call.__dict__.pop("__steps__", None)
    return call


class AsyncRunner:
    """One client's thread pool and notifier, made on first use and made anew in a forked child."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._guard = threading.Lock()
        self._pid = os.getpid()
        self._pool: _Pool | None = None
        self._notifier: Notifier | None = None
        self._closed = False

    async def run(self, call: Callable[[], R]) -> R:
        """A blocking call in the pool."""
        pool, _ = self._parts()
        _, result = await _in_pool(pool, lambda: (None, call()))
        return result  # type: ignore[no-any-return]

    async def run_steps(self, steps: Steps[R]) -> R:
        """Steps in the pool, waiting outside it."""
        pool, _ = self._parts()
        step = functools.partial(_next_step, steps)
        sleep, result = await _in_pool(pool, step)
        while sleep is not None:
            pool, notifier = self._parts()
            if isinstance(sleep, Away):
                sleep, result = await _in_pool(pool, step, away=sleep)
            else:
                sleep, result = await notifier.step_after(sleep, pool, step)
        return result  # type: ignore[no-any-return]

    def close(self) -> None:
        """Wakes all waiters and ends the threads. Calls that run finish. Idempotent."""
        with self._guard:
            self._closed = True
            pool, self._pool = self._pool, None
            notifier, self._notifier = self._notifier, None
            forked = self._pid != os.getpid()
        if forked:
            return
        if notifier is not None:
            notifier.close()
        if pool is not None:
            pool.close()

    def _parts(self) -> tuple[_Pool, Notifier]:
        if self._pid != os.getpid():
            # Threads do not survive a fork, and the lock may have been held by one of them.
            self._guard = threading.Lock()
            self._pool = self._notifier = None
            self._pid = os.getpid()
        with self._guard:
            if self._closed:
                raise ClosedError("this client was closed; get another one with transferqueue.get_client()")
            if self._pool is None or self._notifier is None:
                self._pool = _Pool()
                self._notifier = Notifier(self._store)
            return self._pool, self._notifier


class _Pool:
    """Threads that take the steps of asynchronous calls: one, and others while that one is at a long step.

    Steps are mostly Python, and several threads only take the interpreter from each other: 200 tasks that put rows of
    20 fields got 2,950 rows a second done by one thread, 1,820 by six. Long ones copy much without it.
    """

    def __init__(self) -> None:
        self._first = ThreadPoolExecutor(1, thread_name_prefix="transferqueue-async")
        self._others = ThreadPoolExecutor((os.cpu_count() or 1) + 4, thread_name_prefix="transferqueue-async")
        self._away: ThreadPoolExecutor | None = None  # made when another node is first asked
        self._began_s: float | None = None  # the first thread's step

    def submit(self, step: Callable[[], R]) -> Future[R]:
        """RuntimeError after `close`."""
        began_s = self._began_s
        if began_s is not None and time.monotonic() - began_s > _LONG_STEP_S:
            return self._others.submit(step)
        return self._first.submit(self._in_first, step)

    def submit_away(self, step: Callable[[], R]) -> Future[R]:
        """A step that asks other nodes first: it sleeps most of its time, and many may do so at once."""
        away = self._away
        if away is None:
            away = self._away = ThreadPoolExecutor(_MOST_AWAY, thread_name_prefix="transferqueue-away")
        return away.submit(step)

    def _in_first(self, step: Callable[[], R]) -> R:
        self._began_s = time.monotonic()
        try:
            return step()
        finally:
            self._began_s = None

    def close(self) -> None:
        """Steps that run or wait are taken; no further ones."""
        self._first.shutdown(wait=False)
        self._others.shutdown(wait=False)
        if self._away is not None:
            self._away.shutdown(wait=False)


def _next_step(steps: Steps[Any]) -> tuple[Sleep | Away[Any] | None, Any]:
    try:
        return next(steps), None
    except StopIteration as end:
        return None, end.value  # a StopIteration cannot pass through a future


Outcome = tuple["Sleep | Away[Any] | None", Any]


async def _in_pool(pool: _Pool, step: Callable[[], Outcome], away: Away[Any] | None = None) -> Outcome:
    job = pool.submit(step) if away is None else pool.submit_away(functools.partial(_after, away, step))
    return await _outcome_of(asyncio.wrap_future(job), job.cancel)


def _after(away: Away[Any], step: Callable[[], Outcome]) -> Outcome:
    away.make()
    return step()


async def _outcome_of(future: asyncio.Future[Outcome], withdraw: Callable[[], bool]) -> Outcome:
    """What a step that another thread takes comes to.

    A call that is cancelled before the step begins is withdrawn. Once it runs it may be past its commit: then the
    cancellation waits for it and, where it was the last step, comes too late. The call returns what it did, so that
    rows that a task has consumed, for instance, are not lost.
    """
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        if withdraw():
            raise
        while not future.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([future])
        if future.cancelled() or future.exception() is not None:
            raise
        sleep, _ = future.result()
        task = asyncio.current_task()
        if sleep is not None or task is None:
            raise
        uncancel = getattr(task, "uncancel", None)  # Python 3.11
        if uncancel is not None:
            uncancel()
        return future.result()


class _Waiter:
    """A call that sleeps, and the step that follows."""

    def __init__(self, sleep: Sleep, pool: _Pool, step: Callable[[], Outcome]) -> None:
        self.sleep = sleep
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Outcome] = self.loop.create_future()
        self._pool = pool
        self._step = step
        self._guard = threading.Lock()
        self._begun = self._withdrawn = False
        now_s = time.monotonic()
        until_s = now_s + sleep.longest_s
        self.until_s = until_s if sleep.until_s is None else min(until_s, sleep.until_s)

    def wake(self) -> None:
        """Has the step taken in the pool: from here and not by way of the loop, which would wake two threads more."""
        try:
            self._pool.submit(self.take_step)
        except RuntimeError:  # the pool was shut down
            self._complete(error=ClosedError("this client was closed while the call waited"))

    def take_step(self) -> None:
        """Takes the step in this thread and hands its outcome to the loop."""
        with self._guard:
            if self._withdrawn:
                return
            self._begun = True
        try:
            outcome = self._step()
        except BaseException as error:
            self._complete(error=error)
        else:
            self._complete(outcome)

    def withdraw(self) -> bool:
        """The call was cancelled: no step begins from now on. False when it has begun."""
        with self._guard:
            self._withdrawn = not self._begun
            return self._withdrawn

    def _complete(self, outcome: Outcome | None = None, error: BaseException | None = None) -> None:
        def complete() -> None:
            if self.future.done():
                return
            if error is not None:
                self.future.set_exception(error)
            else:
                assert outcome is not None
                self.future.set_result(outcome)

        with contextlib.suppress(RuntimeError):  # its loop was closed: nobody waits any more
            self.loop.call_soon_threadsafe(complete)


class Notifier:
    """One thread that sleeps for all asynchronous waiters of a client. Without waiters it ends after some seconds."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._changed = threading.Condition()
        self._waiters: set[_Waiter] = set()
        self._thread: threading.Thread | None = None
        self._closed = False

    async def step_after(self, sleep: Sleep, pool: _Pool, step: Callable[[], Outcome]) -> Outcome:
        """When the sleep is over, takes `step` in the pool and returns its outcome."""
        waiter = _Waiter(sleep, pool, step)
        with self._changed:
            if not self._closed:
                self._waiters.add(waiter)
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name="transferqueue-notifier", daemon=True)
                    self._thread.start()
                self._changed.notify()
            ours = self._closed
        try:
            # The word may have moved between the look and our registration, with the notifier asleep already.
            if not ours and word_of(self._store, sleep.partition) != sleep.seen:
                # Whoever takes the waiter out of the set wakes it: the notifier, or we.
                with self._changed:
                    ours = waiter in self._waiters
                    self._waiters.discard(waiter)
            if ours:
                waiter.wake()
            return await _outcome_of(waiter.future, waiter.withdraw)
        finally:
            with self._changed:
                self._waiters.discard(waiter)

    def close(self) -> None:
        """Wakes everybody and ends the thread."""
        with self._changed:
            self._closed = True
            waiters, self._waiters = self._waiters, set()
            self._changed.notify()
        for waiter in waiters:
            waiter.wake()

    def _run(self) -> None:
        next_tick_s = 0.0
        while True:
            with self._changed:
                if not self._waiters and not self._closed:
                    self._changed.wait(_IDLE_S)
                if self._closed or not self._waiters:
                    self._thread = None
                    return
                waiting = list(self._waiters)
            now_s = time.monotonic()
            tick = now_s >= next_tick_s
            if tick:
                next_tick_s = now_s + SLICE_S
            try:
                # Before the waiters are looked at: a commit from here on ends the sleep below at once.
                seen = self._store.wake_word(None)
                due = _due(self._store, waiting, now_s, look_at_versions=tick)
                if due:
                    with self._changed:
                        due = [waiter for waiter in due if waiter in self._waiters]
                        self._waiters.difference_update(due)
                        alone = bool(due) and not self._waiters
                        if alone:
                            self._thread = None  # who registers meanwhile starts another: a step may copy for long
                    for waiter in due[1:] if alone else due:
                        waiter.wake()
                    if alone:
                        # Nobody else to listen for: one thread less to wake on the way to the waiter.
                        due[0].take_step()
                        with self._changed:
                            if self._thread is not None:
                                return
                            self._thread = threading.current_thread()
                    continue
                left_s = min(waiter.until_s for waiter in waiting) - now_s
                self._store.wait_word(None, seen, max(0.0, min(SLICE_S, left_s)))
            except (TransferQueueError, OSError) as error:
                # Closed or ended: whoever waits looks again and gets the error where the caller can see it.
                _log.debug("notifier stops: %s", error)
                with self._changed:
                    self._thread = None
                    waiters, self._waiters = self._waiters, set()
                for waiter in waiters:
                    waiter.wake()
                return


def _due(store: Store, waiting: list[_Waiter], now_s: float, *, look_at_versions: bool) -> list[_Waiter]:
    words: dict[str | None, int | None] = {}
    versions: dict[str, int] = {}
    due = []
    for waiter in waiting:
        sleep, partition = waiter.sleep, waiter.sleep.partition
        if partition not in words:
            words[partition] = word_of(store, partition)
        if now_s >= waiter.until_s or words[partition] != sleep.seen:
            due.append(waiter)
        elif look_at_versions and partition is not None:
            if partition not in versions:
                versions[partition] = version_of(store, partition)
            if versions[partition] != sleep.version:
                due.append(waiter)
    return due
