"""How the Python columns and batch-wide values of several pieces become one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from transferqueue.workers.data_proto.equality import columns_equal
from transferqueue.workers.data_proto.errors import DataProtoError

METRICS = "metrics"
"""The batch-wide value of which every piece's counts: a dict of numbers, or a list of such dicts."""


def joined_columns(pieces: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The arrays of all pieces one after the other. `DataProtoError` for pieces with different names or row shapes."""
    names = list(pieces[0])
    for piece in pieces[1:]:
        if set(piece) != set(names):
            raise DataProtoError(
                f"concat: pieces with different columns {sorted(names)} and {sorted(piece)}",
                fields=tuple(sorted(set(names) ^ set(piece))),
            )
    joined = {}
    for name in names:
        try:
            joined[name] = np.concatenate([piece[name] for piece in pieces], axis=0)
        except ValueError as error:
            raise DataProtoError(f"concat: column {name!r}: {error}", fields=(name,)) from error
    return joined


def merged_meta_info(pieces: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The batch-wide values of all pieces; metrics as `merged_metrics` says.

    Raises `DataProtoError` for another value that differs between two pieces.
    """
    merged: dict[str, Any] = {}
    for piece in pieces:
        for key, value in piece.items():
            if key == METRICS:
                continue
            if key in merged and not columns_equal(merged[key], value):
                raise DataProtoError(
                    f"Conflicting values for meta_info key '{key}'. What differs from rank to rank belongs into "
                    f"meta_info[{METRICS!r}], or a column",
                    fields=(str(key),),
                )
            merged.setdefault(key, value)
    found = [piece[METRICS] for piece in pieces if piece.get(METRICS) is not None]
    if found:
        merged[METRICS] = merged_metrics(found)
    return merged


def are_metrics(found: Sequence[Any]) -> bool:
    """Whether these are values that `merged_metrics` merges."""
    return bool(found) and all(
        isinstance(entry, Mapping) for value in found for entry in (value if isinstance(value, list) else [value])
    )


def merged_metrics(found: Sequence[Any]) -> Any:
    """Dicts of numbers, or lists of such, as one dict of lists in the order of the pieces. A name that only some have
    is kept, with the entries of those.

    Raises `DataProtoError` for metrics of another form.
    """
    merged: dict[str, list[Any]] = {}
    for value in found:
        for entry in value if isinstance(value, list) else [value]:
            if not isinstance(entry, Mapping):
                raise DataProtoError(
                    f"meta_info[{METRICS!r}] is a dict of values or a list of such dicts, got {type(entry).__name__}"
                )
            for name, number in entry.items():
                merged.setdefault(name, []).append(number)
    return merged
