"""Calls that may wait, written once.

Such a call is a generator that yields a `Sleep` whenever it has to wait and goes on when woken. Here is how a thread
drives one: it sleeps on the futex word. `transferqueue.aio` drives the same generator without a thread per call.
"""

from __future__ import annotations

import functools
import inspect
import math
import numbers
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, cast

from transferqueue.errors import PartitionNotFoundError, TransferQueueError

if TYPE_CHECKING:
    from transferqueue._native import Store

P = ParamSpec("P")
R = TypeVar("R")
Self = TypeVar("Self")

# The longest native sleep on the session's word: signals (Ctrl-C) are seen in between. On the word of a partition the
# slices are native: there the partition's version is compared, too, by which a sleeper notices a producer that died
# between its commit and its wake-up.
SLICE_S = 0.1
# After this the condition itself is looked at again, whatever words and versions say.
LOOK_AGAIN_S = 5.0
LEAST_LOCK_S = 1.0


@dataclass(frozen=True)
class Sleep:
    """Until something may have changed: taken *before* the condition is looked at, so that no change is missed.

    Attributes:
        partition: whose wake word to sleep on; None: the session's, which every commit bumps.
        seen: the word's value when the condition was looked at.
        version: the partition's version then.
        until_s: monotonic time of the deadline, None without one.
        longest_s: look again after this many seconds in any case.
    """

    partition: str | None
    seen: int
    version: int
    until_s: float | None
    longest_s: float = LOOK_AGAIN_S

    @classmethod
    def before_look(
        cls, store: Store, partition: str | None, until_s: float | None, longest_s: float = LOOK_AGAIN_S
    ) -> Sleep:
        """To be made before the condition is looked at."""
        word = None if partition is None else word_of(store, partition)
        if partition is not None and word is not None:
            return cls(partition, word, version_of(store, partition), until_s, longest_s)
        # No such partition yet: its creation is a commit, which bumps the session's word.
        return cls(None, store.wake_word(None), 0, until_s, longest_s)


def word_of(store: Store, partition: str | None) -> int | None:
    """The wake word's value; None when there is no partition of that name."""
    try:
        return store.wake_word(partition)
    except PartitionNotFoundError:
        return None


def version_of(store: Store, partition: str) -> int:
    """The partition's version; 0 when there is none of that name."""
    try:
        return store.partition_version(partition)
    except PartitionNotFoundError:
        return 0


class Away(Generic[R]):
    """A blocking call that a step hands over to whoever drives the steps: it asks other nodes and may take long. In a
    thread the driver makes it there; for asyncio in a pool of its own, so that steps of other calls are not kept from
    theirs."""

    __slots__ = ("_call", "_error", "_result")

    def __init__(self, call: Callable[[], R]) -> None:
        self._call = call
        self._result: R | None = None
        self._error: BaseException | None = None

    def make(self) -> None:
        """Makes the call; what comes of it, errors too, is kept for `outcome`."""
        try:
            self._result = self._call()
        except BaseException as error:  # for the steps, which may have to undo something
            self._error = error

    def outcome(self) -> R:
        """What the call returned or raised."""
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        return cast(R, self._result)


Steps = Generator["Sleep | Away[Any]", None, R]


def away(call: Callable[[], R]) -> Steps[R]:
    """Steps that make one blocking call, see `Away`."""
    job = Away(call)
    yield job
    return job.outcome()


def deadline(timeout_s: float | None) -> float | None:
    """Monotonic time at which `timeout_s` is over; None for never.

    Raises:
        TypeError: not a number.
        ValueError: negative, or NaN.
    """
    if timeout_s is None:
        return None
    if not isinstance(timeout_s, numbers.Real):
        raise TypeError(f"timeout must be seconds or None, not {timeout_s!r}")
    if not timeout_s >= 0:
        raise ValueError(f"timeout must be seconds >= 0, or None to wait for ever; not {timeout_s!r}")
    try:
        return time.monotonic() + float(timeout_s)
    except OverflowError:  # of an int
        return math.inf


def is_over(until_s: float | None) -> bool:
    """Whether a deadline has passed."""
    return until_s is not None and time.monotonic() >= until_s


def lock_timeout(until_s: float | None) -> float | None:
    """Seconds that a call with this deadline waits for a lock of the session; None: as long as calls without one do.

    Locks are free within microseconds unless their holder is stopped. A call that is not meant to wait for rows or for
    room (a timeout of 0) waits a moment for a lock all the same.
    """
    return None if until_s is None else max(LEAST_LOCK_S, until_s - time.monotonic())


def wait_until(
    store: Store,
    partition: str | None,
    until_s: float | None,
    look: Callable[[], R | None],
    too_late: Callable[[], TransferQueueError],
    longest_s: float = LOOK_AGAIN_S,
    changes_in_s: Callable[[], float | None] = lambda: None,
) -> Steps[R]:
    """Steps that end with the first result of `look` that is not None.

    `look` is called at once, after each change, and once more after the deadline: a caller that was kept from running
    (a busy event loop) must not be told of a timeout when what it waits for is there. It is also called every
    `longest_s` seconds, for what nobody is woken for, and when the seconds are over that `changes_in_s` gave after a
    look: then what it saw is different without a commit (a lease ran out).

    Raises:
        what `too_late` makes: the deadline passed.
    """
    began_s: float | None = None
    while True:
        over = is_over(until_s)
        sleep = Sleep.before_look(store, partition, until_s, longest_s)
        result = look()
        if result is not None:
            if began_s is not None:
                store.count_wait(time.monotonic() - began_s, for_room=False, timed_out=False)
            return result
        if over or is_over(until_s):
            if began_s is not None:  # else nobody waited: a timeout of 0 asks for one look
                store.count_wait(time.monotonic() - began_s, for_room=False, timed_out=True)
            raise too_late()
        if began_s is None:
            began_s = time.monotonic()
        soon_s = changes_in_s()
        yield sleep if soon_s is None else replace(sleep, longest_s=min(sleep.longest_s, soon_s))


def sleep_here(store: Store, sleep: Sleep) -> None:
    """Blocks this thread until the sleep is over."""
    started_s = time.monotonic()
    while True:
        now_s = time.monotonic()
        left_s = started_s + sleep.longest_s - now_s
        if sleep.until_s is not None:
            left_s = min(left_s, sleep.until_s - now_s)
        if left_s <= 0:
            return
        try:
            if sleep.partition is None:
                changed = store.wait_word(None, sleep.seen, min(SLICE_S, left_s))
            else:
                changed = store.wait_change(sleep.partition, sleep.seen, sleep.version, left_s)
        except PartitionNotFoundError:
            return  # cleared meanwhile: that is a change
        if changed:
            return


def run_steps(store: Store, steps: Steps[R]) -> R:
    """Runs steps in this thread, asleep in between."""
    while True:
        try:
            sleep = next(steps)
        except StopIteration as end:
            return cast(R, end.value)
        if isinstance(sleep, Away):
            sleep.make()
        else:
            sleep_here(store, sleep)


def blocking(steps: Callable[Concatenate[Self, P], Steps[R]]) -> Callable[Concatenate[Self, P], R]:
    """A method of a client from a generator method that yields `Sleep`s. `asynchronous` finds the steps again."""

    @functools.wraps(steps)
    def method(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return run_steps(self._store, steps(self, *args, **kwargs))

    method.__steps__ = steps  # type: ignore[attr-defined]
    # What the caller gets is the result of the steps, and `help` should say so.
    signature = inspect.signature(steps)
    returned = str(signature.return_annotation).removeprefix("Steps[").removesuffix("]")
    method.__annotations__ = {**steps.__annotations__, "return": returned}
    method.__signature__ = signature.replace(return_annotation=returned)  # type: ignore[attr-defined]
    return method


def steps_of(method: Callable[P, R]) -> Callable[P, Steps[R]]:
    """The steps behind a bound method that `blocking` made, for the steps of another method to take as theirs."""
    return functools.partial(method.__steps__, method.__self__)  # type: ignore[attr-defined]
