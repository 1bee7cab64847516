"""The waiting half of a store, in one process: wake words and versions under a condition."""

from __future__ import annotations

import threading
import time

from transferqueue.errors import ClosedError, PartitionNotFoundError


class FakeStore:
    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._words: dict[str | None, int] = {None: 0}
        self._versions: dict[str, int] = {}
        self.items: dict[str, list[int]] = {}
        self.waits = 0
        self.counted: list[tuple[bool, bool]] = []  # (for room, timed out) of every wait that ended
        self.closed = False

    def put(self, partition: str, item: int, *, wake: bool = True) -> None:
        """A commit; without `wake`, one whose process died before it could wake anybody."""
        with self._changed:
            self.items.setdefault(partition, []).append(item)
            self._versions[partition] = self._versions.get(partition, 0) + 1
            self._words.setdefault(partition, 0)
            if wake:
                self._words[partition] += 1
                self._words[None] += 1
                self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            self.closed = True
            self._changed.notify_all()

    def wake_word(self, partition: str | None) -> int:
        with self._changed:
            return self._word(partition)

    def wait_word(self, partition: str | None, seen: int, timeout_s: float) -> bool:
        assert timeout_s <= 0.1001, "a native wait is a slice"
        with self._changed:
            self.waits += 1
            until_s = time.monotonic() + timeout_s
            while self._word(partition) == seen:
                left_s = until_s - time.monotonic()
                if left_s <= 0:
                    return False
                self._changed.wait(left_s)
            return True

    def wait_change(self, partition: str, seen: int, version: int, timeout_s: float) -> bool:
        until_s = time.monotonic() + timeout_s
        while True:
            left_s = until_s - time.monotonic()
            if (
                self.wait_word(partition, seen, max(0.0, min(0.1, left_s)))
                or self.partition_version(partition) != version
            ):
                return True
            if left_s <= 0.1:
                return False

    def count_wait(self, seconds: float, *, for_room: bool, timed_out: bool) -> None:
        assert seconds >= 0
        self.counted.append((for_room, timed_out))

    def partition_version(self, partition: str) -> int:
        if partition not in self._versions:
            raise PartitionNotFoundError(partition)
        return self._versions[partition]

    def _word(self, partition: str | None) -> int:
        if self.closed:
            raise ClosedError("closed")
        if partition not in self._words:
            raise PartitionNotFoundError(str(partition))
        return self._words[partition]
