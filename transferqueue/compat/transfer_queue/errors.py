"""The one error class of the surface."""

from __future__ import annotations

__all__ = ["StorageKeyNotFoundError"]


class StorageKeyNotFoundError(KeyError):
    """Rows that hold no data: cleared since the metadata was made, or without one of its fields."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""  # KeyError would print the repr of its message
