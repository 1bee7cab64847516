"""Small JSON files of which every value is used as it stands: a checksum in them tells one flipped digit."""

from __future__ import annotations

import json
import zlib
from typing import Any

_KEY = "crc32"


def write_checked(values: dict[str, Any]) -> str:
    """`values` as JSON, with the checksum of all of them beside them."""
    return json.dumps({**values, _KEY: _checksum(values)})


def check(values: dict[str, Any]) -> None:
    """Takes the checksum out of what such a file was read as.

    Raises:
        ValueError: there is none, or it is another one.
    """
    stated = values.pop(_KEY, None)
    found = _checksum(values)
    if stated != found or isinstance(stated, bool):
        raise ValueError(f"it is damaged: its content has the checksum {found:#010x}, not {stated!r}")


def _checksum(values: dict[str, Any]) -> int:
    # As JSON gives it back: another order of the keys, or other white space, is the same content.
    return zlib.crc32(json.dumps(values, sort_keys=True, separators=(",", ":")).encode())
