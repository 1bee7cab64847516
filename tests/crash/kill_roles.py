"""The processes of the kill soak: each does its part until it is killed, and winds its clock when it gets on."""

from __future__ import annotations

import contextlib
import os
import random
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase

import transferqueue as tq
from tests.crash.ledger import GROUP_ROWS, GROUPS, PRODUCERS, Ledger, clears, keys_of, numbers_of, width_of
from tests.support.sessions import in_child
from tests.support.versioned_rows import rows
from transferqueue import TransferQueueClient, _native, cli
from transferqueue.storage.cleaning import remove_dead_sessions
from transferqueue.storage.janitor import ensure_janitor

# Rows may be cleared, and not be there yet.
GONE = (tq.KeyNotFoundError, tq.StaleMetadataError, tq.PartitionNotFoundError, tq.FieldNotReadyError)
POINTS = [
    *["index.reading", "index.before_commit", "index.after_commit", "write_gate.entered", "index.slot_locked"],
    *["put.after_copy", "put.before_publish", "put.after_commit_before_wake", "index.publish.before_commit"],
    *["index.publish.after_commit", "index.reserve.before_commit", "retire.after_commit", "retire.before_scan"],
    *["retire.after_word", "index.free.before_commit", "lease_directory.listed", "reap.before_remove"],
    *["get.after_resolve", "lease.before_store", "lease.before_recheck", "get.after_lease", "copy.midway"],
    *["view.before_map", "view.before_unmap", "view.unmapped", "lease.before_release", "keeper.before_look"],
    *["producer.before_seal", "producer.sealed", "producer.tensor_died", "fork.before_handover", "fork.handed_over"],
    *["lease_file.locked", "growth.locked", "payload.before_grow", "task.locked", "claim.before_wake"],
    *["index.claim.before_commit", "index.finish_claim.before_commit", "save.after_blocks", "save.after_snapshot"],
]


class Stage:
    """What a role works with."""

    def __init__(self, session: str, folder: str, number: int, seed: int) -> None:
        self.session = session
        self.folder = folder
        self.ledger = Ledger(folder)
        self.number = number
        self.random = random.Random(seed)
        self.held: list[tuple[int, int, int, TensorDictBase]] = []  # producer, group, version, views

    def client(self) -> TransferQueueClient:
        return tq.init(session=self.session).client

    def forever(self, act: Callable[[], None]) -> None:
        while True:
            with contextlib.suppress(*GONE):
                act()
            self.ledger.wind(self.number)


def play(_: Connection, role: str, session: str, folder: str, number: int, seed: int, point: str | None) -> None:
    """`point`: it kills itself there, sooner or later."""
    stage = Stage(session, folder, number, seed)
    stage.ledger.wind(number)
    if point is not None:
        _native.arm_pause(point, "kill", after=stage.random.randrange(20))
    ROLES[role](stage)


def produce(stage: Stage) -> None:
    """Stores, overwrites, computes in place, rewrites and clears its groups."""
    client, ledger, me = stage.client(), stage.ledger, stage.number
    for group in range(GROUPS):
        ledger.settle(client, me, group)
    partition = f"p{me}"

    def put(group: int, operation: int) -> None:
        batch, how = rows(numbers_of(group), operation, width_of(group)), stage.random.randrange(4)
        if how == 0:
            in_place(group, batch)
        elif how == 1 and not clears(operation - 1):
            client.put(batch, metadata=client.kv_retrieve_meta(keys_of(group), partition))
        else:
            client.kv_batch_put(keys_of(group), partition, batch, [{"v": operation}] * GROUP_ROWS)

    def in_place(group: int, batch: TensorDict) -> None:
        ragged = [len(row) for row in batch["r"].unbind()]
        spec = {
            "x": ((width_of(group),), torch.int64),
            "n": ((2,), torch.int64),
            "r": tq.Jagged(ragged, torch.int64),
        }
        allocation = client.alloc(spec, partition_id=partition, keys=keys_of(group))
        for name in ("x", "n"):
            allocation.data[name].copy_(batch[name])
        allocation.data["r"].values().copy_(batch["r"].values())
        kept = allocation.data["x"] if stage.random.random() < 0.5 else None
        allocation.commit(extra=TensorDict({"s": batch["s"]}, [GROUP_ROWS]))
        if kept is not None:
            kept.fill_(-1)  # reaches nobody

    def act() -> None:
        group = stage.random.randrange(GROUPS)
        operation = ledger.done(me, group) + 1
        if stage.random.random() < 0.1 and not clears(operation - 1):
            client.coalesce(client.kv_retrieve_meta(keys_of(group), partition))
        ledger.intend(me, group, operation)
        if clears(operation):
            client.kv_clear(keys_of(group), partition)
        else:
            put(group, operation)
        ledger.note(me, group, operation)

    while True:  # nobody else clears its rows: whatever is raised is a failure
        act()
        ledger.wind(me)


def read(stage: Stage) -> None:
    """Views are looked at again later; some are written to, some are read by a forked child."""
    client, ledger = stage.client(), stage.ledger

    def act() -> None:
        producer, group = stage.random.randrange(PRODUCERS), stage.random.randrange(GROUPS)
        mode = stage.random.choice(["cow", "cow", "shared", "copy"])
        version, found = ledger.look(client, producer, group, mode)
        if found is None or not len(found):
            return
        dice = stage.random.random()
        if dice < 0.05:
            assert in_child(lambda: look_again(producer, group, version, found)) in (0, -9)
        elif dice < 0.3 and mode != "shared":
            found["x"].fill_(-1)
        else:
            stage.held.append((producer, group, version, found))
        if len(stage.held) > 4:
            look_again(*stage.held.pop(stage.random.randrange(len(stage.held))))

    def look_again(producer: int, group: int, version: int, found: TensorDictBase) -> None:
        # A view shows what it showed, whatever was put since.
        assert ledger.check(producer, group, version, found) == version

    stage.forever(act)


def wait(stage: Stage) -> None:
    client = stage.client()

    def act() -> None:
        producer, group = stage.random.randrange(PRODUCERS), stage.random.randrange(GROUPS)
        with contextlib.suppress(tq.TransferTimeoutError):
            client.wait(f"p{producer}", fields=["x", "n"], keys=keys_of(group), timeout=stage.random.random())

    stage.forever(act)


def claim(stage: Stage) -> None:
    """Says in the log what it acknowledged, after the acknowledgement."""
    client = stage.client()
    log = os.open(f"{stage.folder}/acknowledged", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def act() -> None:
        claimed = client.claim("t", "work", fields="x", batch_size=3, lease_s=3600, timeout=0.2, partial=True)
        if not claimed:
            return
        numbers = client.get_data(claimed.meta)["x"][:, 0].tolist()
        if stage.random.random() < 0.3:
            client.extend(claimed, 3600)
        if stage.random.random() < 0.3:
            client.nack(claimed)
        else:
            client.ack(claimed)
            os.write(log, f"{numbers}\n".encode())

    stage.forever(act)


def keep_house(stage: Stage) -> None:
    """The process that runs the service, when it gets it, with more housekeeping than a second's."""
    session = tq.init(session=stage.session)
    store = session.client._store

    def act() -> None:
        session.service.start()
        stage.random.choice([store.reap, store.reclaim, store.trim, lambda: store.populate(1 << 20), store.stats])()
        time.sleep(0.01)

    stage.forever(act)


def serve(stage: Stage) -> None:
    """`tq serve`, again and again: where another service runs, it is told so and ends."""
    while True:
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
            cli.main(["serve", "--session", stage.session, "--size", "32MiB"])
        stage.ledger.wind(stage.number)
        time.sleep(0.02)


def save(stage: Stage) -> None:
    client = stage.client()
    stage.forever(lambda: client.save_checkpoint(f"{stage.folder}/checkpoint"))


def visit(stage: Stage) -> None:
    """Joins, reads and leaves; makes a session of its own (or takes over what one before it left) and ends it; cleans;
    starts the session's janitor where there is none."""

    def act() -> None:
        client = tq.attach(stage.session).client  # never to make one, after the test has failed and ended it
        stage.ledger.look(client, 0, stage.random.randrange(GROUPS), "cow")
        if stage.random.random() < 0.1:
            ensure_janitor(stage.session)
        tq.close()
        with tq.init(session=f"{stage.session}-own", **{"storage.size": "1MiB", "storage.index_size": "2MiB"}) as own:
            own.client.put(rows([1], 1), partition_id="p")
        remove_dead_sessions()

    stage.forever(act)


ROLES: dict[str, Callable[[Stage], Any]] = {
    "produce": produce,
    "read": read,
    "wait": wait,
    "claim": claim,
    "keep_house": keep_house,
    "serve": serve,
    "save": save,
    "visit": visit,
}
