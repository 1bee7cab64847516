"""A program that starts others and lets each end in its own way, through the interpreter's own end where it has one.

Forked from one that has everything imported; the child returns to the top of the program, so what runs at its end is
what runs at the end of any program. Lines of JSON on stdin: {"name", "folder", "options", "id", "end"}.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

ENDS = ("return", "close", "exception", "sys.exit", "os._exit", "SIGTERM", "SIGINT", "SIGKILL")
CLEAN_ENDS = ("return", "close", "exception", "sys.exit", "SIGINT")


def next_child() -> dict[str, Any] | None:
    """In the child: what it is to do; None in the parent, once there is nothing more to start."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while line := sys.stdin.readline():
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            asked: dict[str, Any] = json.loads(line)
            return asked
    return None


def live(asked: dict[str, Any]) -> None:
    """Attached, with a reservation under way, until told to end. Its rows are others' business."""
    import transferqueue as tq

    folder, number = Path(asked["folder"]), asked["id"]
    session = tq.init(session=asked["name"], **asked["options"])
    reservation = session.attachment.store.reserve(1 << 20, 0)
    (folder / f"ready{number}.part").write_text(str(os.getpid()))
    (folder / f"ready{number}.part").rename(folder / f"ready{number}")
    while not (folder / f"go{number}").exists():
        time.sleep(0.002)
    end = asked["end"]
    if end == "close":
        session.close()
    elif end == "exception":
        raise RuntimeError("a program's own")
    elif end == "sys.exit":
        sys.exit(3)
    elif end == "os._exit":
        os._exit(4)
    elif end.startswith("SIG"):
        os.kill(os.getpid(), getattr(signal, end))
        time.sleep(60)  # a signal that Python handles comes between two steps
    del reservation


if __name__ == "__main__":
    # Registered first, so called last: what follows is taking torch's modules apart, which takes a second each time.
    atexit.register(os._exit, 0)
    import transferqueue.session  # noqa: F401  (before the first fork)

    work = next_child()
    if work is not None:
        live(work)
