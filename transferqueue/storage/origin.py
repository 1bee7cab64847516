"""Where a session's configuration comes from and who took it over: for people, apart from what joiners need to know."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from transferqueue.storage.names import SessionPaths
from transferqueue.storage.private_files import read_private, write_private


@dataclass(frozen=True)
class Origin:
    """What ``origin.json`` in the session directory says.

    Attributes:
        sources: dotted key -> where the creator had the value from; see `transferqueue.config_sources`.
        adopter_pid: the last process that took the session over when all of its processes had died; None: nobody did.
    """

    sources: dict[str, str] = field(default_factory=dict)
    adopter_pid: int | None = None


def write_origin(paths: SessionPaths, sources: Mapping[str, str], adopter_pid: int | None = None) -> None:
    """By the creator before the session can be joined, by an adopter while it holds the service lock."""
    write_private(paths.origin, json.dumps({"sources": dict(sources), "adopter_pid": adopter_pid}))


def read_origin(paths: SessionPaths) -> Origin:
    """Empty where there is none, or none that can be read: nothing is decided by it."""
    try:
        found = json.loads(read_private(paths.origin))
        adopter = found["adopter_pid"]
        return Origin(
            {str(key): str(text) for key, text in found["sources"].items()}, None if adopter is None else int(adopter)
        )
    except (OSError, ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError):
        return Origin()
