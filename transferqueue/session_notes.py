"""What whoever joins a session is told beyond it: values that do not hold there, where its name came from, and that it
was closed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from transferqueue.config import SESSION_VARIABLE, Config, values_not_taken
from transferqueue.errors import ClosedError, SessionNotFoundError
from transferqueue.logs import get_logger
from transferqueue.samplers.registry import describe_sampler

_log = get_logger("session")


def closed_error(name: str) -> ClosedError:
    """The error for calls after `close`."""
    return ClosedError(f"session {name!r} was closed in this process; call transferqueue.init() again", session=name)


def warn_of_ignored(session: str, config: Config, sampler: Mapping[str, str], explicit: Mapping[str, Any]) -> None:
    """One warning that names the values which an `init` was given and which do not hold; quiet when all hold.

    Args:
        session: its name.
        config: the session's, with this process's own choices.
        sampler: the session's, as its description has it.
        explicit: dotted key -> value that was asked for.
    """
    ignored = values_not_taken(explicit, config)
    if "controller.sampler" in explicit:
        ignored |= _sampler_not_taken(config, sampler, explicit["controller.sampler"])
    if ignored:
        listed = "; ".join(f"{key} is {values}" for key, values in ignored.items())
        _log.warning("session %r exists and stays as it was configured: %s", session, listed)


def _sampler_not_taken(config: Config, actual: Mapping[str, str], wanted: Any) -> dict[str, str]:
    if not isinstance(wanted, str) and config.controller.sampler is wanted:
        return {}  # this process made the session with it
    asked = describe_sampler(wanted)
    if asked == actual:
        return {}
    asked_name, actual_name = (described.get("name") or described.get("class") for described in (asked, actual))
    return {"controller.sampler": f"{actual_name} (asked for: {asked_name})"}


@contextmanager
def named_by_the_environment() -> Iterator[None]:
    """Says where the name of a session came from that nobody in this process has written."""
    try:
        yield
    except SessionNotFoundError as error:
        raise SessionNotFoundError(
            f"{error}. {SESSION_VARIABLE} in this process's environment names it, as a parent that made it left it, or "
            "this process itself before it executed another program: unset it to start a session of your own",
            session=error.session,
        ) from None
