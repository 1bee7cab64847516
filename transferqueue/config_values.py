"""How the values of configuration keys are read from text and checked. Each reader takes (value, name of the key) and
raises ValueError naming the key."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import field
from typing import Any

from transferqueue.sizes import format_size, parse_size

READ_MODES = ("cow", "shared", "copy")


def as_storage_size(value: Any, name: str) -> int:
    nbytes = parse_size(value, name)
    if nbytes < 1 << 20:
        raise ValueError(f"{name} is {format_size(nbytes)}; the smallest store is 1 MiB")
    return nbytes


def as_optional_size(value: Any, name: str) -> int | None:
    return None if value is None or value in ("", "auto") else parse_size(value, name)


def as_directory(value: Any, name: str) -> str | None:
    if value is None or value == "":
        return None
    path: str = os.path.abspath(os.path.expanduser(os.fspath(value)))
    if not os.path.isdir(path):
        raise ValueError(f"{name}: {path!r} is not a directory")
    return path


def as_flag(value: Any, name: str) -> bool:
    if isinstance(value, bool):
        return value
    text = str(value).strip().lower()
    if text in ("1", "true", "yes", "on"):
        return True
    if text in ("0", "false", "no", "off"):
        return False
    raise ValueError(f"{name} must be true or false, not {value!r}")


def as_seconds(value: Any, name: str) -> float | None:
    """Seconds; None (or the text "none") for no limit."""
    if value is None or (isinstance(value, str) and value.strip().lower() in ("none", "null", "inf")):
        return None
    seconds = float(value)
    if not seconds >= 0:
        raise ValueError(f"{name} must be seconds >= 0, or None for no limit; not {value!r}")
    return None if seconds == float("inf") else seconds


def as_count(value: Any, name: str) -> int:
    try:
        count = int(str(value))
    except ValueError:
        count = -1
    if isinstance(value, bool) or count < 0:
        raise ValueError(f"{name} must be a whole number, 0 or more, not {value!r}")
    return count


def as_share(value: Any, name: str) -> float:
    try:
        share = float(value)
    except (TypeError, ValueError):
        share = -1.0
    if isinstance(value, bool) or not 0 <= share <= 0.75:
        raise ValueError(f"{name} must be a share from 0 to 0.75, not {value!r}")
    return share


def as_optional_flag(value: Any, name: str) -> bool | None:
    return None if value is None or value in ("", "auto") else as_flag(value, name)


def as_optional_port(value: Any, name: str) -> int | None:
    if value is None or value == "":
        return None
    port = as_count(value, name)
    if port > 65535:
        raise ValueError(f"{name} must be a TCP port, 0 to 65535, not {value!r}")
    return port


def as_host(value: Any, name: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{name} must be an address or a host name such as '127.0.0.1' or '::1', not {value!r}")
    return value.strip().removeprefix("[").removesuffix("]")


def as_read_mode(value: Any, name: str) -> str:
    if value not in READ_MODES:
        raise ValueError(f"{name} must be one of {', '.join(READ_MODES)}; not {value!r}")
    return str(value)


def as_log_level(value: Any, name: str) -> str:
    text = str(value).upper()
    if text not in ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"):
        raise ValueError(f"{name} must be DEBUG, INFO, WARNING, ERROR or CRITICAL; not {value!r}")
    return text


def as_anything(value: Any, name: str) -> Any:
    return value


def config_key(parse: Callable[[Any, str], Any], default: Any, meaning: str, *, of_process: bool = False) -> Any:
    return field(default=default, metadata={"parse": parse, "meaning": meaning, "of_process": of_process})
