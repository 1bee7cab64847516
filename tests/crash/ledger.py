"""What the producers of the kill soak have done and are about to do, in a file that outlives them.

A producer numbers its operations on a group of rows. Every fifth clears the group, the others store it at that
version, so the number says what the group must look like. It writes the number down before the operation (intent) and
after it returned (done): whoever looks at the group must find a state from what was done when it began to look to what
was intended when it ended.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import numpy.typing as npt
from tensordict import TensorDictBase

import transferqueue as tq
from tests.support.versioned_rows import versions_of
from transferqueue import TransferQueueClient

PRODUCERS, GROUPS, GROUP_ROWS, ROLES = 2, 6, 4, 32
CLEARS_EVERY = 5
ABSENT = 0


def clears(operation: int) -> bool:
    return operation % CLEARS_EVERY == 0


def width_of(group: int) -> int:
    """Numbers a row of "x": the blocks of some groups are viewed, those of others copied and put from reserved room."""
    return 2048 if group % 2 else 64


def numbers_of(group: int) -> list[int]:
    return list(range(group * GROUP_ROWS, (group + 1) * GROUP_ROWS))


def keys_of(group: int) -> list[str]:
    return [f"k{number}" for number in numbers_of(group)]


class Ledger:
    """int64 [producers, groups, 2]: intent and done; and a clock of each role, which it winds when it gets on."""

    def __init__(self, folder: str) -> None:
        path = Path(folder) / "ledger"
        if not path.exists():
            path.write_bytes(bytes((PRODUCERS * GROUPS * 2 + ROLES) * 8))
        words: npt.NDArray[np.int64] = np.memmap(path, np.int64, "r+")
        self._operations = words[: PRODUCERS * GROUPS * 2].reshape(PRODUCERS, GROUPS, 2)
        self._clocks = words[PRODUCERS * GROUPS * 2 :]

    def intend(self, producer: int, group: int, operation: int) -> None:
        self._operations[producer, group, 0] = operation

    def note(self, producer: int, group: int, operation: int) -> None:
        """What the group is now, for certain."""
        self._operations[producer, group, 0] = operation
        self._operations[producer, group, 1] = operation

    def intent(self, producer: int, group: int) -> int:
        return int(self._operations[producer, group, 0])

    def done(self, producer: int, group: int) -> int:
        return int(self._operations[producer, group, 1])

    def wind(self, role: int) -> None:
        self._clocks[role] = time.monotonic_ns()

    def stands_s(self, role: int) -> float:
        """Seconds since the role got on last."""
        return (time.monotonic_ns() - int(self._clocks[role])) / 1e9

    # -- looking -----------------------------------------------------------------------------------------------------
    def check(self, producer: int, group: int, done: int, found: TensorDictBase | None) -> int:
        """Fails unless `found` is the group at one operation since `done`, every byte of it; returns that (ABSENT:
        there is nothing)."""
        intent = self.intent(producer, group)
        where = f"group {group} of producer {producer}, operations {done} to {intent}"
        if found is None or not len(found):
            possible = range(done, intent + 1)
            assert any(clears(operation) for operation in possible), f"rows lost: {where}"
            return ABSENT
        seen = versions_of(found, width_of(group))
        assert [number for number, _ in seen] == numbers_of(group), f"rows missing: {seen}, {where}"
        versions = {version for _, version in seen}
        assert len(versions) == 1, f"torn: {seen}, {where}"
        version = versions.pop()
        assert done <= version <= intent, f"version {version} of {where}"
        return version

    def look(
        self, client: TransferQueueClient, producer: int, group: int, mode: str
    ) -> tuple[int, TensorDictBase | None]:
        done = self.done(producer, group)
        try:
            found = client.kv_batch_get(keys_of(group), f"p{producer}", mode=mode)
        except (tq.KeyNotFoundError, tq.PartitionNotFoundError):
            found = None
        return self.check(producer, group, done, found), found

    def settle(self, client: TransferQueueClient, producer: int, group: int) -> int:
        """Of a producer that is dead: what became of its last operation is found out and written down."""
        version, _ = self.look(client, producer, group, "copy")
        done, intent = self.done(producer, group), self.intent(producer, group)
        assert version in (done, intent) or version == ABSENT, (version, done, intent)
        if version == ABSENT:
            version = next(operation for operation in (intent, done) if clears(operation))
        self.note(producer, group, version)
        return version
