"""What a partition may hold: the settings, from text or a mapping, and what holds for one partition."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from transferqueue.sizes import format_size, parse_size

SETTINGS = ("max_bytes", "max_unconsumed_rows", "max_version_lag", "consumers", "when_exceeded")
WAYS = ("wait", "shed", "raise")


@dataclass(frozen=True)
class PartitionLimits:
    """What holds for one partition, and what is there.

    Attributes:
        max_bytes: payload that its rows may name, in bytes; None: no limit.
        max_unconsumed_rows: rows that may wait to be consumed; None: no limit.
        max_version_lag: by how much the ``weight_version`` of a row that waits may be below the newest; None: no limit.
        consumers: a row waits until all these tasks consumed it; none: until any task did.
        when_exceeded: "wait", "shed" or "raise".
        live_bytes: payload that its rows name.
        unconsumed_rows: rows that wait; None where neither of the two limits asks for it.
        newest_version: the largest ``weight_version`` put, or what `set_weight_version` said since; None: none.
        oldest_version: of the rows that wait; None: none of them has one.
        shed_rows: that were removed to make room for others, since the partition was made.
    """

    max_bytes: int | None
    max_unconsumed_rows: int | None
    max_version_lag: int | None
    consumers: tuple[str, ...]
    when_exceeded: str
    live_bytes: int
    unconsumed_rows: int | None
    newest_version: int | None
    oldest_version: int | None
    shed_rows: int

    @classmethod
    def of(cls, report: Mapping[str, Any]) -> PartitionLimits:
        """From what ``Store.limit_report`` gives."""
        facts = {name: value for name, value in report.items() if name != "partition_found"}
        return cls(**{**facts, "consumers": tuple(report["consumers"])})

    @property
    def any(self) -> bool:
        """Whether there is a limit."""
        return (self.max_bytes, self.max_unconsumed_rows, self.max_version_lag) != (None, None, None)

    def held(self) -> dict[str, tuple[int, int]]:
        """Limit -> (what is there, what may be), of the limits that there are."""
        found = {}
        if self.max_bytes is not None:
            found["max_bytes"] = (self.live_bytes, self.max_bytes)
        if self.max_unconsumed_rows is not None:
            found["max_unconsumed_rows"] = (self.unconsumed_rows or 0, self.max_unconsumed_rows)
        if self.max_version_lag is not None:
            newest, oldest = self.newest_version, self.oldest_version
            lag = 0 if newest is None or oldest is None else max(0, newest - oldest)
            found["max_version_lag"] = (lag, self.max_version_lag)
        return found

    def describe(self) -> str:
        """For people: ``max_unconsumed_rows 12 of 512 (wait)``; empty without limits."""
        shown = [
            f"{name} " + " of ".join(format_size(each) if name == "max_bytes" else str(each) for each in figures)
            for name, figures in self.held().items()
        ]
        return f"{', '.join(shown)} ({self.when_exceeded})" if shown else ""


def check_setting(name: str, value: Any, where: str) -> Any:
    """A setting, checked: bytes, a whole number, a tuple of names, or one of `WAYS`.

    Raises:
        ValueError: names `where` it stands.
    """
    if name == "max_bytes":
        return None if _is_none(value) else parse_size(value, where)
    if name in ("max_unconsumed_rows", "max_version_lag"):
        return None if _is_none(value) else _count(value, where)
    if name == "consumers":
        names = [] if _is_none(value) else value
        if isinstance(names, str):
            names = [part.strip() for part in names.split(",") if part.strip()]
        listed = isinstance(names, (Sequence, Set))
        if not listed or not all(isinstance(task, str) and task for task in names):
            raise ValueError(f"{where} must be names of tasks, not {value!r}")
        return tuple(dict.fromkeys(names))
    if name == "when_exceeded":
        if not isinstance(value, str) or value not in WAYS:
            raise ValueError(f"{where} must be one of {', '.join(WAYS)}; not {value!r}")
        return value
    raise ValueError(f"{where}: there is no such setting; there are {', '.join(SETTINGS)}")


def check_rules(value: Any, where: str) -> dict[str, dict[str, Any]] | None:
    """Pattern -> settings, from a mapping or its JSON text; None for none.

    Raises:
        ValueError: not such a mapping, or a setting that is not known.
    """
    if value is None or value == "":
        return None
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except json.JSONDecodeError as error:
            raise ValueError(f"{where} must be a mapping, or JSON text of one: {error}") from None
    if not isinstance(value, Mapping) or not all(isinstance(each, Mapping) for each in value.values()):
        raise ValueError(f'{where} must be a mapping such as {{"train*": {{"max_bytes": "1GiB"}}}}, not {value!r}')
    return {
        str(pattern): {name: check_setting(name, one, f"{where}[{pattern!r}].{name}") for name, one in settings.items()}
        for pattern, settings in value.items()
    } or None


def _is_none(value: Any) -> bool:
    return value is None or (isinstance(value, str) and value.strip().lower() in ("", "none", "null"))


def _count(value: Any, where: str) -> int:
    try:
        count = int(str(value))
    except ValueError:
        count = -1
    if isinstance(value, bool) or not 0 <= count < 1 << 62:
        raise ValueError(f"{where} must be a whole number, 0 or more, or None for no limit; not {value!r}")
    return count
