"""A session, what it must hold, and the look at everything after each death."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

import transferqueue as tq
from tests.crash import victims
from tests.support.nursery import Nursery
from tests.support.sessions import wait_for
from tests.support.space import is_settled
from tests.support.versioned_rows import rows, versions_of
from transferqueue import BatchMeta

MODES = ("cow", "copy", "shared")


class World:
    """`keyed` and `plain`: the version of each row number in the two partitions. `settle` after each death; that is the
    only housekeeping (the session runs without service)."""

    def __init__(self, session: tq.Session, nursery: Nursery) -> None:
        self.session = session
        self.client = session.client
        self.nursery = nursery
        self.keyed: dict[int, int] = {}
        self.plain: dict[int, int] = {}
        self._metas: dict[int, BatchMeta] = {}  # one row each
        self.version = 0
        self.rounds = 0
        self.directory = Path(session.attachment.paths.directory)
        # From here on a put that finds room takes two write transactions.
        self.put_plain(range(8))
        self.empty()

    # -- what is there -------------------------------------------------------------------------------------------
    def next_version(self) -> int:
        self.version += 1
        return self.version

    def put_plain(self, numbers: Sequence[int]) -> BatchMeta:
        version = self.next_version()
        meta = self.client.put(rows(numbers, version), partition_id="plain")
        self._note_plain(meta, numbers, version)
        return meta

    def put_keyed(self, numbers: Sequence[int]) -> None:
        version = self.next_version()
        tags = [{"version": version, "n": number} for number in numbers]
        self.client.kv_batch_put([f"k{n}" for n in numbers], "keyed", rows(numbers, version), tags)
        self.keyed |= dict.fromkeys(numbers, version)

    def meta_of(self, numbers: Sequence[int]) -> BatchMeta:
        """Of rows of "plain"."""
        return BatchMeta.concat([self._metas[number] for number in numbers])

    def scatter(self, numbers: Sequence[int]) -> BatchMeta:
        for number in numbers:
            self.put_plain([number])
        return self.meta_of(numbers)

    def forget_plain(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            del self.plain[number], self._metas[number]

    def empty(self) -> None:
        for partition in self.client.get_partition_list():
            self.client.clear_partition(partition)
        self.keyed, self.plain, self._metas = {}, {}, {}

    def _note_plain(self, meta: BatchMeta, numbers: Sequence[int], version: int) -> None:
        for at, number in enumerate(numbers):
            self.plain[number] = version
            self._metas[number] = meta.select_samples([at])

    # -- deaths ----------------------------------------------------------------------------------------------------
    def die(self, point: str, deed: Callable[..., None], *arguments: object) -> None:
        """A process does the deed and is killed at the point; fails when it got through unharmed."""
        self.rounds += 1
        status = self.nursery.run(victims.victim, self.session.name, point, deed, *arguments)
        assert status == -signal.SIGKILL, f"{deed.__name__} at {point}: exit status {status}"

    def settle(self) -> None:
        """Cleans up after the dead; then nothing of them is left, and every byte has one owner."""
        store = self.client._store

        def clean() -> bool:
            return (
                is_settled(store)
                and self.lease_files() == 1
                and [client["pid"] for client in store.clients()] == [os.getpid()]
            )

        try:
            wait_for(clean, 10.0, what="the return of everything the dead held")
        except AssertionError as error:
            leases = os.listdir(self.directory / "leases")
            raise AssertionError(f"{error}; {store.stats()}, {store.clients()}, {leases}") from None
        store.check()

    def lease_files(self) -> int:
        """Temporary ones included."""
        return len(os.listdir(self.directory / "leases"))

    def files(self) -> list[str]:
        """Everything in shared memory that has the session's name."""
        found = [str(path) for path in self.directory.rglob("*")]
        return sorted(found + [name for name in os.listdir("/dev/shm") if self.session.name in name])

    # -- what must be there --------------------------------------------------------------------------------------
    def verify(self, *, plain: dict[int, int] | None = None, keyed: dict[int, int] | None = None) -> None:
        """Every row, byte for byte. `plain`, `keyed`: what may be there instead of what was, all of it or nothing."""
        mode = MODES[self.rounds % len(MODES)]
        self.plain = self._one_of(self._read_plain(mode), self.plain, plain)
        self.keyed = self._one_of(self._read_keyed(mode), self.keyed, keyed)

    @staticmethod
    def _one_of(found: dict[int, int], before: dict[int, int], after: dict[int, int] | None) -> dict[int, int]:
        allowed = [before] if after is None else [before, after]
        assert found in allowed, f"found {found}, allowed {allowed}"
        return found

    def _read_plain(self, mode: str) -> dict[int, int]:
        if "plain" not in self.client.get_partition_list():
            return {}
        meta = self.client.get_meta(["x", "r", "s", "n"], 0, "plain", mode="force_fetch")
        if not meta.size:
            return {}
        found = versions_of(self.client.get_data(meta, mode=mode))
        assert len(dict(found)) == len(found), f"rows twice: {found}"
        for at, (number, _) in enumerate(found):
            self._metas[number] = meta.select_samples([at])
        return dict(found)

    def _read_keyed(self, mode: str) -> dict[int, int]:
        listed = self.client.kv_list("keyed").get("keyed", {})
        if not listed:
            return {}
        found = versions_of(self.client.kv_batch_get(list(listed), "keyed", mode=mode))
        assert [f"k{number}" for number, _ in found] == list(listed)
        for (number, version), (key, tags) in zip(found, listed.items(), strict=True):
            assert tags == {"version": version, "n": number}, (key, tags, version)
        return dict(found)

    def nothing_is_lost(self) -> None:
        """Emptied, the store is one free piece as large as ever."""
        self.empty()
        self.settle()
        store = self.client._store
        stats = store.stats()
        assert (stats["used_bytes"], stats["live_bytes"], stats["rows"]) == (0, 0, 0)
        reservation = store.reserve(stats["total_bytes"], 0)
        reservation.abandon()
        assert store.stats()["pending_bytes"] == 0
