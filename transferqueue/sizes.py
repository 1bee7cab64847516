"""Sizes in bytes, as people write and read them."""

from __future__ import annotations

import re
from typing import Any

_UNITS = {"": 1, "b": 1}
for _power, _letter in enumerate("kmgt", start=1):
    _UNITS |= {_letter: 1024**_power, f"{_letter}ib": 1024**_power, f"{_letter}b": 1000**_power}
# What an int64 holds: sys.maxsize is how some write "any size".
LARGEST_NBYTES = 2**63 - 1
_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*")


def parse_size(value: Any, name: str = "size") -> int:
    """Bytes from a number or text: ``4GiB`` and ``4G`` are 4 * 2**30, ``4GB`` is 4 * 10**9.

    Raises:
        ValueError: not a size, or negative.
    """
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise ValueError(f"{name} must be bytes (an int) or text such as '4GiB', not {value!r}")
    if isinstance(value, int):
        nbytes = value
    else:
        match = _SIZE.fullmatch(value)
        if match is None or match.group(2).lower() not in _UNITS:
            raise ValueError(f"{name}: {value!r} is no size; write bytes or text such as '512MiB' or '4GiB'")
        number = float(match.group(1)) * _UNITS[match.group(2).lower()]
        nbytes = LARGEST_NBYTES + 1 if number > LARGEST_NBYTES else int(number)
    if nbytes < 0:
        raise ValueError(f"{name} must not be negative: {value!r}")
    if nbytes > LARGEST_NBYTES:
        raise ValueError(f"{name}: {value!s:.40} is more than any machine has; at most 2**63 - 1 bytes")
    return nbytes


def format_size(nbytes: int) -> str:
    """Bytes as people read them: ``1.5 GiB``."""
    size = float(nbytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            return f"{int(size)} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
