"""A rank's death, told with everything that is known of it."""

from __future__ import annotations

import re

from transferqueue.controller.errors import WorkerDiedError
from transferqueue.controller.rank_facts import RankFacts
from transferqueue.controller.rank_log import log_of

_EXIT = re.compile(r"Worker exit type: (\S+) Worker exit detail: (.*)", re.DOTALL)
_END_OF_FILE = "connection error code 2. End of file"


def death_of(facts: RankFacts, method: str | None, ray_text: str) -> WorkerDiedError:
    """The error for a rank of which Ray says that it is dead, with the last lines of its log."""
    cause = exit_cause(ray_text)
    lines = log_of(facts)
    during = f" during {method}" if method is not None else ""
    message = f"{facts.text} died{during}; the group is dead. Cause: {cause}"
    if lines:
        shown = "\n".join(f"  {line}" for line in lines)
        message += f"\nThe last lines of its log ({', '.join(facts.log_paths)}):\n{shown}"
    return WorkerDiedError(
        message,
        rank=facts.rank,
        node=facts.node,
        pid=facts.pid,
        method=method,
        reason=cause,
        log_lines=lines,
    )


def exit_cause(ray_text: str) -> str:
    """Ray's account of a death, without the actor's particulars, which the error has, and without its guesses."""
    found = _EXIT.search(ray_text)
    if found is None:
        return " ".join(ray_text.split())
    kind, detail = found.group(1), " ".join(found.group(2).split())
    if _END_OF_FILE in detail:
        return (
            f"{kind}: the process ended without a word: killed by a signal (the kernel's out-of-memory killer sends "
            "SIGKILL, dmesg on the node tells), crashed in native code, or left by os._exit"
        )
    return f"{kind}: {detail}"
