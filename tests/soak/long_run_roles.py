"""What the processes of the long run do: a step of GRPO, on rows whose every byte follows from their number.

Each answers commands on its pipe: (name, arguments) -> (result, seconds of each call that it timed). "figures" asks for
what it takes of the system, None ends it.
"""

from __future__ import annotations

import ctypes
import gc
import os
import random
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any

import torch
from tensordict import NonTensorStack, TensorDict, TensorDictBase

import transferqueue as tq
from transferqueue import BatchMeta, TransferQueueClient

PARTITION = "train"
GROUP = 8  # responses of one prompt: one put
SHORTEST, LONGEST = 64, 1024  # tokens of a response
Times = list[float]


def length_of(number: int) -> int:
    return SHORTEST + number * 7919 % (LONGEST - SHORTEST)


def rollouts(numbers: Sequence[int]) -> TensorDict:
    """About 6.6 KB a row: id int64, responses jagged int64, old_log_probs jagged float32, uid str."""
    tokens = [torch.arange(length_of(n)) + n * 1_000_003 for n in numbers]
    return TensorDict(
        {
            "id": torch.tensor(numbers),
            "responses": torch.nested.nested_tensor(tokens, layout=torch.jagged),
            "old_log_probs": torch.nested.nested_tensor([row.float() for row in tokens], layout=torch.jagged),
            "uid": NonTensorStack(*[f"prompt {n // GROUP}" for n in numbers]),
        },
        [len(numbers)],
    )


def check(batch: TensorDictBase) -> None:
    """Fails unless every byte is that of its row."""
    numbers = batch["id"].tolist()
    lengths = [length_of(n) for n in numbers]
    values = batch["responses"].values()
    firsts = torch.repeat_interleave(batch["id"] * 1_000_003, torch.tensor(lengths))
    within = torch.cat([torch.arange(length) for length in lengths])
    assert torch.equal(values, firsts + within)
    if "old_log_probs" in batch.keys():
        assert torch.equal(batch["old_log_probs"].values(), (firsts + within).float())
    if "advantages" in batch.keys():
        assert torch.equal(batch["advantages"], batch["id"] * 0.5)
    if "uid" in batch.keys():
        assert list(batch["uid"]) == [f"prompt {n // GROUP}" for n in numbers]


def timed(times: Times, call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    began_s = time.perf_counter()
    result = call(*arguments, **options)
    times.append(time.perf_counter() - began_s)
    return result


def roll(client: TransferQueueClient, times: Times, first: int, count: int, step: int) -> BatchMeta:
    """Rows [first, + count) in puts of a group each, with tags."""
    made = []
    for at in range(first, first + count, GROUP):
        batch = rollouts(range(at, at + GROUP))
        tags = [{"step": step, "weight_version": step, "n": at + i} for i in range(GROUP)]
        made.append(timed(times, client.put, batch, partition_id=PARTITION, tags=tags))
    return BatchMeta.concat(made)


def advise(client: TransferQueueClient, times: Times, count: int) -> None:
    """Claims rows as they come, adds fields to them, says that it is done with them."""
    while count > 0:
        claimed = client.claim(
            "advantage", PARTITION, fields=["id", "responses"], batch_size=min(32, count), lease_s=600, timeout=100
        )
        batch = client.get_data(claimed.meta, fields=["id", "responses"])
        check(batch)
        advantages = TensorDict({"advantages": batch["id"] * 0.5, "rewards": batch["id"].float()}, batch.batch_size)
        timed(times, client.put, advantages, metadata=claimed.meta)
        count -= claimed.meta.size
        client.ack(claimed)


def train(client: TransferQueueClient, times: Times, meta: BatchMeta, passes: int) -> None:
    """Reads the same batch several times, and writes into it each time."""
    for _ in range(passes):
        batch = timed(times, client.get_data, meta)
        check(batch)
        batch["responses"].values().add_(1)
        batch["advantages"].mul_(-1)
        batch["old_log_probs"].values().zero_()


def replay(client: TransferQueueClient, times: Times, metas: list[BatchMeta]) -> None:
    """Reads rows of many steps."""
    if metas:
        check(timed(times, client.get_data, BatchMeta.concat(metas)))


def clear(client: TransferQueueClient, times: Times, metas: list[BatchMeta]) -> None:
    """Row by row, more or less."""
    for meta in metas:
        timed(times, client.clear_samples, meta)


COMMANDS: dict[str, Callable[..., Any]] = {
    "roll": roll,
    "advise": advise,
    "train": train,
    "replay": replay,
    "clear": clear,
}


def play(pipe: Connection, session: str) -> None:
    """Until it is told None."""
    torch.set_num_threads(1)
    client = tq.init(session=session).client
    while (command := pipe.recv()) is not None:
        name, *arguments = command
        if name == "figures":
            pipe.send(figures_of(os.getpid()) | {"pool": client.stats().gather_pool_bytes / (1 << 20)})
            continue
        times: Times = []
        result = COMMANDS[name](client, times, *arguments)
        pipe.send((result, times))
    tq.close()


def figures_of(pid: int) -> dict[str, float]:
    """RSS, PSS and private memory in MiB (pages of the store count in the first two), descriptors, mappings.

    Of this process without its garbage and what malloc keeps of freed memory: both come and go by steps of their own.
    """
    if pid == os.getpid():
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
    rollup = {}
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
        for line in file.read().splitlines()[1:]:
            name, value = line.split(":")
            rollup[name] = int(value.split()[0]) / 1024
    with open(f"/proc/{pid}/maps", "rb") as maps:
        mappings = sum(1 for _ in maps)
    return {
        "rss": rollup["Rss"],
        "pss": rollup["Pss"],
        "private": rollup["Private_Clean"] + rollup["Private_Dirty"],
        "fds": len(os.listdir(f"/proc/{pid}/fd")),
        "maps": mappings,
    }


def shuffled_rows(meta: BatchMeta, chooser: random.Random) -> list[BatchMeta]:
    """In pieces of up to four rows, in any order."""
    positions = list(range(meta.size))
    chooser.shuffle(positions)
    return [meta.select_samples(positions[at : at + 4]) for at in range(0, len(positions), 4)]
