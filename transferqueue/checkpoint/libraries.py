"""pyarrow and xxhash, which only checkpoints need, imported when one is made or read."""

from __future__ import annotations

import importlib
from typing import Any

_EXTRA = "pip install 'transferqueue-shm[checkpoint]'"


def _needed(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise ImportError(f"checkpoints need {name}, which is not installed here: {_EXTRA}", name=name) from error
    except ImportError as error:  # a library of its own that the system would not map, for one
        raise ImportError(f"checkpoints need {name}, which cannot be loaded here: {error}", name=name) from error


def pyarrow() -> Any:
    """The module, with its `ipc`.

    Raises:
        ImportError: it is not installed; says what to install.
    """
    _needed("pyarrow.ipc")
    return _needed("pyarrow")


def check_libraries() -> None:
    """Says that something is missing before anything is made.

    Raises:
        ImportError: as `pyarrow`.
    """
    pyarrow()
    new_checksum()


def new_checksum() -> Any:
    """A running XXH3 of 128 bits (13 times the speed of SHA-256 where measured: it guards against damage, not malice).

    Raises:
        ImportError: as `pyarrow`.
    """
    return _needed("xxhash").xxh3_128()
