"""Removes a session whose processes were all killed at once.

Under Ray every process of a job may get SIGKILL together, and then nobody is left to be the last one out. The janitor
is a small process outside the job's process group and not a child of any of its processes. It waits until nobody holds
the session's lock, removes the session and exits. It imports neither torch nor Ray.
"""

from __future__ import annotations

import os
import subprocess
import sys

from transferqueue.logs import get_logger
from transferqueue.own_programs import run_program
from transferqueue.storage.names import SessionPaths
from transferqueue.storage.session_dir import remove_session
from transferqueue.storage.session_lock import SessionLock

_log = get_logger("janitor")


def ensure_janitor(name: str) -> bool:
    """Starts the session's janitor unless it has one; the caller is attached. Returns whether one was started."""
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


def main() -> int:
    """``python -m transferqueue.storage.janitor SESSION``: returns at once, the watch goes on in the background."""
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
    watch(paths, session_lock)
    return 0


if __name__ == "__main__":
    sys.exit(main())
