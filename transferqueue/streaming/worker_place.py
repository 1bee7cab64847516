"""Which of a DataLoader's processes this is, and when it has to stop."""

from __future__ import annotations

import _thread
import multiprocessing
import os
import select
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from torch.utils.data import get_worker_info

from transferqueue.waiting import LOOK_AGAIN_S

# What a loader sets on a worker's copy of the dataset.
STOP_ATTRIBUTE = "_stop_event"
METADATA_ONLY_ATTRIBUTE = "_metadata_only"
_WORKER_LOOK_S = 0.25
# torch's own look, after which a worker ends in order, comes every 5 s.
_ORPHAN_LOOK_S = 1.0
_ORPHAN_GRACE_S = 6.0


@dataclass(frozen=True)
class WorkerPlace:
    """One consumer of the `count` that iterate copies of one dataset; alone it is 0 of 1.

    Attributes:
        index: 0 to count - 1.
        count: processes.
        should_stop: whether nobody wants what would come next. A worker that waits for rows does not see that its
            loader was dropped, nor that the process that would have told it was killed: torch looks between two items.
        look_again_s: how often to ask that; nobody is woken for it.
    """

    index: int = 0
    count: int = 1
    should_stop: Callable[[], bool] = field(default=lambda: False)
    look_again_s: float = LOOK_AGAIN_S

    @classmethod
    def here(cls) -> WorkerPlace:
        """Of the process that calls."""
        info = get_worker_info()
        if info is None:
            return cls()
        parent_is_gone = _watch_parent(os.getpid())
        event = getattr(info.dataset, STOP_ATTRIBUTE, None)

        def should_stop() -> bool:
            return parent_is_gone() or (event is not None and event.is_set())

        return cls(info.id, info.num_workers, should_stop, _WORKER_LOOK_S)


@lru_cache(maxsize=1)  # a descriptor per process, however often it iterates
def _watch_parent(_: int) -> Callable[[], bool]:
    """Whether the process that started this one has ended; it may have before anybody asked. Its pid is known from
    before the start: getppid says who adopted an orphan, and with a fork server never who asked for the process."""
    parent = multiprocessing.parent_process()
    if parent is None or parent.pid is None:
        return lambda: False
    try:
        descriptor = os.pidfd_open(parent.pid)
    except ProcessLookupError:
        return lambda: True
    except OSError:  # a kernel or sandbox without pidfds
        adopted_from = os.getppid()
        return lambda: os.getppid() != adopted_from

    def has_ended() -> bool:
        looked_at = select.poll()  # one a look: two threads may not use the same
        looked_at.register(descriptor, select.POLLIN)
        return bool(looked_at.poll(0))

    return has_ended


def _end_after_parent() -> None:
    """A worker whose loader's process is killed ends. torch sees to that with getppid, which it first asks after the
    worker has begun: a process killed before that leaves workers that wait for ever and keep the session."""
    parent_is_gone = _watch_parent(os.getpid())

    def watch() -> None:
        while not parent_is_gone():
            time.sleep(_ORPHAN_LOOK_S)
        time.sleep(_ORPHAN_GRACE_S)
        _thread.interrupt_main()  # torch ends its loop in order, and the session is left
        time.sleep(_ORPHAN_GRACE_S)
        os._exit(1)

    threading.Thread(target=watch, name="transferqueue-orphan-watch", daemon=True).start()


class WorkerStart:
    """The ``worker_init_fn`` of a loader: hands the worker's copy of the dataset what its wait looks at, and has the
    worker end with its loader's process."""

    def __init__(self, event: Any, metadata_only: bool, worker_init_fn: Callable[[int], None] | None) -> None:
        self._event = event
        self._metadata_only = metadata_only
        self._then = worker_init_fn

    def __call__(self, worker_id: int) -> None:
        _end_after_parent()
        info = get_worker_info()
        assert info is not None  # torch calls this in a worker
        setattr(info.dataset, STOP_ATTRIBUTE, self._event)
        if self._metadata_only:
            setattr(info.dataset, METADATA_ONLY_ATTRIBUTE, True)
        if self._then is not None:
            self._then(worker_id)
