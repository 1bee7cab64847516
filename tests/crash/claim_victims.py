"""Processes with claims: those that are killed at a point (see `victims`), and those that are killed from outside."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import numpy.typing as npt

import transferqueue as tq
from tests.crash.victims import Arm
from tests.support.versioned_rows import rows
from transferqueue import Claim, TransferQueueClient

LEASE_S = 3600.0


def claim_rows(client: TransferQueueClient, count: int, **options: object) -> Claim:
    """For task "t" on partition "plain"."""
    wanted = {"fields": "x", "batch_size": count, "lease_s": LEASE_S, **options}
    return client.claim("t", "plain", **wanted)  # type: ignore[arg-type]


def die_claiming(client: TransferQueueClient, arm: Arm, count: int) -> None:
    arm()
    claim_rows(client, count)


def die_with_a_claim(client: TransferQueueClient, arm: Arm, count: int) -> None:
    claimed = claim_rows(client, count)
    arm()
    client.put(rows([10_000], 0), partition_id="dead end")
    client.ack(claimed)


def die_at_ack(client: TransferQueueClient, arm: Arm, claimed: Claim) -> None:
    arm()
    client.ack(claimed)


def die_at_nack(client: TransferQueueClient, arm: Arm, claimed: Claim) -> None:
    arm()
    client.nack(claimed)


def die_extending(client: TransferQueueClient, arm: Arm, claimed: Claim) -> None:
    arm()
    client.extend(claimed, LEASE_S)


def claim_and_tell(pipe: Connection, session: str, count: int, lease_s: float) -> None:
    """Sends its claim, then on each word does what it says and sends what came of it."""
    client = tq.init(session=session).client
    claimed = claim_rows(client, count, lease_s=lease_s)
    pipe.send(claimed)
    while True:
        word = pipe.recv()
        try:
            pipe.send(getattr(client, word)(claimed))
        except tq.StaleMetadataError as error:
            pipe.send(str(error))


def finish(pipe: Connection, session: str, claimed: Claim, how: Sequence[str]) -> None:
    """Does something with somebody else's claim; ends without closing the session."""
    client = tq.init(session=session).client
    for call in how:
        arguments = [claimed, LEASE_S] if call == "extend" else [claimed]
        getattr(client, call)(*arguments)
    pipe.send("done")


def fork_with_claims(pipe: Connection, session: str) -> None:
    """Its child acknowledges one of its claims and closes the session; the other stays its own."""
    client = tq.init(session=session).client
    first, second = claim_rows(client, 2), claim_rows(client, 2)
    child = os.fork()
    if child == 0:
        client.ack(first)
        tq.close()
        os._exit(0)
    pipe.send(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    pipe.send(bool(claim_rows(client, 5)))
    client.ack(second)
    pipe.send("acknowledged")


def wait_for_rows(pipe: Connection, session: str, count: int) -> None:
    client = tq.init(session=session).client
    pipe.send("waiting")
    claimed = claim_rows(client, count, timeout=50)
    pipe.send(claimed.meta.global_indexes)
    client.ack(claimed)
    pipe.send("acknowledged")


class Holders:
    """Who works on which row, in a file that outlives everybody: pid by row number (the value of field "x")."""

    def __init__(self, path: Path, count: int) -> None:
        if not path.exists():
            np.zeros(count, dtype=np.int64).tofile(path)
        self._pids: npt.NDArray[np.int64] = np.memmap(path, np.int64, "r+", shape=(count,))

    def enter(self, numbers: Sequence[int]) -> None:
        """Raises AssertionError when a living process works on one of the rows."""
        for number in numbers:
            holder = int(self._pids[number])
            # The kernel lets go of a dying process's locks a moment before it counts as dead.
            until_s = time.monotonic() + 10
            while holder and _lives(holder):
                assert time.monotonic() < until_s, f"row {number} is with process {holder}, too"
                time.sleep(0.001)
        self._pids[list(numbers)] = os.getpid()

    def leave(self, numbers: Sequence[int]) -> None:
        self._pids[list(numbers)] = 0


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def consume_until_told(pipe: Connection, session: str, folder: str, count: int, seed: int) -> None:
    """Claims rows, works on them, acknowledges them (noted in the folder's log afterwards) or gives them back; fetches
    some at once. Ends when told to and nothing is left."""
    client = tq.init(session=session).client
    holders = Holders(Path(folder) / "holders", count)
    log = os.open(f"{folder}/log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    chooser = random.Random(seed)
    pipe.send("ready")
    while True:
        told = pipe.poll()
        size = chooser.randint(1, 4)
        if chooser.random() < 0.2:
            meta = client.get_meta("x", size, "plain", task_name="t", polling_mode=True, partial=True)
            if meta.size:
                numbers = client.get_data(meta)["x"][:, 0].tolist()
                holders.enter(numbers)
                os.write(log, f"{numbers}\n".encode())
            continue
        claimed = claim_rows(client, size, timeout=0.05, partial=True)
        if not claimed:
            if told:
                pipe.send("nothing left")
                return
            continue
        numbers = client.get_data(claimed.meta)["x"][:, 0].tolist()
        holders.enter(numbers)
        time.sleep(chooser.random() * 0.004)
        if chooser.random() < 0.2:
            client.extend(claimed, LEASE_S)
        holders.leave(numbers)
        if chooser.random() < 0.3:
            client.nack(claimed)
        else:
            client.ack(claimed)
            os.write(log, f"{numbers}\n".encode())
