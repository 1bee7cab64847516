"""Several things at once in one process."""

from __future__ import annotations

import threading
from collections.abc import Callable


def run_together(*works: Callable[[], object]) -> None:
    """Runs each in a thread of its own; raises the first error of any when all have ended."""
    failures: list[BaseException] = []

    def guarded(work: Callable[[], object]) -> None:
        try:
            work()
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=guarded, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
