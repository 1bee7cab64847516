"""Checks of what callers pass that is neither a partition, keys nor field names (those: `core`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch

from transferqueue.client.core import Indexes, as_indexes

_LARGEST_INDEX = 2**63 - 1


def check_task(task: Any) -> str:
    """Raises `TypeError` for what is no str, `ValueError` for an empty one."""
    if not isinstance(task, str):
        raise TypeError(f"task_name must be a str, not {type(task).__name__}")
    if not task:
        raise ValueError("task_name must not be empty: rows are consumed and claimed for a task")
    return task


def check_options(options: Any, what: str) -> dict[str, Any]:
    """A dict of named options; empty for None.

    Raises:
        TypeError: not a mapping from str.
    """
    if options is None:
        return {}
    if not isinstance(options, Mapping) or not all(isinstance(name, str) for name in options):
        raise TypeError(f"{what} must be a dict of options by name, not {options!r:.200}")
    return dict(options)


def check_choice(value: Any, choices: Iterable[str], what: str) -> str:
    """Raises `ValueError` for what is none of `choices`, whatever its type (arrays cannot be compared with a str)."""
    if isinstance(value, str) and value in choices:
        return value
    raise ValueError(f"{what} must be one of {', '.join(choices)}; not {value!r:.200}")


def check_device(device: Any) -> torch.device:
    """Raises `TypeError` or `ValueError` for what names no device."""
    if not isinstance(device, (str, torch.device)):
        raise TypeError(f"device must be a str or a torch.device, not {device!r:.200}")
    try:
        return torch.device(device)
    except RuntimeError as error:
        raise ValueError(f"device: {device!r:.200} names none: {error}") from error


def check_indexes(indexes: Any) -> Indexes:
    """Global indexes from an int, or a sequence, array or tensor of ints.

    Raises:
        TypeError: not ints. ValueError: one that no row can have.
    """
    found = _flat(indexes)
    if not all(isinstance(index, (int, np.integer)) and not isinstance(index, bool) for index in found):
        raise TypeError(f"global indexes must be ints or a sequence of ints, not {indexes!r:.200}")
    outside = [index for index in found if not 0 <= index <= _LARGEST_INDEX]
    if outside:
        raise ValueError(f"{outside[0]} is no global index: they are 0 to 2**63 - 1")
    return as_indexes(found)


def _flat(indexes: Any) -> list[Any]:
    if isinstance(indexes, (np.ndarray, torch.Tensor)):
        return [found] if not isinstance(found := indexes.tolist(), list) else found
    if isinstance(indexes, Iterable) and not isinstance(indexes, (str, bytes, Mapping)):
        try:
            return list(indexes)
        except TypeError:
            pass  # its class has __iter__ and its kind of value does not: said by the caller
    return [indexes]
