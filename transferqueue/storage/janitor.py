"""Removes a session whose processes were all killed at once.

Under Ray every process of a job may get SIGKILL together, and then nobody is left to be the last one out. The janitor
is a small process outside the job's process group and not a child of any of its processes. It waits until nobody holds
the session's lock, removes the session and exits. It imports neither torch nor Ray.

Of a node's part of a larger session it is the keeper, too: it holds that session for the node's agent, so that an agent
that was killed and is started again finds its rows, although nobody else was attached meanwhile. It gives the hold up
when the agent has been away for too long.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

from transferqueue.logs import get_logger
from transferqueue.own_programs import run_program
from transferqueue.storage.names import SessionPaths
from transferqueue.storage.session_dir import remove_session
from transferqueue.storage.session_lock import SessionLock

_log = get_logger("janitor")
_LOOK_S = 0.5


def ensure_janitor(name: str, *, keep_s: float | None = None) -> bool:
    """Starts the session's janitor unless it has one; the caller is attached. Returns whether one was started.

    Args:
        name: the session's own name, also where it is part of a larger one.
        keep_s: seconds for which the janitor holds a session whose agent died; None: it has no agent.
    """
    paths = SessionPaths.of(name)
    try:
        lock = SessionLock(paths.janitor_lock, create=True)
    except OSError:
        return False  # the session ended
    free = lock.try_exclusive()
    lock.close()
    if not free:
        return False
    # Ended with the starter's group otherwise; its output goes nowhere, since it outlives every terminal.
    environment = {key: value for key, value in os.environ.items() if not key.startswith("TRANSFERQUEUE_")}
    started = run_program(
        "transferqueue.storage.janitor",
        name,
        *([] if keep_s is None else [str(keep_s)]),
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    if started.returncode != 0:
        _log.warning("the janitor of session %r did not start (exit %d)", name, started.returncode)
    return started.returncode == 0


def watch(paths: SessionPaths, lock: SessionLock) -> bool:
    """Waits for the last process to let go and removes the session; False when it was gone by then."""
    lock.wait_exclusive()
    if not lock.is_current():
        return False
    remove_session(paths)
    return True


def keep(paths: SessionPaths, lock: SessionLock, keep_s: float) -> None:
    """Holds the session until its agent has been away for `keep_s` seconds, or the session has ended."""
    while not lock.try_shared():  # somebody looks whether the session is in use, or removes it
        if not lock.is_current():
            return
        time.sleep(_LOOK_S / 10)
    seen_s = time.monotonic()
    while lock.is_current() and time.monotonic() < seen_s + keep_s:
        time.sleep(min(_LOOK_S, keep_s / 4))
        if _agent_lives(paths):
            seen_s = time.monotonic()


def _agent_lives(paths: SessionPaths) -> bool:
    try:
        lock = SessionLock(paths.agent_lock)
    except OSError:
        return False
    try:
        # Shared: of two keepers that look at the same time, neither takes the other for the agent.
        return not lock.try_shared()
    finally:
        lock.close()


def main() -> int:
    """``python -m transferqueue.storage.janitor SESSION [SECONDS]``: returns at once and watches in the background."""
    paths = SessionPaths.of(sys.argv[1])
    try:
        janitor_lock = SessionLock(paths.janitor_lock, create=True)
        # Opened before we return: a session of the same name that is made later is not ours to watch.
        session_lock = SessionLock(paths.lock)
    except OSError:
        return 0
    if not janitor_lock.try_exclusive():
        return 0
    # The descriptions, and with them the lock, pass to the child, which is nobody's child once we exit. (Ray kills the
    # children of a worker that ends.)
    if os.fork():
        os._exit(0)
    os.chdir("/")
    if len(sys.argv) > 2:
        keep(paths, session_lock, float(sys.argv[2]))
        if not session_lock.is_current():
            return 0  # ended by somebody: nothing to wait for
    watch(paths, session_lock)
    return 0


if __name__ == "__main__":
    sys.exit(main())
