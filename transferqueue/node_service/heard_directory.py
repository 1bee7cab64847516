"""The directory as a node's replication asks it: it notes when there was no answer."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from transferqueue.errors import NodeUnreachableError

if TYPE_CHECKING:
    from transferqueue.node_service.followers import Directory
    from transferqueue.nodes.directory.client import Touched
    from transferqueue.nodes.directory.role import Role

_AWAY_S = 5.0


class HeardDirectory:
    """Two of its calls."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._unheard_s = -_AWAY_S

    @property
    def is_away(self) -> bool:
        """Whether it has not answered within the last seconds."""
        return time.monotonic() - self._unheard_s < _AWAY_S

    def role_of(self, partition: str, until_s: float) -> Role:
        """See `DirectoryClient.role_of`."""
        with self._noted():
            return self._directory.role_of(partition, until_s=until_s)

    def touch(self, ordinal: int, seen: tuple[int, int] | None, until_s: float) -> Touched:
        """See `DirectoryClient.touch`."""
        with self._noted():
            touched = self._directory.touch(ordinal, seen, until_s=until_s)
        self._unheard_s = -_AWAY_S
        return touched

    @contextlib.contextmanager
    def _noted(self) -> Iterator[None]:
        try:
            yield
        except NodeUnreachableError:
            self._unheard_s = time.monotonic()
            raise
