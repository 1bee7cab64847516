"""What the processes of the chaos test do until they are told to stop or are killed.

The rows of a group are only ever put, cleared and moved together, so whoever reads a group must find one version of it,
and every byte must be that version's.
"""

from __future__ import annotations

import functools
import os
import random
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase

import transferqueue as tq
from tests.support.compaction import compact
from tests.support.sessions import in_child
from tests.support.versioned_rows import WIDTH, rows, versions_of
from transferqueue import BatchMeta, TransferQueueClient, _native

GROUPS = 10
GROUP_ROWS = 4
# Rows may be cleared and room may run out at any time; whatever else is raised is a failure.
EXPECTED = (tq.KeyNotFoundError, tq.StaleMetadataError, tq.PartitionNotFoundError, tq.StorageFullError)
# Where a process may be killed by its own hand, beside the kills from outside that hit it anywhere.
POINTS = [
    *["index.before_commit", "index.after_commit", "write_gate.entered", "put.after_copy", "put.before_publish"],
    *["retire.after_commit", "retire.before_scan", "retire.after_word", "index.free.before_commit"],
    *["get.after_resolve", "lease.before_store", "lease.before_recheck", "get.after_lease", "copy.midway"],
    *["view.before_map", "view.before_unmap", "view.unmapped", "lease.before_release", "producer.sealed"],
    *["fork.before_handover", "lease_file.locked", "reap.before_remove", "index.clear.between_batches"],
]


def numbers_of(group: int) -> list[int]:
    return list(range(group * GROUP_ROWS, (group + 1) * GROUP_ROWS))


def keys_of(group: int) -> list[str]:
    return [f"k{number}" for number in numbers_of(group)]


def check(found: TensorDictBase, group: int) -> int:
    """The one version of a group; fails when there are two, or one byte of another."""
    seen = versions_of(found)
    assert [number for number, _ in seen] == numbers_of(group), seen
    assert len({version for _, version in seen}) == 1, f"torn: {seen}"
    return seen[0][1]


class Role:
    """State of one process of the chaos."""

    def __init__(self, client: TransferQueueClient, seed: int) -> None:
        self.client = client
        self.random = random.Random(seed)
        self.counter = 0
        self.held: list[tuple[int, int, TensorDictBase]] = []  # group, version, views

    def group(self) -> int:
        return self.random.randrange(GROUPS)

    def version(self) -> int:
        """Used by nobody else, ever."""
        self.counter += 1
        return os.getpid() << 16 | self.counter

    def meta(self, group: int) -> BatchMeta:
        return self.client.kv_retrieve_meta(keys_of(group), "p")


def write(role: Role) -> None:
    group, version = role.group(), role.version()
    batch, how = rows(numbers_of(group), version), role.random.randrange(4)
    if how == 0:
        role.client.put(batch, metadata=role.meta(group), timeout=0.2)
    elif how == 1:
        _write_in_place(role, group, batch)
    else:
        role.client.kv_batch_put(keys_of(group), "p", batch, timeout=0.2)


def _write_in_place(role: Role, group: int, batch: TensorDict) -> None:
    ragged = [len(row) for row in batch["r"].unbind()]
    spec = {"x": ((WIDTH,), torch.int64), "n": ((2,), torch.int64), "r": tq.Jagged(ragged, torch.int64)}
    allocation = role.client.alloc(spec, partition_id="p", keys=keys_of(group), timeout=0.2)
    for name in ("x", "n"):
        allocation.data[name].copy_(batch[name])
    allocation.data["r"].values().copy_(batch["r"].values())
    kept = allocation.data["x"] if role.random.random() < 0.5 else None
    if role.random.random() < 0.2:
        allocation.abort()
    else:
        allocation.commit(extra=TensorDict({"s": batch["s"]}, [GROUP_ROWS]))
    if kept is not None:
        kept.fill_(-1)  # reaches nobody


def read(role: Role) -> None:
    """Views are looked at again later, and some are written to."""
    group, mode = role.group(), role.random.choice(["cow", "cow", "shared", "copy"])
    found = role.client.kv_batch_get(keys_of(group), "p", mode=mode)
    version = check(found, group)
    if mode != "shared" and role.random.random() < 0.3:
        found["x"].fill_(-1)
    elif role.random.random() < 0.5:
        role.held.append((group, version, found))
    if len(role.held) > 6 or (role.held and role.random.random() < 0.3):
        group, version, found = role.held.pop(role.random.randrange(len(role.held)))
        assert check(found, group) == version


def clear(role: Role) -> None:
    dice = role.random.random()
    if dice < 0.03:
        role.client.clear_partition("p")
    elif dice < 0.3:
        role.client.clear_samples(role.meta(role.group()))
    else:
        role.client.kv_clear(keys_of(role.group()), "p")
    time.sleep(0.01)


def coalesce(role: Role) -> None:
    groups = sorted(role.random.sample(range(GROUPS), role.random.randint(1, 3)))
    role.client.coalesce(BatchMeta.concat([role.meta(group) for group in groups]), timeout=0.1)


def keep_house(role: Role) -> None:
    store = role.client._store
    compaction = functools.partial(compact, role.client)
    role.random.choice([store.reap, store.reclaim, store.reclaim, store.trim, compaction, compaction])()
    time.sleep(0.005)


def fork(role: Role) -> None:
    group = role.group()
    found = role.client.kv_batch_get(keys_of(group), "p")
    version = check(found, group)

    def child() -> None:
        time.sleep(role.random.random() * 0.05)
        assert check(found, group) == version
        found["x"].fill_(-2)
        role.counter += 1 << 12
        try:
            write(role)
            read(role)
        except EXPECTED:
            pass

    assert in_child(child) in (0, -9)
    assert check(found, group) == version


ROLES: dict[str, Callable[[Role], None]] = {
    "write": write,
    "read": read,
    "clear": clear,
    "coalesce": coalesce,
    "keep_house": keep_house,
    "fork": fork,
}


def play(pipe: Connection, session: str, name: str, seed: int, dies: bool) -> None:
    """Plays a role until told to stop; answers how many turns it had. `dies`: kills itself at a point before long."""
    role = Role(tq.init(session=session).client, seed)
    if dies:
        _native.arm_pause(role.random.choice(POINTS), "kill", after=role.random.randrange(30))
    turns = 0
    while not pipe.poll():
        try:
            ROLES[name](role)
            turns += 1
        except EXPECTED:
            time.sleep(0.002)
    for group, version, found in role.held:
        assert check(found, group) == version
    role.held.clear()
    pipe.send(turns)
    tq.close()


def final_look(client: TransferQueueClient, groups: Sequence[int]) -> dict[int, int]:
    """Version of each group that is there; every way of reading gives the same."""
    seen: dict[int, int] = {}
    for group in groups:
        found: Any = client.kv_batch_get(keys_of(group), "p", missing="skip") if "p" in _names(client) else None
        if found is None or not len(found):
            continue
        assert len(found) == GROUP_ROWS, f"half of group {group} is there"
        seen[group] = check(found, group)
        for mode in ("cow", "shared", "copy"):
            assert check(client.kv_batch_get(keys_of(group), "p", mode=mode), group) == seen[group]
    return seen


def _names(client: TransferQueueClient) -> list[str]:
    return client.get_partition_list()
