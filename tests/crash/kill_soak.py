"""A session under load whose processes are killed, stopped and replaced, and the look at everything in between."""

from __future__ import annotations

import ast
import os
import random
import signal
import time
from collections import Counter
from pathlib import Path

import torch
from tensordict import TensorDict

import transferqueue as tq
from tests.crash.kill_roles import POINTS, play
from tests.crash.ledger import GROUP_ROWS, GROUPS, PRODUCERS, Ledger, clears, keys_of
from tests.support.nursery import Child, Nursery
from tests.support.sessions import janitors, wait_for, wait_until_gone
from tests.support.space import is_settled
from transferqueue.storage.cleaning import remove_dead_sessions

# Role by number; the first are the producers, whose numbers are their partitions'.
CAST = ["produce", "produce", "read", "read", "wait", "claim", "claim", "keep_house", "serve", "save", "visit"]
HUNG_S = 30.0


class KillSoak:
    """`survivor` is this process: it is attached all the time and the only one that nobody kills."""

    def __init__(self, nursery: Nursery, session: tq.Session, folder: Path, seed: int) -> None:
        self.nursery = nursery
        self.session = session
        self.client = session.client
        self.folder = folder
        self.ledger = Ledger(str(folder))
        self.random = random.Random(seed)
        self.playing: dict[int, Child] = {}
        self.kills: Counter[str] = Counter()
        self.rows_checked = 0
        self.given_out = 0
        self.longest_call_s = 0.0
        self.files: list[str] | None = None
        self.index_bytes = 0

    # -- people ----------------------------------------------------------------------------------------------------
    def cast(self, number: int) -> None:
        point = self.random.choice(POINTS) if self.random.random() < 0.3 else None
        seed = self.random.getrandbits(32)
        self.playing[number] = self.nursery.start(
            play, CAST[number], self.session.name, str(self.folder), number, seed, point
        )

    def end(self, number: int, how: str) -> None:
        child = self.playing.pop(number)
        child.kill()
        status = child.wait()
        assert status == -signal.SIGKILL, f"{CAST[number]} ended with {status}"
        self.kills[f"{CAST[number]} ({how})"] += 1

    def replace_the_dead(self) -> None:
        """Those that killed themselves at a point."""
        for number, child in list(self.playing.items()):
            if not _runs(child.pid):
                self.end(number, "at a point")
        for number in range(len(CAST)):
            if number not in self.playing:
                self.cast(number)

    def look_for_the_hung(self) -> None:
        for number, child in self.playing.items():
            stands_s = self.ledger.stands_s(number)
            # A service serves until it is told to end.
            if CAST[number] != "serve" and _runs(child.pid):
                assert stands_s < HUNG_S, f"{CAST[number]} (process {child.pid}) stands for {stands_s:.0f} s"

    # -- rounds ----------------------------------------------------------------------------------------------------
    def round(self) -> None:
        self.replace_the_dead()
        self.give_work()
        time.sleep(self.random.random() * 0.12)
        dice = self.random.random()
        numbers = list(self.playing)
        self.random.shuffle(numbers)
        if dice < 0.06:
            self.end_all(numbers[: len(numbers) // 2], "half at once")
        elif dice < 0.09:
            self.end_all(numbers[1:], "all but one at once")
        elif dice < 0.2:
            self.stop_some(numbers[: self.random.randint(1, 3)])
        elif dice < 0.24:
            for pid in janitors(self.session.name):
                os.kill(pid, signal.SIGKILL)
                self.kills["janitor (any time)"] += 1
        else:
            for number in numbers[: self.random.randint(1, 3)]:
                time.sleep(self.random.random() * 0.01)
                self.end(number, "any time")
        self.look_at_rows()
        self.look_for_the_hung()

    def end_all(self, numbers: list[int], how: str) -> None:
        for number in numbers:
            self.playing[number].kill()
        for number in numbers:
            self.end(number, how)

    def stop_some(self, numbers: list[int]) -> None:
        """Some are continued, some killed where they stand."""
        for number in numbers:
            self.playing[number].kill(signal.SIGSTOP)
        time.sleep(self.random.random() * 0.2)
        for number in numbers:
            if self.random.random() < 0.5:
                self.end(number, "stopped")
            else:
                self.playing[number].kill(signal.SIGCONT)

    def give_work(self) -> None:
        some = self.random.randint(1, 4)
        numbers = torch.arange(self.given_out, self.given_out + some).unsqueeze(1)
        began_s = time.monotonic()
        self.client.put(TensorDict({"x": numbers}, [some]), partition_id="work")
        self.longest_call_s = max(self.longest_call_s, time.monotonic() - began_s)
        self.given_out += some

    def look_at_rows(self) -> None:
        for producer in range(PRODUCERS):
            for group in range(GROUPS):
                version, _ = self.ledger.look(
                    self.client, producer, group, self.random.choice(["cow", "copy", "shared"])
                )
                self.rows_checked += GROUP_ROWS * (version > 0)

    # -- the whole ---------------------------------------------------------------------------------------------------
    def look_at_everything(self) -> None:
        """All others are killed; then nothing of them is left, and every row is what its producer made of it."""
        self.end_all(list(self.playing), "all others at once")
        for pid in janitors(self.session.name):
            os.kill(pid, signal.SIGKILL)
        store = self.client._store
        directory = Path(self.session.attachment.paths.directory)

        def clean() -> bool:
            alone = [client["pid"] for client in store.clients()] == [os.getpid()]
            return is_settled(store) and alone and len(os.listdir(directory / "leases")) == 1

        try:
            wait_for(clean, 20.0, what="the return of everything the dead held")
        except AssertionError as error:
            raise AssertionError(f"{error}; {store.stats()}, {store.clients()}") from None
        store.check()
        self.expect_rows()
        self.expect_work()
        self.expect_files(directory)
        self.expect_free_locks()

    def expect_rows(self) -> None:
        there = self.client.kv_list()
        for producer in range(PRODUCERS):
            expected = set()
            for group in range(GROUPS):
                if not clears(self.ledger.settle(self.client, producer, group)):
                    expected |= set(keys_of(group))
                    self.rows_checked += GROUP_ROWS
            assert set(there.get(f"p{producer}", {})) == expected
            total = self.client.stats(f"p{producer}").rows["total"] if f"p{producer}" in there else 0
            assert total == len(expected), "rows without a key"

    def expect_work(self) -> None:
        """Whatever the dead had claimed is there to be claimed; nobody acknowledged a row twice."""
        path = self.folder / "acknowledged"
        lines = path.read_text().splitlines() if path.exists() else []
        done = [number for line in lines for number in ast.literal_eval(line)]
        assert len(set(done)) == len(done), "acknowledged twice"
        _, marks = self.client.get_consumption_status("t", "work")
        assert marks is not None
        left = int((marks == 0).sum())
        if left:
            claimed = self.client.claim("t", "work", fields="x", batch_size=left, lease_s=60)
            rest = self.client.get_data(claimed.meta)["x"][:, 0].tolist()
            assert len(rest) == left, f"{left} rows are not consumed, {len(rest)} are offered"
            assert not set(rest) & set(done), "offered again after its acknowledgement"
            self.client.ack(claimed)
        self.client.clear_partition("work")
        wait_for(lambda: is_settled(self.client._store), what="the room of the work")

    def expect_files(self, directory: Path) -> None:
        remove_dead_sessions()
        wait_until_gone(f"{self.session.name}-own")
        names = [str(path) for path in directory.rglob("*") if path.suffix != ".lease"]
        names += [name for name in os.listdir("/dev/shm") if self.session.name in name]
        # Locks of the service and the janitor come with the first of them.
        found = sorted(name for name in names if not name.endswith(("service.lock", "janitor.lock")))
        index_bytes = self.client._store.stats()["index_used_bytes"]
        if self.files is None:
            self.files, self.index_bytes = found, index_bytes
        assert found == self.files
        assert index_bytes <= self.index_bytes + 64 * 4096

    def expect_free_locks(self) -> None:
        """The write lock, the task lock, that for more memory and that of the service."""
        store = self.client._store
        store.ensure_partition("work")
        with store.lock_task("work", "t", 0.0):
            pass
        store.populate(1 << 16)
        assert self.session.service.start()
        self.session.service.stop()
        self.session.service._next_look_s = time.monotonic() + 2.0

    def run(self, rounds: int, whole_every: int) -> str:
        """Returns what happened, for the record."""
        began_s = time.monotonic()
        for number in range(1, rounds + 1):
            self.round()
            if number % whole_every == 0 or number == rounds:
                self.look_at_everything()
        per_role: Counter[str] = Counter()
        for what, count in self.kills.items():
            per_role[what.split(" (")[0]] += count
        return (
            f"{rounds} rounds in {time.monotonic() - began_s:.0f} s, {sum(self.kills.values())} kills "
            f"({dict(per_role)}; {dict(self.kills)}), {self.rows_checked} rows read and compared here, "
            f"{sum(self.ledger.done(p, g) for p in range(PRODUCERS) for g in range(GROUPS))} operations of producers, "
            f"{self.given_out} rows of work, longest put here {self.longest_call_s * 1e3:.0f} ms"
        )


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False
