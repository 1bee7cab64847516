"""Where each value of a configuration comes from: told by `tq config`, and by `Session.config_sources`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from transferqueue.config import (
    Config,
    environment_variable,
    explicit_values,
    known_keys,
    process_keys,
    read_environment,
)

DEFAULT = "default"
SESSION = "session"
ADOPTED = "adopted session"


@dataclass(frozen=True)
class Given:
    """What a call and its environment say.

    Attributes:
        values: dotted key -> value, not yet parsed.
        sources: dotted key -> ``init argument``, ``configuration mapping``, ``Config object`` or
            ``environment variable TRANSFERQUEUE_...``; the same keys.
    """

    values: dict[str, Any]
    sources: dict[str, str]

    @classmethod
    def by(cls, config: Config | Mapping[str, Any] | None, overrides: Mapping[str, Any]) -> Given:
        """Overrides first, then the mapping, then the environment.

        Raises:
            ValueError: an unknown key; named, with the nearest one.
        """
        _, environment = read_environment()
        sources = {key: f"environment variable {environment_variable(key)}" for key in environment}
        mapped = "Config object" if isinstance(config, Config) else "configuration mapping"
        sources |= dict.fromkeys(explicit_values(config, {}), mapped)
        sources |= dict.fromkeys(explicit_values(None, overrides), "init argument")
        return cls({**environment, **explicit_values(config, overrides)}, sources)

    def of_creator(self) -> dict[str, str]:
        """Sources of every key in the process that creates a session."""
        return {key: self.sources.get(key, DEFAULT) for key in known_keys()}

    def of_joiner(self, creators: Mapping[str, str], *, adopted: bool = False) -> dict[str, str]:
        """Sources of every key in a process that joins a session, or takes a dead one over: its own choice of the keys
        that belong to a process; the others are the session's, with what `creators` says about them."""
        own = process_keys()
        session = ADOPTED if adopted else SESSION
        return {
            key: self.sources.get(key, DEFAULT) if key in own else f"{session}: {creators.get(key, 'its creator')}"
            for key in known_keys()
        }
