"""Checks of user-given names: keys of rows, names of fields."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from transferqueue.errors import name_some


def checked_keys(keys: Iterable[Any]) -> list[str]:
    """`keys` as a new list of plain `str`. `TypeError` for a single string and for anything but strings."""
    if isinstance(keys, (str, bytes)):
        raise TypeError(f"keys must be a sequence of strings, got the single string {keys!r}")
    listed = list(keys)
    if set(map(type, listed)) <= {str}:
        return listed
    other = [key for key in listed if not isinstance(key, str)]
    if other:
        raise TypeError(f"keys must be strings, got {name_some(other)}")
    return [str(key) for key in listed]  # numpy strings and other subclasses do not travel


def refuse_duplicates(names: Sequence[str], message: str) -> None:
    """`ValueError` that starts with `message` and says which of `names` appear more than once."""
    if len(set(names)) == len(names):
        return
    seen: set[str] = set()
    repeated: dict[str, None] = {}
    for name in names:
        if name in seen:
            repeated[name] = None
        seen.add(name)
    raise ValueError(f"{message}: {name_some(repeated)}")
