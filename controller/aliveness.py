"""Looking after ranks between calls."""

from __future__ import annotations

import os
import signal
import threading
import time
import weakref
from collections.abc import Callable
from typing import Literal

from transferqueue.controller import death_alarm
from transferqueue.controller.death_alarm import DeathAlarm
from transferqueue.controller.errors import WorkerDiedError
from transferqueue.controller.rank_set import RankSet
from transferqueue.errors import TransferTimeoutError
from transferqueue.logs import get_logger

OnDeath = Literal["raise", "abort"] | Callable[[WorkerDiedError], object]

_RING_S = 0.5
_FIRST_LOOKS_S = 0.2

logger = get_logger("controller.aliveness")


class AlivenessCheck:
    """A thread that asks once per period for the state of all ranks, until one is dead or the ranks are stopped.

    Args:
        ranks: looked after without being kept alive.
        every_n_seconds: the period.
        on_death: see `WorkerGroup.start_worker_aliveness_check`.
    """

    def __init__(self, ranks: RankSet, every_n_seconds: float, on_death: OnDeath) -> None:
        if every_n_seconds <= 0:
            raise ValueError(f"every_n_seconds must be more than 0, got {every_n_seconds}")
        if not callable(on_death) and on_death not in ("raise", "abort"):
            raise ValueError(f'on_death must be "raise", "abort" or a function of the error, got {on_death!r}')
        self._raises_in_main = on_death == "raise" and death_alarm.prepare()
        self._ranks = weakref.ref(ranks)
        self._period_s = every_n_seconds
        self._on_death = on_death
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="worker-aliveness", daemon=True)
        self._thread.start()

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    def stop(self) -> None:
        """Idempotent. Waits for the thread, unless it is the one that calls."""
        self._stopped.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(self._period_s):
            ranks = self._ranks()
            if ranks is None or ranks.is_stopped:
                return
            noticed = ranks.death is None and ranks.look() is not None
            if ranks.death is not None:
                self._tell(ranks, ranks.death, noticed)
                return
            del ranks  # not kept alive while this waits

    def _tell(self, ranks: RankSet, death: WorkerDiedError, noticed: bool) -> None:
        """`noticed`: by this check and not by a call, whose caller would know already."""
        if callable(self._on_death):
            self._on_death(death)
        elif self._on_death == "abort":
            logger.critical("aborting: %s", death)
            os.kill(os.getpid(), signal.SIGABRT)
        elif noticed:
            logger.error("%s", death)
            if self._raises_in_main:
                self._raise_in_main(DeathAlarm(death, needed=lambda: not ranks.is_death_told))

    def _raise_in_main(self, alarm: DeathAlarm) -> None:
        alarm.post()
        while not self._stopped.wait(_RING_S) and alarm.ring():
            pass


def wait_until_alive(ranks: RankSet, timeout_s: float) -> None:
    """Returns when all ranks live. Raises the death of one that does not, `TransferTimeoutError` naming those that have
    not started after `timeout_s`."""
    deadline_s = time.monotonic() + timeout_s
    while True:
        states = ranks.states()
        death = ranks.look(states)
        if death is not None:
            ranks.check_alive("start_worker_aliveness_check")
        late = [facts for facts, state in zip(ranks.ranks, states, strict=True) if state.state != "alive"]
        if not late:
            return
        if time.monotonic() > deadline_s:
            raise TransferTimeoutError(
                f"{len(late)} of {len(states)} ranks do not live after {timeout_s:g} s: "
                f"{', '.join(facts.text for facts in late)}",
                timeout_s=timeout_s,
                missing=[facts.rank for facts in late],
            )
        time.sleep(_FIRST_LOOKS_S)
