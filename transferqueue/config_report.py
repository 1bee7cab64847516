"""The resolved configuration with the source of each value: what ``tq config`` prints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from transferqueue.config import build_config, process_keys, value_text
from transferqueue.config_sources import Given
from transferqueue.storage.attachment import not_found
from transferqueue.storage.names import SessionPaths
from transferqueue.storage.origin import read_origin
from transferqueue.storage.session_dir import read_description


@dataclass(frozen=True)
class ConfigReport:
    """Of a session, or (`session` None) of the one that ``init()`` would create here.

    Attributes:
        creator_pid, adopter_pid: who made it, and who took it over when its processes had died; None: nobody.
        values, sources: of every key, parsed; see `Given` for the sources.
    """

    session: str | None
    creator_pid: int | None
    adopter_pid: int | None
    values: dict[str, Any]
    sources: dict[str, str]

    def rows(self) -> list[list[str]]:
        """(key, value for people, "session" or "process", source) of every key."""
        own = process_keys()
        return [
            [key, value_text(key, value), "process" if key in own else "session", self.sources[key]]
            for key, value in self.values.items()
        ]

    def to_plain(self) -> dict[str, Any]:
        """JSON-ready."""
        own = process_keys()
        return {
            "session": self.session,
            "creator_pid": self.creator_pid,
            "adopter_pid": self.adopter_pid,
            "values": {
                key: {"value": value, "of": "process" if key in own else "session", "source": self.sources[key]}
                for key, value in self.values.items()
            },
        }


def report(session: str | None) -> ConfigReport:
    """What holds in session `session` for a process that joins it with this environment; attaches to nothing.

    Raises:
        SessionNotFoundError: no such session. ValueError: a bad value in the environment.
    """
    given = Given.by(None, {})
    if session is None:
        values = build_config(given.values).to_flat()
        return ConfigReport(None, None, None, values, given.of_creator())
    paths = SessionPaths.of(session)
    description = read_description(paths)
    if description is None:
        raise not_found(session)
    origin = read_origin(paths)
    own = set(process_keys())
    chosen = {key: value for key, value in given.values.items() if key in own}
    values = build_config(chosen, build_config(description.config)).to_flat()
    values["controller.sampler"] = description.sampler.get("name") or description.sampler.get("class")
    sources = given.of_joiner(origin.sources, adopted=origin.adopter_pid is not None)
    return ConfigReport(session, description.creator_pid, origin.adopter_pid, values, sources)
